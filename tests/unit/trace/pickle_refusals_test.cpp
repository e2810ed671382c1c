// What is no pickle of plain values is refused at its byte, in words that name what was there.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

struct Bad {
  std::string name;
  std::string pickle;   // the whole
  std::string message;  // behind "x.pickle: "
  bool by_scan = true;  // false: only values tell
  friend void PrintTo(Bad const& bad, std::ostream* out) { *out << bad.name; }
};

class BadPickle : public testing::TestWithParam<Bad> {};

TEST_P(BadPickle, is_refused_with_byte_value_and_expectation) {
  auto const read = unpickle(GetParam().pickle);
  EXPECT_EQ(read.error, "x.pickle: " + GetParam().message);
  EXPECT_EQ(read.by_scan, GetParam().by_scan);
}

TEST_P(BadPickle, is_refused_in_the_same_words_when_it_comes_in_single_bytes) {
  EXPECT_EQ(unpickle(GetParam().pickle, {}, 1).error, "x.pickle: " + GetParam().message);
}

TEST_P(BadPickle, is_a_parse_error_that_stays) {
  PieceSource first{GetParam().pickle};
  auto const reuse = pickle::scan(first, "x.pickle");
  if (GetParam().by_scan) {
    ASSERT_FALSE(reuse.has_value());
    EXPECT_EQ(reuse.error().kind, ErrorKind::parse);
    EXPECT_EQ(reuse.error().layer, Layer::request);
    return;
  }
  ASSERT_TRUE(reuse.has_value());
  PieceSource second{GetParam().pickle};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  auto const error = machine.advance();
  ASSERT_FALSE(error.has_value());
  EXPECT_EQ(error.error().kind, ErrorKind::parse);
  EXPECT_EQ(machine.advance().error().message, error.error().message);
  EXPECT_EQ(machine.root().type(), pickle::Type::none);
}

std::vector<Bad> executing() {
  auto const plain = "; expected plain dicts, lists, strings and numbers: nothing in a snapshot is executed"s;
  auto const after = [&](std::string name, std::string opcodes, std::string words) {
    return Bad{std::move(name), "\x80\x04NN"s + opcodes, "byte 4: " + words + plain};
  };
  return {
      after("global", "cos\nsystem\n(S'id'\ntR.", "GLOBAL 'os system'"),
      after("global_with_odd_bytes", "co\x1B[2Js\xFF\nx\n.", "GLOBAL 'o\\x1b[2Js\\xff x'"),
      after("global_with_a_long_name", "c" + std::string(500, 'm') + "\nx\n.", "GLOBAL '" + std::string(60, 'm') + "…'"),
      after("global_cut_short", "cos", "GLOBAL 'os'"),
      after("stack_global", "\x93.", "STACK_GLOBAL"),
      after("reduce", "R.", "REDUCE"),
      after("build", "b.", "BUILD"),
      after("inst", "ios\nsystem\n.", "INST 'os system'"),
      after("obj", "o.", "OBJ"),
      after("new_obj", "\x81.", "NEWOBJ"),
      after("new_obj_ex", "\x92.", "NEWOBJ_EX"),
      after("ext1", "\x82\x01.", "EXT1"),
      after("ext2", "\x83\x01\x01.", "EXT2"),
      after("ext4", "\x84\x01\x01\x01\x01.", "EXT4"),
      after("persid", "Pan id\n.", "PERSID 'an id'"),
      after("bin_persid", "Q.", "BINPERSID"),
      after("next_buffer", "\x97.", "NEXT_BUFFER"),
      after("readonly_buffer", "\x98.", "READONLY_BUFFER"),
      after("empty_set", "\x8F.", "EMPTY_SET"),
      after("add_items", "\x90.", "ADDITEMS"),
      after("frozen_set", "\x91.", "FROZENSET"),
  };
}
INSTANTIATE_TEST_SUITE_P(Executing, BadPickle, testing::ValuesIn(executing()), [](auto const& i) { return i.param.name; });

