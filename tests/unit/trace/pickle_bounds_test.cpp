// Whatever a pickle says of sizes, nothing of that size exists before it was read, and nothing grows beyond its bound.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(std::string_view content) { return unpickle(content).error; }

TEST(PickleBounds, a_length_of_2_to_63_is_refused_at_once) {
  for (auto const& [byte, name] : {std::pair{'\x8D', "BINUNICODE8"}, {'\x8E', "BINBYTES8"}, {'\x96', "BYTEARRAY8"}}) {
    EXPECT_EQ(error_of("\x80\x04"s + byte + "\0\0\0\0\0\0\0\x80."s),
              "x.pickle: byte 2: "s + name + " of 9223372036854775808 bytes; expected at most 1048576");
  }
  EXPECT_EQ(error_of("\x80\x04X\xFF\xFF\xFF\xFF"), "x.pickle: byte 2: BINUNICODE of 4294967295 bytes; expected at most 1048576");
  EXPECT_EQ(error_of("\x80\x04T\xFF\xFF\xFF\xFF"), "x.pickle: byte 2: BINSTRING of -1 bytes; expected at most 1048576");
}

TEST(PickleBounds, a_text_of_1_mib_is_read_and_one_byte_more_is_not) {
  auto const text = std::string(1'048'576, 't');
  EXPECT_EQ(unpickle("\x80\x04X\0\0\x10\0"s + text + ".").value, "'" + text + "'");
  EXPECT_EQ(unpickle("\x80\x04X\0\0\x10\0"s + text + ".", {}, 65'536).value.size(), text.size() + 2);
  EXPECT_EQ(error_of("\x80\x04X\x01\0\x10\0"s + text + "t."),
            "x.pickle: byte 2: BINUNICODE of 1048577 bytes; expected at most 1048576");
}

TEST(PickleBounds, a_text_beyond_the_end_says_how_much_is_missing) {
  EXPECT_EQ(error_of("\x80\x04\x8C\x05"s + "ab"),
            "x.pickle: byte 2: SHORT_BINUNICODE is cut short at byte 6; expected 3 more bytes");
  EXPECT_EQ(error_of("\x80\x04\x8D\0\0\x10\0\0\0\0\0"s),
            "x.pickle: byte 2: BINUNICODE8 is cut short at byte 11; expected 1048576 more bytes");
}

TEST(PickleBounds, integers_beyond_64_bits_are_refused_at_their_byte) {
  auto const refused = [](std::string const& opcode, std::string const& words) {
    EXPECT_EQ(error_of("\x80\x04N"s + opcode + "."),
              "x.pickle: byte 3: " + words + " bytes is beyond 64 bits; expected an integer in [-2^63, 2^64)");
  };
  refused("\x8A\x09\0\0\0\0\0\0\0\0\x01"s, "LONG1 of 9");                  // 2^64
  refused("\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\xFF"s, "LONG1 of 9");  // -2^63 - 1
  refused("\x8A\x09\0\0\0\0\0\0\0\0\x80"s, "LONG1 of 9");                  // -2^71
  refused("\x8A\xFF"s + std::string(254, '\0') + '\x01', "LONG1 of 255");
  refused("\x8B\x00\x01\0\0"s + std::string(256, '\0'), "LONG4 of 256");
  refused("\x8B\xFF\xFF\xFF\x7F"s, "LONG4 of 2147483647");
  refused("\x8B\xFF\xFF\xFF\xFF"s, "LONG4 of 4294967295");
}

TEST(PickleBounds, the_stack_holds_2_to_20_values_and_marks) {
  constexpr std::size_t kMost = 1'048'576;
  EXPECT_EQ(unpickle("\x80\x04(" + std::string(kMost - 1, 'N') + "10N.").error,
            "x.pickle: byte 1048579: POP with 0 values on the stack; expected at least 1");
  EXPECT_EQ(error_of("\x80\x04(" + std::string(kMost, 'N')),
            "x.pickle: byte 1048578: NONE beyond 1048576 values and marks on the stack; expected at most as many");
  EXPECT_EQ(error_of("\x80\x04" + std::string(kMost + 1, '(')),
            "x.pickle: byte 1048578: MARK beyond 1048576 values and marks on the stack; expected at most as many");
  EXPECT_EQ(error_of("\x80\x04N\x94" + std::string(kMost - 1, 'N') + "h\0"s),
            "x.pickle: byte 1048579: BINGET beyond 1048576 values and marks on the stack; expected at most as many");
}

TEST(PickleBounds, values_are_nested_64_deep_and_no_deeper) {
  auto const lists = [](std::size_t depth) { return "\x80\x04" + std::string(depth, ']') + std::string(depth - 1, 'a') + "."; };
  EXPECT_EQ(unpickle(lists(64)).value, std::string(64, '[') + std::string(64, ']'));
  // The list that would be the 65th is put into its own only when all below are in place: the last APPEND.
  EXPECT_EQ(error_of(lists(65)), "x.pickle: byte 130: APPEND nests values too deep; expected at most 64 levels");

  auto const tuples = [](std::size_t depth) { return "\x80\x04)" + std::string(depth - 1, '\x85') + "."; };
  EXPECT_EQ(unpickle(tuples(64)).error, "");
  EXPECT_EQ(error_of(tuples(65)), "x.pickle: byte 66: TUPLE1 nests values too deep; expected at most 64 levels");

  std::string dicts = "\x80\x04";
  for (int i = 0; i < 65; ++i) dicts += "}K\x01";
  EXPECT_EQ(error_of(dicts + "N" + std::string(65, 's') + "."),
            "x.pickle: byte 262: SETITEM nests values too deep; expected at most 64 levels");
}

TEST(PickleBounds, a_list_too_deep_to_be_filled_is_refused_before_it_is_asked_about) {
  // A million lists in each other, and one item after another into the innermost: each path would be a million steps.
  std::string content = "\x80\x04";
  for (int i = 0; i < 400'000; ++i) content += "](";
  content += "]NaNa" + std::string(400'000, 'e') + ".";
  EXPECT_EQ(error_of(content), "x.pickle: byte 800004: APPEND nests values too deep; expected at most 64 levels");
}

TEST(PickleBounds, values_that_are_alive_together_are_bounded_and_dropped_ones_are_not) {
  // [text, text, …] of 1000 bytes each.
  std::string content = "\x80\x04](";
  for (int i = 0; i < 100; ++i) content += "X\xE8\x03\0\0"s + std::string(1'000, 't');
  content += "e.";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value());
  Taker taker;
  {
    PieceSource second{content};
    pickle::Machine machine{second, "x.pickle", *reuse, taker};
    machine.set_max_retained_bytes(50'000);
    auto const refused = machine.advance();
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(
        refused.error().message,
        AllOf(StartsWith("x.pickle: byte "),
              HasSubstr(": BINUNICODE when too many values are alive; expected at most 50000 bytes of them at one time")));
    EXPECT_LE(machine.retained_bytes(), 50'000U);
    EXPECT_GT(machine.retained_bytes(), 40'000U);
  }
  std::string dropping = "\x80\x04";
  for (int i = 0; i < 100; ++i) dropping += "X\xE8\x03\0\0"s + std::string(1'000, 't') + "0";
  dropping += "N.";
  PieceSource third{dropping};
  pickle::Machine machine{third, "x.pickle", *reuse, taker};
  machine.set_max_retained_bytes(3'000);
  EXPECT_TRUE(machine.advance().has_value());
  EXPECT_EQ(machine.retained_bytes(), 0U);
}

TEST(PickleBounds, the_memo_keeps_only_what_is_fetched_again) {
  // 1000 texts, each memoised and dropped; the third is fetched at the end.
  std::string content = "\x80\x04";
  for (int i = 0; i < 1'000; ++i) content += "\x8C\x02"s + static_cast<char>('a' + i % 26) + "x\x94" + "0";
  content += "h\x02.";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value());
  EXPECT_EQ(reuse->fetches(1), 0U);
  EXPECT_EQ(reuse->fetches(2), 1U);
  EXPECT_EQ(reuse->fetches(3), 0U);
  PieceSource second{content};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  machine.set_max_retained_bytes(16'384);  // what the memo takes for one entry, and a few texts
  ASSERT_TRUE(machine.advance().has_value());
  EXPECT_EQ(machine.root().text(), "cx");
  EXPECT_EQ(machine.retained_nodes(), 1U);
}

TEST(PickleBounds, memo_entries_out_of_order_are_kept_apart) {
  // Entries 300, 200 and 100, then by MEMOIZE 3; each fetched.
  auto const content = "\x80\x04"s + std::string(300, 'N') + std::string(300, '0') +
                       "(K\x01r\x2C\x01\0\0K\x02q\xC8K\x03qdK\x04\x94"s + "h\x03hdh\xC8j\x2C\x01\0\0t."s;
  EXPECT_EQ(unpickle(content).value, "(1, 2, 3, 4, 4, 3, 2, 1)");
}

TEST(PickleBounds, a_failing_source_is_the_error) {
  auto const io = make_error(ErrorKind::io, Layer::request, "x.pickle: cannot be read: the disk is gone");
  for (auto const* content : {"", "\x80", "\x80\x04", "\x80\x04X\x05", "\x80\x04N."}) {
    PieceSource broken{content, 1, io};
    auto const reuse = pickle::scan(broken, "x.pickle");
    ASSERT_FALSE(reuse.has_value());
    EXPECT_EQ(reuse.error().kind, ErrorKind::io);
    EXPECT_EQ(reuse.error().message, io.message);
  }
}

}  // namespace
}  // namespace headroom::test
