// Strict JSON through a small buffer: numbers, texts of any bytes, shapes, and a sink that is full.
#include <cstdint>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dump/json_stream.hpp"
#include "dump/numbers.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using dump::Hex;
using dump::JsonStream;
using nlohmann::json;
using Shape = JsonStream::Shape;

template <class Write>
std::string written(Write const& write, std::size_t buffer_bytes = 1024) {
  std::string buffer(buffer_bytes, '\0');
  StringSink sink;
  JsonStream stream{sink, buffer};
  write(stream);
  EXPECT_EQ(stream.finish(), 0);
  return std::move(sink.text);
}

std::string as_text(std::string_view bytes) {
  return written([&](JsonStream& stream) { stream.value(bytes); });
}

TEST(JsonStream, numbers_above_two_to_the_53_are_strings) {
  constexpr std::uint64_t kLimit = 9'007'199'254'740'992;
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(kLimit); }), "9007199254740992\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(kLimit + 1); }), "\"9007199254740993\"\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(~std::uint64_t{0}); }), "\"18446744073709551615\"\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(std::uint64_t{0}); }), "0\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(std::int64_t{-7}); }), "-7\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(INT64_MIN); }), "\"-9223372036854775808\"\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(Hex{0xDEADBEEF}); }), "\"0xdeadbeef\"\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(Hex{0}); }), "\"0x0\"\n");
}

TEST(JsonStream, microseconds_have_three_digits_behind_the_point) {
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(dump::Microseconds{0}); }), "0.000\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(dump::Microseconds{1'050}); }), "1.050\n");
  EXPECT_EQ(written([](JsonStream& stream) { stream.value(dump::Microseconds{~std::uint64_t{0}}); }), "18446744073709551.615\n");
}

TEST(JsonStream, texts_are_escaped_as_json_wants_it) {
  EXPECT_EQ(as_text("plain"), "\"plain\"\n");
  EXPECT_EQ(as_text("a\"b"), "\"a\\\"b\"\n");
  EXPECT_EQ(as_text("c\\d"), "\"c\\\\d\"\n");
  EXPECT_EQ(as_text("e\nf"), "\"e\\u000af\"\n");
  EXPECT_EQ(as_text(std::string_view{"g\0h", 3}), "\"g\\u0000h\"\n");
  EXPECT_EQ(as_text("größe \xF0\x9F\x98\x80"), "\"größe \xF0\x9F\x98\x80\"\n");
  EXPECT_EQ(as_text(""), "\"\"\n");
}

TEST(JsonStream, bytes_that_are_no_utf8_can_be_had_back) {
  EXPECT_EQ(as_text("\xFF\xFE"), "\"\\\\xff\\\\xfe\"\n");
  EXPECT_EQ(as_text("\xC3"), "\"\\\\xc3\"\n");                        // half a character
  EXPECT_EQ(as_text("\xED\xA0\x80"), "\"\\\\xed\\\\xa0\\\\x80\"\n");  // a surrogate
  EXPECT_EQ(as_text("\\x41"), "\"\\\\x5cx41\"\n");                    // what looks like an escape of ours
  EXPECT_EQ(as_text("\\x4"), "\"\\\\x4\"\n");                         // and what does not
}

TEST(JsonStream, every_text_comes_back_byte_by_byte) {
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  const std::string long_one(10'000, 'x');
  for (std::string const& text : {all_bytes, all_bytes + all_bytes, long_one, std::string(3'000, '\xFF'), std::string{R"(\x5c)"},
                                  std::string{R"(\\x5cx5c)"}, std::string{R"(\x\x41\)"}, std::string{R"(C:\xfiles\xAB\new)"}}) {
    const std::string line = as_text(text);
    EXPECT_TRUE(json::accept(line)) << line;
    EXPECT_EQ(dump::unescaped(json::parse(line).get<std::string>()), text);
  }
}

TEST(JsonStream, tall_containers_have_a_line_for_each_value_and_flat_ones_none) {
  const std::string text = written([](JsonStream& stream) {
    stream.begin_object();
    stream.member("a", std::uint64_t{1});
    stream.begin_array("b", Shape::flat);
    stream.value(true);
    stream.value(nullptr);
    stream.end_array();
    stream.begin_array("c");
    stream.end_array();
    stream.begin_array("d");
    stream.begin_object(Shape::flat);
    stream.member_word("e", "f");
    stream.end_object();
    stream.end_array();
    stream.end_object();
  });
  EXPECT_EQ(text, "{\n \"a\":1,\n \"b\":[true,null],\n \"c\":[],\n \"d\":[\n  {\"e\":\"f\"}\n ]\n}\n");
}

TEST(JsonStream, a_small_buffer_changes_nothing_but_the_number_of_writes) {
  const auto write = [](JsonStream& stream) {
    stream.begin_array();
    for (std::uint64_t i = 0; i < 1'000; ++i) stream.value(i * 1'000'003);
    stream.value(std::string_view{std::string(5'000, 'y')});
    stream.end_array();
  };
  EXPECT_EQ(written(write, 1024), written(write, 1 << 20));
}

TEST(JsonStream, the_first_error_stays_and_nothing_more_is_written) {
  const auto write = [](JsonStream& stream) {
    stream.begin_array();
    for (std::uint64_t i = 0; i < 10'000; ++i) stream.value(i);
    stream.end_array();
  };
  std::string buffer(1024, '\0');
  StringSink sink{1500};
  JsonStream stream{sink, buffer};
  write(stream);
  EXPECT_EQ(stream.finish(), ENOSPC);
  EXPECT_EQ(sink.writes, 2U);  // one that was taken, one that was refused
  EXPECT_GT(sink.text.size(), 900U);
  EXPECT_TRUE(written(write).starts_with(sink.text));
}

}  // namespace
}  // namespace headroom::test