std::vector<Bad> old_ones() {
  std::vector<Bad> all;
  for (auto const& [byte, name] :
       {std::pair{'I', "INT"}, {'L', "LONG"}, {'F', "FLOAT"}, {'S', "STRING"}, {'V', "UNICODE"}, {'g', "GET"}, {'p', "PUT"}}) {
    all.push_back(
        {name, "\x80\x02"s + byte + "1\n.", "byte 2: "s + name + ", an opcode of protocols 0 and 1; expected protocol 2 to 5"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(OldOpcode, BadPickle, testing::ValuesIn(old_ones()), [](auto const& i) { return i.param.name; });

std::vector<Bad> beginnings_and_ends() {
  return {
      {"empty", "", "byte 0: the pickle is empty; expected PROTO (0x80)"},
      {"protocol_0", "(dp0\n.", "byte 0: 0x28; expected PROTO (0x80), which begins a pickle of protocol 2 or above"},
      {"zip_archive", "PK\x03\x04", "byte 0: 0x50; expected PROTO (0x80), which begins a pickle of protocol 2 or above"},
      {"protocol_1", "\x80\x01N.", "byte 0: PROTO 1; expected protocol 2 to 5"},
      {"protocol_6", "\x80\x06N.", "byte 0: PROTO 6; expected protocol 2 to 5"},
      {"protocol_again", "\x80\x04\x80\x04N.", "byte 2: PROTO again; expected it once, at the beginning"},
      {"no_stop", "\x80\x04N", "byte 3: the pickle is cut short at byte 3; expected an opcode, at last STOP"},
      {"no_version", "\x80", "byte 0: PROTO is cut short at byte 1; expected 1 more byte"},
      {"unknown_byte", "\x80\x04\xFF", "byte 2: 0xff; expected an opcode of protocols 2 to 5"},
      {"one_byte_after_stop", "\x80\x04N.x", "byte 4: 1 more byte after the end of the pickle; expected none"},
      {"another_pickle_after_stop", "\x80\x04N.\x80\x04N.", "byte 4: 4 more bytes after the end of the pickle; expected none"},
      {"very_much_after_stop", "\x80\x04N." + std::string(70'000, 'x'),
       "byte 4: more than 65536 more bytes after the end of the pickle; expected none"},
      {"stop_with_nothing", "\x80\x04.", "byte 2: STOP with 0 values on the stack; expected one, the result"},
      {"stop_with_two", "\x80\x04NN.", "byte 4: STOP with 2 values on the stack; expected one, the result"},
      {"stop_with_a_mark", "\x80\x04N(.", "byte 4: STOP with a mark on the stack; expected one value, the result"},
      {"frame_beyond_the_end", "\x80\x04\x95\x05\0\0\0\0\0\0\0N."s,
       "byte 2: FRAME is cut short at byte 13; expected 3 more bytes"},
      {"frame_of_2_to_64", "\x80\x04\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFN."s,
       "byte 2: FRAME is cut short at byte 13; expected 18446744073709551602 more bytes"},
  };
}
INSTANTIATE_TEST_SUITE_P(Ends, BadPickle, testing::ValuesIn(beginnings_and_ends()), [](auto const& i) { return i.param.name; });

std::vector<Bad> stacks() {
  return {
      {"append_to_nothing", "\x80\x04K\x01"s + "a.", "byte 4: APPEND with 1 value on the stack; expected at least 2"},
      {"append_across_a_mark", "\x80\x04](K\x01"s + "a.", "byte 6: APPEND with 1 value above the last mark; expected at least 2"},
      {"append_to_a_text", "\x80\x04\x8C\x01kN"s + "a.", "byte 6: APPEND to a text; expected a list", false},
      {"appends_to_a_dict", "\x80\x04}(NNe.", "byte 6: APPENDS to a dict; expected a list", false},
      {"append_to_a_tuple", "\x80\x04)N"s + "a.", "byte 4: APPEND to a tuple; expected a list", false},
      {"appends_without_mark", "\x80\x04]Ne.", "byte 4: APPENDS without a mark on the stack; expected a MARK before it"},
      {"appends_to_nothing", "\x80\x04(Ne.", "byte 4: APPENDS with nothing below its mark; expected what takes the items"},
      {"tuple_without_mark", "\x80\x04Nt.", "byte 3: TUPLE without a mark on the stack; expected a MARK before it"},
      {"list_without_mark", "\x80\x04Nl.", "byte 3: LIST without a mark on the stack; expected a MARK before it"},
      {"dict_without_mark", "\x80\x04Nd.", "byte 3: DICT without a mark on the stack; expected a MARK before it"},
      {"tuple1_of_nothing", "\x80\x04\x85.", "byte 2: TUPLE1 with 0 values on the stack; expected at least 1"},
      {"tuple2_of_one", "\x80\x04N\x86.", "byte 3: TUPLE2 with 1 value on the stack; expected at least 2"},
      {"tuple3_of_two", "\x80\x04NN\x87.", "byte 4: TUPLE3 with 2 values on the stack; expected at least 3"},
      {"dict_of_three", "\x80\x04(NNNd.", "byte 6: DICT with 3 values above its mark; expected pairs of a key and a value"},
      {"set_items_of_one", "\x80\x04}(Nu.", "byte 5: SETITEMS with 1 value above its mark; expected pairs of a key and a value"},
      {"set_items_to_a_list", "\x80\x04](K\x01Nu.", "byte 7: SETITEMS of a list; expected a dict", false},
      {"set_item_to_none", "\x80\x04NK\x01Ns.", "byte 6: SETITEM of none; expected a dict", false},
      {"set_item_of_two", "\x80\x04}Ns.", "byte 4: SETITEM with 2 values on the stack; expected at least 3"},
      {"pop_of_nothing", "\x80\x04"s + "0.", "byte 2: POP with 0 values on the stack; expected at least 1"},
      {"pop_mark_without_mark", "\x80\x04N1.", "byte 3: POP_MARK without a mark on the stack; expected a MARK before it"},
      {"dup_of_nothing", "\x80\x04N(2.", "byte 4: DUP with 0 values above the last mark; expected at least 1"},
      {"memoize_nothing", "\x80\x04\x94.", "byte 2: MEMOIZE with 0 values on the stack; expected at least 1"},
      {"put_of_nothing", "\x80\x04q\0."s, "byte 2: BINPUT with 0 values on the stack; expected at least 1"},
      {"get_of_nothing", "\x80\x04h\0."s, "byte 2: BINGET of memo entry 0, which was not put; expected one of the 0 that were"},
      {"get_of_a_later_one", "\x80\x04N\x94j\x05\0\0\0."s,
       "byte 4: LONG_BINGET of memo entry 5, which was not put; expected one of the 1 that were"},
      {"put_far_away", "\x80\x04Nr\xFF\xFF\xFF\xFF.",
       "byte 3: LONG_BINPUT of memo entry 4294967295; expected at most 3, the bytes before it"},
      {"put_one_too_far", "\x80\x04Nq\x04.", "byte 3: BINPUT of memo entry 4; expected at most 3, the bytes before it"},
  };
}
INSTANTIATE_TEST_SUITE_P(Stack, BadPickle, testing::ValuesIn(stacks()), [](auto const& i) { return i.param.name; });

std::vector<Bad> keys() {
  auto const expected = " as key; expected a text, an integer, or a tuple of them"s;
  auto const key = [&](std::string name, std::string opcodes, std::string words) {
    auto const at = std::to_string(3 + opcodes.size() + 1);
    return Bad{std::move(name), "\x80\x04}" + opcodes + "Ns.", "byte " + at + ": SETITEM with " + words + expected, false};
  };
  return {
      key("none", "N", "none"),
      key("boolean", "\x88", "a boolean"),
      key("real", "G\x3F\xF8\0\0\0\0\0\0"s, "a real number"),
      key("bytes", "C\x01z", "bytes"),
      key("list", "]", "a list"),
      key("dict", "}", "a dict"),
      key("tuple_with_a_list", "]\x85", "a tuple of other things"),
      key("tuple_in_a_tuple_with_a_real", "K\x01G\x3F\xF8\0\0\0\0\0\0\x85\x86"s, "a tuple of other things"),
      {"second_of_set_items", "\x80\x04}(K\x01NNNu.", "byte 9: SETITEMS with none" + expected, false},
      {"of_dict", "\x80\x04(K\x01N]Nd.", "byte 8: DICT with a list" + expected, false},
  };
}
INSTANTIATE_TEST_SUITE_P(Key, BadPickle, testing::ValuesIn(keys()), [](auto const& i) { return i.param.name; });

}  // namespace
}  // namespace headroom::test
