#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/error.hpp>

#include "base/quoted.hpp"

namespace headroom {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

TEST(ErrorWords, kinds_have_one_word_each_and_come_back) {
  std::set<std::string_view> words;
  for (std::size_t i = 0; i < kErrorKindCount; ++i) {
    auto const kind = static_cast<ErrorKind>(i);
    EXPECT_EQ(error_kind_from(to_string(kind)), kind);
    words.insert(to_string(kind));
  }
  EXPECT_EQ(words.size(), kErrorKindCount);
  EXPECT_EQ(to_string(ErrorKind::over_budget), "over_budget");
  EXPECT_EQ(to_string(ErrorKind::wrong_owner), "wrong_owner");
  EXPECT_EQ(to_string(ErrorKind::parse), "parse");
}

TEST(ErrorWords, layers_have_one_word_each_and_come_back) {
  std::set<std::string_view> words;
  for (std::size_t i = 0; i < kLayerCount; ++i) {
    auto const layer = static_cast<Layer>(i);
    EXPECT_EQ(layer_from(to_string(layer)), layer);
    words.insert(to_string(layer));
  }
  EXPECT_EQ(words.size(), kLayerCount);
  EXPECT_EQ(to_string(Layer::device_account), "device_account");
  EXPECT_EQ(to_string(Layer::guard), "guard");
}

TEST(ErrorWords, strangers_are_unknown_and_not_a_crash) {
  EXPECT_EQ(to_string(static_cast<ErrorKind>(15)), "unknown");
  EXPECT_EQ(to_string(static_cast<Layer>(200)), "unknown");
  EXPECT_EQ(error_kind_from("unknown"), std::nullopt);
  EXPECT_EQ(error_kind_from("Over_budget"), std::nullopt);
  EXPECT_EQ(layer_from(""), std::nullopt);
}

Error refusal() {
  auto error = make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = 512 * kMiB;
  error.current = 7 * kGiB + kGiB / 2;
  error.limit = 8 * kGiB;
  return error;
}

TEST(ErrorSentence, refusal_names_figures_and_holders) {
  auto error = refusal();
  error.holders = {Holder{"kv-cache", 5 * kGiB}, Holder{"weights", 2 * kGiB}, Holder{}};
  error.unspent_bytes = 300 * kMiB;
  error.unspent_reservations = 2;
  error.failed_free_bytes = 100 * kMiB;
  error.failed_frees = 1;
  EXPECT_EQ(error.to_string(),
            "512 MiB refused by manager (over_budget): 7.5 GiB of 8 GiB claimed (kv-cache 5 GiB, weights 2 GiB), "
            "300 MiB in 2 unspent reservations, 100 MiB in a failed free");
}

TEST(ErrorSentence, rounded_figures_carry_their_bytes) {
  auto error = refusal();
  error.requested = 512 * kMiB + 1;
  error.holders[0] = {"kv-cache", 5'476'083'302};
  error.holders[1] = {"", 256};
  error.peak = 8 * kGiB;
  EXPECT_EQ(error.to_string(),
            "512 MiB (536,870,913 B) refused by manager (over_budget): "
            "7.5 GiB of 8 GiB claimed (kv-cache 5,476,083,302 B, untagged 256 B), peak 8 GiB");
}

TEST(ErrorSentence, single_reservation_and_several_failed_frees) {
  auto error = refusal();
  error.unspent_bytes = kMiB;
  error.unspent_reservations = 1;
  error.failed_free_bytes = 3 * kMiB;
  error.failed_frees = 1'234;
  EXPECT_EQ(error.to_string(),
            "512 MiB refused by manager (over_budget): 7.5 GiB of 8 GiB claimed, "
            "1 MiB in an unspent reservation, 3 MiB in 1,234 failed frees");
}

TEST(ErrorSentence, device_out_of_memory_says_what_the_device_said) {
  auto error = make_error(ErrorKind::device_out_of_memory, Layer::driver, "cudaMallocAsync: out of memory");
  error.requested = 2 * kGiB;
  error.device_free = 100 * kMiB;
  error.device_code = 2;
  EXPECT_EQ(error.to_string(),
            "2 GiB refused by driver (device_out_of_memory): 100 MiB free on the device, driver code 2; "
            "cudaMallocAsync: out of memory");
}

TEST(ErrorSentence, device_figures_are_told_together_and_the_unknown_ones_left_out) {
  auto error = make_error(ErrorKind::device_out_of_memory, Layer::driver, {});
  error.requested = 2 * kGiB;
  error.device_free = 4 * kGiB;
  error.device_total = 9 * kGiB;
  error.device_outside = kGiB;
  EXPECT_EQ(error.to_string(),
            "2 GiB refused by driver (device_out_of_memory): 4 GiB of 9 GiB free on the device, 1 GiB used outside the ledgers");
  error.device_free.reset();
  EXPECT_EQ(error.to_string(),
            "2 GiB refused by driver (device_out_of_memory): the device has 9 GiB, 1 GiB used outside the ledgers");
  error.device_total.reset();
  error.device_outside = 0;
  EXPECT_EQ(error.to_string(), "2 GiB refused by driver (device_out_of_memory): 0 B used outside the ledgers");
}

TEST(ErrorSentence, absent_figures_are_not_zero) {
  auto error = make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = 0;
  error.limit = 0;
  EXPECT_EQ(error.to_string(), "0 B refused by manager (over_budget): the limit is 0 B");
}

TEST(ErrorSentence, clamped_sum_is_said) {
  auto error = refusal();
  error.required_is_clamped = true;
  EXPECT_EQ(error.to_string(),
            "512 MiB refused by manager (over_budget): 7.5 GiB of 8 GiB claimed, the sum does not fit 64 bits");
}

TEST(ErrorSentence, without_figures_is_the_message) {
  EXPECT_EQ(make_error(ErrorKind::io, Layer::request, "x.csv: cannot be opened: No such file or directory").to_string(),
            "x.csv: cannot be opened: No such file or directory");
}

TEST(ErrorSentence, without_anything_names_kind_and_layer) {
  EXPECT_EQ(make_error(ErrorKind::driver, Layer::resource, {}).to_string(), "refused by resource (driver)");
}

TEST(ErrorSentence, overflow_names_request_and_reason) {
  auto error = make_error(ErrorKind::overflow, Layer::request, "expected at most 16 TiB - 1");
  error.requested = std::uint64_t{1} << 44U;
  EXPECT_EQ(error.to_string(), "16 TiB refused by request (overflow): expected at most 16 TiB - 1");
}

TEST(Fail, makes_an_error_of_every_result) {
  Result<int> const number = fail(ErrorKind::unsupported, Layer::resource, "no");
  Result<void> const nothing = fail(ErrorKind::parse, Layer::guard, "nor");
  ASSERT_FALSE(number.has_value());
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(number.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(number.error().layer, Layer::resource);
  EXPECT_EQ(number.error().message, "no");
  EXPECT_EQ(nothing.error().layer, Layer::guard);
  EXPECT_FALSE(number.error().requested.has_value());
}

TEST(Quoted, escapes_and_shortens) {
  EXPECT_EQ(in_quotes("plain"), "'plain'");
  EXPECT_EQ(in_quotes("a\nb\tc\r"), "'a\\nb\\tc\\r'");
  EXPECT_EQ(in_quotes(std::string_view{"\0\x1b\x7f\xfd", 4}), "'\\x00\\x1b\\x7f\\xfd'");
  EXPECT_EQ(in_quotes("abcdef", 3), "'abc…'");
  EXPECT_EQ(in_quotes("abc", 3), "'abc'");
}

}  // namespace
}  // namespace headroom
