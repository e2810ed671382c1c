// Every opcode of plain values, read from bytes as Python's pickler writes them.
#include <cmath>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

struct Good {
  std::string name;
  std::string pickle;  // without PROTO 4 before it
  std::string value;
  friend void PrintTo(Good const& good, std::ostream* out) { *out << good.name; }
};

class PickleOpcode : public testing::TestWithParam<Good> {};

TEST_P(PickleOpcode, gives_the_value_that_python_wrote) {
  auto const read = unpickle("\x80\x04"s + GetParam().pickle);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.value, GetParam().value);
}

TEST_P(PickleOpcode, gives_the_same_from_single_bytes) {
  EXPECT_EQ(unpickle("\x80\x04"s + GetParam().pickle, {}, 1).value, GetParam().value);
}

std::vector<Good> good_pickles() {
  return {
      {"none", "N."s, "None"},
      {"new_true", "\x88."s, "True"},
      {"new_false", "\x89."s, "False"},
      {"bin_int1", "K\xFF."s, "255"},
      {"bin_int2", "M\x01\x02."s, "513"},
      {"bin_int", "J\x40\x42\x0F\x00."s, "1000000"},
      {"bin_int_negative", "J\xFE\xFF\xFF\xFF."s, "-2"},
      {"bin_int_smallest", "J\x00\x00\x00\x80."s, "-2147483648"},
      {"long1_zero", "\x8A\x00."s, "0"},
      {"long1_minus_one", "\x8A\x01\xFF."s, "-1"},
      {"long1_256", "\x8A\x02\x00\x01."s, "256"},
      {"long1_address", "\x8A\x06\x00\x00\x00\x00\x9C\x7F."s, "140307991625728"},
      {"long1_largest_signed", "\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F."s, "9223372036854775807"},
      {"long1_smallest", "\x8A\x08\x00\x00\x00\x00\x00\x00\x00\x80."s, "-9223372036854775808"},
      {"long1_largest", "\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x00."s, "18446744073709551615"},
      {"long1_with_more_sign_than_needed", "\x8A\x0B\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF."s, "-2"},
      {"long4", "\x8B\x03\x00\x00\x00\x01\x02\x03."s, "197121"},
      {"bin_float", "G\x3F\xF8\x00\x00\x00\x00\x00\x00."s, "1.5"},
      {"bin_float_infinite", "G\xFF\xF0\x00\x00\x00\x00\x00\x00."s, "-inf"},
      {"short_bin_unicode", "\x8C\x03"s + "abc.", "'abc'"},
      {"short_bin_unicode_empty", "\x8C\x00."s, "''"},
      {"bin_unicode", "X\x02\x00\x00\x00\xC3\xA9."s, "'\xC3\xA9'"},
      {"bin_unicode8", "\x8D\x01\x00\x00\x00\x00\x00\x00\x00z."s, "'z'"},
      {"short_bin_string", "U\x02hi."s, "'hi'"},
      {"bin_string", "T\x02\x00\x00\x00hi."s, "'hi'"},
      {"short_bin_bytes", "C\x02hi."s, "b'hi'"},
      {"bin_bytes", "B\x02\x00\x00\x00hi."s, "b'hi'"},
      {"bin_bytes8", "\x8E\x02\x00\x00\x00\x00\x00\x00\x00hi."s, "b'hi'"},
      {"byte_array8", "\x96\x02\x00\x00\x00\x00\x00\x00\x00hi."s, "b'hi'"},
      {"empty_list", "]."s, "[]"},
      {"append", "]K\x01"s + "a.", "[1]"},
      {"appends", "](K\x01K\x02K\x03"s + "e.", "[1, 2, 3]"},
      {"appends_of_nothing", "](e."s, "[]"},
      {"appends_twice", "](K\x01K\x02"s + "e(K\x03K\x04" + "eK\x05" + "a.", "[1, 2, 3, 4, 5]"},
      {"list", "(K\x01K\x02l."s, "[1, 2]"},
      {"list_and_append", "(K\x01K\x02lK\x03"s + "a.", "[1, 2, 3]"},
      {"empty_tuple", ")."s, "()"},
      {"tuple", "(K\x01K\x02K\x03K\x04t."s, "(1, 2, 3, 4)"},
      {"tuple1", "K\x01\x85."s, "(1,)"},
      {"tuple2", "K\x01K\x02\x86."s, "(1, 2)"},
      {"tuple3", "K\x01K\x02K\x03\x87."s, "(1, 2, 3)"},
      {"empty_dict", "}."s, "{}"},
      {"set_item", "}\x8C\x01kK\x01s."s, "{'k': 1}"},
      {"set_items", "}(\x8C\x01kK\x01\x8C\x01mK\x02u."s, "{'k': 1, 'm': 2}"},
      {"dict", "(\x8C\x01kK\x01"s + "d.", "{'k': 1}"},
      {"keys_of_all_kinds", "}(K\x01NM\x00\x01NJ\xFF\xFF\xFF\xFFN\x8C\x01kNK\x01\x8C\x01k\x86N)N"s + "u.",
       "{1: None, 256: None, -1: None, 'k': None, (1, 'k'): None, (): None}"},
      {"pop", "K\x01K\x02"s + "0.", "1"},
      {"pop_of_a_mark", "K\x01(0."s, "1"},
      {"pop_mark", "K\x01(K\x02K\x03"s + "1.", "1"},
      {"dup", "]K\x01"s + "a2\x86.", "([1], [1])"},
      {"bin_put_and_get", "(\x8C\x01kq\x00h\x00t."s, "('k', 'k')"},
      {"long_bin_put_and_get", "(\x8C\x01kr\x01\x00\x00\x00j\x01\x00\x00\x00t."s, "('k', 'k')"},
      {"memoize", "(\x8C\x01k\x94K\x07\x94h\x01h\x00t."s, "('k', 7, 7, 'k')"},
      {"memoize_counts_what_was_put", "(\x8C\x01kq\x00\x8C\x01mq\x05\x94h\x02h\x05h\x00t."s, "('k', 'm', 'm', 'm', 'k')"},
      {"an_entry_put_twice_is_the_later", "(K\x01q\x00K\x02q\x00h\x00t."s, "(1, 2, 2)"},
      {"an_entry_of_what_was_dropped", "(]\x94"s + "0h\0K\x02t."s, "([], 2)"},
      {"frame", "\x95\x02\x00\x00\x00\x00\x00\x00\x00N."s, "None"},
      {"frame_that_ends_early", "\x95\x00\x00\x00\x00\x00\x00\x00\x00N."s, "None"},
      {"nested", "}\x94(\x8C\x01"s + "a\x94]\x94(}\x94\x8C\x01" + "b\x94K\x01s]\x94K\x02" + "ae\x8C\x01" + "c\x94h\x02u.",
       "{'a': [{'b': 1}, [2]], 'c': [{'b': 1}, [2]]}"},
  };
}

