// Pickles of plain values: the bytes of each kind, worked out from the descriptions of the opcodes in Python's pickletools.
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "dump/numbers.hpp"
#include "dump/pickle_stream.hpp"
#include "post_mortems.hpp"
#include "unpickled.hpp"

namespace headroom::test {
namespace {

using namespace std::string_literals;
using dump::PickleStream;

template <class Write>
std::string written(Write const& write, std::size_t buffer_bytes = 64) {
  std::string buffer(buffer_bytes, '\0');
  StringSink sink;
  PickleStream stream{sink, buffer};
  write(stream);
  EXPECT_EQ(stream.finish(), 0);
  EXPECT_EQ(stream.bytes(), sink.text.size());
  return std::move(sink.text);
}

template <class T>
std::string as_pickle(T value) {
  return written([&](PickleStream& stream) { stream.value(value); });
}

TEST(PickleStream, unsigned_numbers_take_as_few_bytes_as_hold_them) {
  EXPECT_EQ(as_pickle(0U), "\x80\x04K\0."s);
  EXPECT_EQ(as_pickle(255U), "\x80\x04K\xff."s);
  EXPECT_EQ(as_pickle(256U), "\x80\x04M\0\x01."s);
  EXPECT_EQ(as_pickle(65'535U), "\x80\x04M\xff\xff."s);
  EXPECT_EQ(as_pickle(65'536U), "\x80\x04J\0\0\x01\0."s);
  EXPECT_EQ(as_pickle(0x7fff'ffffU), "\x80\x04J\xff\xff\xff\x7f."s);
}

TEST(PickleStream, numbers_above_31_bits_show_that_they_are_positive) {
  EXPECT_EQ(as_pickle(std::uint64_t{0x8000'0000}), "\x80\x04\x8a\x05\0\0\0\x80\0."s);
  EXPECT_EQ(as_pickle(std::uint64_t{0x7f'ffff'ffff}), "\x80\x04\x8a\x05\xff\xff\xff\xff\x7f."s);
  EXPECT_EQ(as_pickle(std::uint64_t{0x80'0000'0000}), "\x80\x04\x8a\x06\0\0\0\0\x80\0."s);
  EXPECT_EQ(as_pickle(std::uint64_t{0x7fff'ffff'ffff'ffff}), "\x80\x04\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s);
  EXPECT_EQ(as_pickle(std::uint64_t{1} << 63U), "\x80\x04\x8a\x09\0\0\0\0\0\0\0\x80\0."s);
  EXPECT_EQ(as_pickle(~std::uint64_t{0}), "\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0."s);
}

TEST(PickleStream, negative_numbers_are_in_twos_complement) {
  EXPECT_EQ(as_pickle(-1), "\x80\x04J\xff\xff\xff\xff."s);
  EXPECT_EQ(as_pickle(INT32_MIN), "\x80\x04J\0\0\0\x80."s);
  EXPECT_EQ(as_pickle(std::int64_t{INT32_MIN} - 1), "\x80\x04\x8a\x05\xff\xff\xff\x7f\xff."s);
  EXPECT_EQ(as_pickle(INT64_MIN), "\x80\x04\x8a\x08\0\0\0\0\0\0\0\x80."s);
  EXPECT_EQ(as_pickle(7), "\x80\x04K\x07."s);
}

TEST(PickleStream, the_other_values) {
  EXPECT_EQ(as_pickle(true), "\x80\x04\x88."s);
  EXPECT_EQ(as_pickle(false), "\x80\x04\x89."s);
  EXPECT_EQ(as_pickle(nullptr), "\x80\x04N."s);
  EXPECT_EQ(as_pickle(-0.5), "\x80\x04G\xbf\xe0\0\0\0\0\0\0."s);
  EXPECT_EQ(written([](PickleStream& stream) { stream.pair(0, 300); }), "\x80\x04K\0M\x2c\x01\x86."s);
}

TEST(PickleStream, a_text_is_written_once_and_then_fetched) {
  auto const bytes = written([](PickleStream& stream) {
    stream.begin_list();
    stream.value("addr");
    stream.value("");
    stream.value("addr");
    stream.value(std::string_view{});
    stream.end_list();
  });
  EXPECT_EQ(bytes, "\x80\x04]("s + "\x8c\x04"s + "addr\x94" + "\x8c\0\x94"s + "h\0"s + "h\x01"s + "e.");
}

TEST(PickleStream, the_257th_text_is_fetched_by_a_longer_number) {
  auto const bytes = written([](PickleStream& stream) {
    stream.begin_list();
    for (int i = 0; i < 257; ++i) stream.value(std::to_string(i));
    stream.value("255");
    stream.value("256");
    stream.end_list();
  });
  EXPECT_TRUE(bytes.ends_with("h\xffj\0\x01\0\0e."s));
}

TEST(PickleStream, a_text_of_256_bytes_has_a_longer_length) {
  EXPECT_EQ(as_pickle(std::string_view{std::string(255, 'x')}), "\x80\x04\x8c\xff"s + std::string(255, 'x') + "\x94.");
  std::string const longer(256, 'x');
  EXPECT_EQ(as_pickle(std::string_view{longer}), "\x80\x04X\0\x01\0\0"s + longer + "\x94.");
}

TEST(PickleStream, containers_are_filled_from_a_mark_and_empty_ones_have_none) {
  auto const bytes = written([](PickleStream& stream) {
    stream.begin_dict();
    stream.key("a");
    stream.begin_list();
    stream.end_list();
    stream.key("b");
    stream.begin_dict();
    stream.end_dict();
    stream.member("c", 1U);
    stream.end_dict();
  });
  EXPECT_EQ(bytes, "\x80\x04}("s + "\x8c\x01" + "a\x94]" + "\x8c\x01" + "b\x94}" + "\x8c\x01" + "c\x94K\x01" + "u.");
}

TEST(PickleStream, long_containers_are_filled_a_thousand_values_at_a_time) {
  auto const list_of = [](unsigned count) {
    return written([&](PickleStream& stream) {
      stream.begin_list();
      for (unsigned i = 0; i < count; ++i) stream.value(true);
      stream.end_list();
    });
  };
  std::string const thousand(1000, '\x88');
  EXPECT_EQ(list_of(1000), "\x80\x04](" + thousand + "e.");
  EXPECT_EQ(list_of(1001), "\x80\x04](" + thousand + "e(\x88" + "e.");
  EXPECT_EQ(list_of(3000), "\x80\x04](" + thousand + "e(" + thousand + "e(" + thousand + "e.");

  auto const dict = unpickled(written([](PickleStream& stream) {
    stream.begin_dict();
    for (unsigned i = 0; i < 2500; ++i) stream.member(std::to_string(i), i);
    stream.end_dict();
  }));
  ASSERT_EQ(dict.size(), 2500U);
  for (unsigned i = 0; i < 2500; ++i) EXPECT_EQ(dict[std::to_string(i)], i);
}

TEST(PickleStream, bytes_that_are_no_utf8_can_be_had_back) {
  EXPECT_EQ(unpickled(as_pickle("gr\xc3\xb6\xc3\x9f"
                                "e \xF0\x9F\x98\x80")),
            "gr\xc3\xb6\xc3\x9f"
            "e \xF0\x9F\x98\x80");
  EXPECT_EQ(unpickled(as_pickle("\xFF")), R"(\xff)");
  EXPECT_EQ(unpickled(as_pickle("a\xED\xA0\x80z")), R"(a\xed\xa0\x80z)");  // a surrogate
  EXPECT_EQ(unpickled(as_pickle(R"(\x41)")), R"(\x5cx41)");                // what looks like an escape of ours
  EXPECT_EQ(unpickled(as_pickle(R"(C:\new)")), R"(C:\new)");
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  for (std::string const& text : {all_bytes, all_bytes + all_bytes, std::string(3'000, '\xFF'), R"(\\x5cx5c)"s, "a\0b\nc\"'"s})
    EXPECT_EQ(dump::unescaped(unpickled(as_pickle(std::string_view{text})).get<std::string>()), text);
}

// Beyond the bound a text is written out each time; what is in the memo still comes from there.
TEST(PickleStream, the_memo_is_bounded) {
  auto const bytes = written([](PickleStream& stream) {
    stream.begin_list();
    for (std::size_t i = 0; i < PickleStream::kMostTexts; ++i) stream.value(std::to_string(i));
    stream.value("one more");
    stream.value("one more");
    stream.value("65535");
    stream.end_list();
  });
  EXPECT_TRUE(bytes.ends_with("\x8c\x08one more\x8c\x08one morej\xff\xff\0\0e."s));

  std::string const half(PickleStream::kMostTextBytes / 2 + 1, 'h');
  std::string const other(PickleStream::kMostTextBytes / 2 + 1, 'o');
  auto const large = written([&](PickleStream& stream) {
    stream.begin_list();
    for (std::string const& text : {half, half, other, other}) stream.value(std::string_view{text});
    stream.value("small");
    stream.value("small");
    stream.end_list();
  });
  EXPECT_EQ(unpickled(large), (nlohmann::json{half, half, other, other, "small", "small"}));
  EXPECT_LT(large.size(), 3 * half.size() + 100);
  EXPECT_GT(large.size(), 3 * half.size());
}

TEST(PickleStream, the_buffer_makes_no_difference) {
  auto const write = [](PickleStream& stream) {
    stream.begin_dict();
    for (unsigned i = 0; i < 300; ++i) {
      stream.key("key " + std::to_string(i));
      stream.begin_list();
      stream.value(std::uint64_t{i} << 33U);
      stream.value(std::string(i, 'y'));
      stream.end_list();
    }
    stream.end_dict();
  };
  auto const expected = written(write, std::size_t{1} << 20U);
  for (std::size_t const bytes : {64U, 65U, 127U, 4096U}) EXPECT_EQ(written(write, bytes), expected) << bytes;
}

TEST(PickleStream, after_a_failed_write_nothing_more_is_asked) {
  std::string buffer(64, '\0');
  StringSink sink{100};
  PickleStream stream{sink, buffer};
  stream.begin_list();
  for (unsigned i = 0; i < 1000; ++i) stream.value(i);
  stream.end_list();
  EXPECT_EQ(stream.error(), ENOSPC);
  EXPECT_EQ(stream.finish(), ENOSPC);
  EXPECT_EQ(sink.text.size(), 64U);
  EXPECT_EQ(sink.writes, 2U);
}

}  // namespace
}  // namespace headroom::test
