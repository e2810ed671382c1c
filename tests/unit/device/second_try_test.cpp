// What is tried before a device's "no" is believed, in which order, and when it ends.
#include "device/second_try.hpp"

#include <deque>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/patience.hpp"

namespace headroom::device {
namespace {

using ::testing::HasSubstr;

// Writes down what is asked of it, in order: r reap, t trim, a ask, T told of a trim.
class Device final : public DeviceResource {
public:
  std::string order;
  std::deque<std::uint64_t> reaps{}, trims{};
  bool cannot_reap = false;
  bool trim_throws = false;

  Result<Block> allocate(AllocRequest const&) override { return fail(ErrorKind::unsupported, Layer::resource, "asked directly"); }
  Result<void> deallocate(Block const&) override { return success(); }
  std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  std::string_view name() const noexcept override { return "device"; }
  MemoryInfo memory_info() const noexcept override { return {.total = 10'000}; }
  Result<std::uint64_t> reap_pending(ReapMode) override {
    order += 'r';
    if (cannot_reap) return fail(ErrorKind::driver, Layer::driver, "cannot reap");
    return next(reaps);
  }
  Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override {
    order += 't';
    EXPECT_EQ(bytes_to_keep, 0U);
    if (trim_throws) throw std::runtime_error("boom");
    return next(trims);
  }

private:
  static std::uint64_t next(std::deque<std::uint64_t>& answers) {
    if (answers.empty()) return 0;
    const std::uint64_t answer = answers.front();
    answers.pop_front();
    return answer;
  }
};

Result<Block> no_room(std::uint64_t free) {
  Error error = make_error(ErrorKind::device_out_of_memory, Layer::driver, "full");
  error.device_free = free;
  return tl::make_unexpected(std::move(error));
}

// Refuses until it was asked `refusals` times more.
class Again final : public SecondTry {
public:
  Again(Device& device, std::uint64_t refusals, std::uint64_t free) : device_{device}, refusals_{refusals}, free_{free} {}
  Result<Block> ask() noexcept override {
    device_.order += 'a';
    ++asks;
    if (keeps != 0) device_.trims.push_back(keeps);
    if (asks > refusals_) return Block{.pointer = this, .bytes = 50};
    return no_room(free_);
  }
  void trimmed(std::uint64_t bytes) noexcept override {
    device_.order += 'T';
    trimmed_bytes += bytes;
  }
  std::optional<std::uint64_t> free_now() const noexcept override { return free_ + (moves ? 1 : 0); }
  std::uint64_t asks = 0, trimmed_bytes = 0;
  bool moves = false;
  std::uint64_t keeps = 0;  // what a refused request leaves in the cache

private:
  Device& device_;
  std::uint64_t refusals_, free_;
};

constexpr AllocRequest kRequest{.bytes = 50};

TEST(SecondTry, frees_come_before_caches_and_a_trim_is_told_before_the_next_ask) {
  Device device;
  device.trims = {4096};
  Again again{device, 0, 100};
  EXPECT_TRUE(ask_again_if_short(device, kRequest, no_room(100), again));
  EXPECT_EQ(device.order, "rrtTa") << "finished frees, the next free, then the cache";
  EXPECT_EQ(again.trimmed_bytes, 4096U);
}

TEST(SecondTry, what_frees_made_room_for_is_not_trimmed_for) {
  Device device;
  device.reaps = {0, 50};
  device.trims = {4096};
  Again again{device, 0, 0};
  EXPECT_TRUE(ask_again_if_short(device, kRequest, no_room(0), again));
  EXPECT_EQ(device.order, "rra");
}

TEST(SecondTry, with_nothing_pending_and_nothing_cached_a_refusal_is_believed_unasked) {
  Device device;
  Again again{device, 0, 100};
  EXPECT_FALSE(ask_again_if_short(device, kRequest, no_room(100), again));
  EXPECT_EQ(device.order, "rrt");
}

TEST(SecondTry, trims_until_nothing_is_cached_and_says_so) {
  Device device;
  device.trims = {512, 256};
  Again again{device, 9, 100};
  const auto refused = ask_again_if_short(device, kRequest, no_room(100), again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(device.order, "rrtTartTart") << "two trims, two asks, and a last look at the cache";
  EXPECT_THAT(refused.error().message, HasSubstr("768 B of cached memory were given back and did not suffice"));
}

TEST(SecondTry, a_resource_that_cannot_reap_is_trimmed_all_the_same) {
  Device device;
  device.cannot_reap = true;
  device.trims = {512};
  Again again{device, 0, 512};
  EXPECT_TRUE(ask_again_if_short(device, kRequest, no_room(0), again));
  EXPECT_EQ(device.order, "rtTa");
}

TEST(SecondTry, a_cache_that_throws_gives_nothing) {
  Device device;
  device.trim_throws = true;
  Again again{device, 0, 100};
  EXPECT_FALSE(ask_again_if_short(device, kRequest, no_room(100), again));
  EXPECT_EQ(again.asks, 0U);
}

TEST(SecondTry, nothing_is_tried_for_a_request_above_the_whole_device_nor_for_another_failure) {
  Device device;
  device.trims = {4096};
  Again again{device, 0, 100};
  EXPECT_FALSE(ask_again_if_short(device, {.bytes = 10'001}, no_room(100), again));
  EXPECT_FALSE(ask_again_if_short(device, kRequest, fail(ErrorKind::driver, Layer::driver, "broken"), again));
  EXPECT_EQ(device.order, "");
}

// Another thread takes what came back, time and again: on a busy machine a hundred times in a row is nothing.
TEST(SecondTry, being_overtaken_many_times_in_a_moment_is_no_reason_to_give_up) {
  Device device;
  Again again{device, Patience::kOften - 1, 0};
  again.moves = true;
  EXPECT_TRUE(ask_again_if_short(device, kRequest, no_room(0), again));
  EXPECT_EQ(again.asks, Patience::kOften);
}

TEST(SecondTry, being_overtaken_long_and_often_ends) {
  Device device;
  Again again{device, ~std::uint64_t{0}, 0};
  again.moves = true;
  EXPECT_FALSE(ask_again_if_short(device, kRequest, no_room(0), again));
  EXPECT_GE(again.asks, Patience::kOften - 1);
}

// A pool takes what it can get before it refuses, and keeps it: each trim gives that back, and nothing was won.
TEST(SecondTry, a_request_above_what_is_free_after_a_trim_is_not_asked_for_again) {
  Device device;
  device.trims = {4096};
  Again again{device, ~std::uint64_t{0}, 49};
  again.keeps = 4096;
  const auto refused = ask_again_if_short(device, kRequest, no_room(10), again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(again.asks, 0U);
  EXPECT_THAT(refused.error().message, HasSubstr("4 KiB of cached memory were given back and did not suffice"));
}

TEST(SecondTry, a_pool_that_fills_its_cache_with_what_it_refuses_is_believed_in_the_end) {
  Device device;
  device.trims = {4096};
  Again again{device, ~std::uint64_t{0}, 100};
  again.keeps = 4096;
  EXPECT_FALSE(ask_again_if_short(device, kRequest, no_room(10), again));
  EXPECT_GE(again.asks, 8U) << "others may have filled the cache";
}

}  // namespace
}  // namespace headroom::device