INSTANTIATE_TEST_SUITE_P(, PickleOpcode, testing::ValuesIn(good_pickles()), [](auto const& i) { return i.param.name; });

/// The root of a good pickle, which outlives its machine.
pickle::Value root_of(std::string_view content) {
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  EXPECT_TRUE(reuse.has_value()) << reuse.error().message;
  PieceSource second{content};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  EXPECT_FALSE(machine.advance().value());
  EXPECT_EQ(machine.offset(), content.size());
  return machine.root();
}

TEST(PickleValue, protocols_2_3_and_5_are_read_too) {
  EXPECT_EQ(unpickle("\x80\x02K\x05."sv).value, "5");
  EXPECT_EQ(unpickle("\x80\x03K\x05."sv).value, "5");
  EXPECT_EQ(unpickle("\x80\x05K\x05."sv).value, "5");
}

TEST(PickleValue, integers_say_in_which_type_they_fit) {
  auto const root = root_of("\x80\x02(\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x00K\x07\x8A\x01\xFFt."sv);
  auto const items = root.items();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].unsigned_value(), 18446744073709551615U);
  EXPECT_EQ(items[0].signed_value(), std::nullopt);
  EXPECT_EQ(items[1].unsigned_value(), 7U);
  EXPECT_EQ(items[1].signed_value(), 7);
  EXPECT_EQ(items[2].unsigned_value(), std::nullopt);
  EXPECT_EQ(items[2].signed_value(), -1);
  EXPECT_TRUE(items[0].is_unsigned());
  EXPECT_FALSE(items[2].is_unsigned());
}

TEST(PickleValue, an_accessor_of_another_type_gives_nothing) {
  pickle::Value const none;
  EXPECT_EQ(none.unsigned_value(), std::nullopt);
  EXPECT_EQ(none.text(), "");
  EXPECT_TRUE(none.items().empty() && none.entries().empty());
  EXPECT_EQ(none.find("k"), nullptr);
  EXPECT_EQ(none.identity(), nullptr);
  none.set_note(5);
  EXPECT_EQ(none.note(), 0U);
  auto const root = root_of("\x80\x02\x88."sv);
  EXPECT_EQ(root.unsigned_value(), std::nullopt);
  EXPECT_EQ(root.real(), 0);
}

TEST(PickleValue, the_last_of_equal_keys_is_found) {
  auto const root = root_of("\x80\x04}(\x8C\x01kK\x01\x8C\x02klK\x02\x8C\x01kK\x03u."sv);
  EXPECT_EQ(root.entries().size(), 3U);
  ASSERT_NE(root.find("k"), nullptr);
  EXPECT_EQ(root.find("k")->unsigned_value(), 3U);
  EXPECT_EQ(root.find("kl")->unsigned_value(), 2U);
  EXPECT_EQ(root.find("m"), nullptr);
  EXPECT_EQ(root.find(""), nullptr);
}

TEST(PickleValue, references_to_one_node_share_it_and_its_note) {
  // [a, [a]] with the same text; and another text with the same letters.
  auto const root = root_of(
      "\x80\x04](\x8C\x01k\x94]h\x00"
      "a\x8C\x01ke."sv);
  auto const items = root.items();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].identity(), items[1].items()[0].identity());
  EXPECT_NE(items[0].identity(), items[2].identity());
  EXPECT_EQ(items[0].note(), 0U);
  items[0].set_note(77);
  EXPECT_EQ(items[1].items()[0].note(), 77U);
  EXPECT_EQ(items[2].note(), 0U);
}

TEST(PickleValue, knows_the_byte_where_it_began) {
  //                              0   1   2 3 4       7  9
  auto const root = root_of("\x80\x04}(\x8C\x01kK\x01\x8C\x01m\x8C\x01nu."sv);
  EXPECT_EQ(root.offset(), 2U);
  EXPECT_EQ(root.entries()[0].key.offset(), 4U);
  EXPECT_EQ(root.entries()[0].value.offset(), 7U);
  EXPECT_EQ(root.entries()[1].key.offset(), 9U);
  EXPECT_EQ(root.entries()[1].value.offset(), 12U);
}

TEST(PickleValue, a_copy_outlives_what_it_was_copied_from) {
  pickle::Value kept;
  {
    auto const root = root_of(
        "\x80\x04](]K\x05"
        "a\x8C\x03xyze."sv);
    kept = root.items()[0];
    auto copy = kept;
    auto moved = std::move(copy);
    auto const& same = moved;
    moved = same;
    EXPECT_EQ(moved.identity(), kept.identity());
  }
  EXPECT_EQ(python(kept), "[5]");
}

TEST(PickleValue, a_text_keeps_bytes_that_are_no_utf8) {
  EXPECT_EQ(root_of("\x80\x04\x8C\x03\xFF\x00z."sv).text(), "\xFF\x00z"sv);
}

}  // namespace
}  // namespace headroom::test
