// Items of long lists are handed out as they come, under the path where they will stand, and are not kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// "\x80\x04" and a dict with text keys; every piece is a whole value.
std::string dict_of(std::vector<std::pair<std::string, std::string>> const& entries) {
  std::string content = "\x80\x04}(";
  for (auto const& [key, value] : entries) content += "\x8C"s + static_cast<char>(key.size()) + key + value;
  return content + "u.";
}

TEST(PickleItems, have_the_path_where_they_will_stand) {
  auto const content = dict_of({{"segments", "](K\x07K\x08"s + "e"}, {"device_traces", "](](K\x01K\x02"s + "e](K\x03" + "ee"}});
  auto const read = unpickle(content, {"/device_traces/0", "/device_traces/1"});
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.items, ElementsAre("/device_traces/0/0 = 1", "/device_traces/0/1 = 2", "/device_traces/1/0 = 3"));
  EXPECT_EQ(read.value, "{'segments': [7, 8], 'device_traces': [<2 taken>, <1 taken>]}");
  EXPECT_THAT(read.asked, ElementsAre("/segments", "/device_traces/0", "/device_traces/1", "/device_traces"));
}

TEST(PickleItems, are_asked_about_once_for_each_list_and_not_for_empty_ones) {
  auto const content = dict_of({{"a", "]"}, {"b", "](e"}, {"c", "](K\x01K\x02"s + "e(K\x03" + "eK\x04" + "a"}});
  auto const read = unpickle(content, {"/c"});
  EXPECT_THAT(read.asked, ElementsAre("/c"));
  EXPECT_THAT(read.items, ElementsAre("/c/0 = 1", "/c/1 = 2", "/c/2 = 3", "/c/3 = 4"));
  EXPECT_EQ(read.value, "{'a': [], 'b': [], 'c': <4 taken>}");
}

TEST(PickleItems, of_the_root) {
  EXPECT_THAT(unpickle("\x80\x04](K\x01K\x02"s + "e.", {""}).items, ElementsAre("/0 = 1", "/1 = 2"));
}

TEST(PickleItems, one_device_and_one_entry_are_appended_singly) {
  // {'k': [[{'a': 5}]]}: the stack is dict, mark, key, list, list, dict, key, value before the first of them is put away.
  auto const content = dict_of({{"k", "]]}\x8C\x01"s + "aK\x05s" + "aa"}});
  auto const read = unpickle(content, {"/k/0"});
  EXPECT_THAT(read.items, ElementsAre("/k/0/0 = {'a': 5}"));
  EXPECT_EQ(read.value, "{'k': [<1 taken>]}");
}

TEST(PickleItems, lists_side_by_side_and_in_each_other_are_told_apart) {
  // [[], [1]] and [[[1]]] look the same when the 1 comes: only what follows differs.
  auto const side_by_side = "\x80\x04(0](]]K\x01"s + "ae.";
  auto const inside = "\x80\x04]]]K\x01"s + "aaa.";
  auto const inside_of_a_batch = "\x80\x04](]]K\x01"s + "aae.";
  EXPECT_THAT(unpickle(side_by_side, {"/1"}).items, ElementsAre("/1/0 = 1"));
  EXPECT_THAT(unpickle(inside, {"/0/0"}).items, ElementsAre("/0/0/0 = 1"));
  EXPECT_THAT(unpickle(inside_of_a_batch, {"/0/0"}).items, ElementsAre("/0/0/0 = 1"));
  EXPECT_THAT(unpickle(inside_of_a_batch, {"/1"}).items, IsEmpty());
}

TEST(PickleItems, a_dict_before_them_is_told_from_one_around_them) {
  // {'s': {}, 'a': [1]} and {'s': {'a': [1]}}.
  auto const beside = "\x80\x04}(\x8C\x01s}\x8C\x01"s + "a]K\x01" + "au.";
  auto const around = "\x80\x04}(\x8C\x01s}\x8C\x01"s + "a]K\x01" + "asu.";
  EXPECT_THAT(unpickle(beside, {"/a"}).items, ElementsAre("/a/0 = 1"));
  EXPECT_EQ(unpickle(beside).value, "{'s': {}, 'a': [1]}");
  EXPECT_THAT(unpickle(around, {"/s/a"}).items, ElementsAre("/s/a/0 = 1"));
  EXPECT_THAT(unpickle(around, {"/a"}).items, IsEmpty());
}

TEST(PickleItems, a_later_batch_goes_on_counting) {
  // [[…1 and 2], [3]]: the second list is item 1 of a list that has one already.
  auto const read = unpickle("\x80\x04](](K\x01K\x02"s + "ee](K\x03K\x04" + "ea.", {"/1"});
  EXPECT_THAT(read.items, ElementsAre("/1/0 = 3", "/1/1 = 4"));
  EXPECT_EQ(read.value, "[[1, 2], <2 taken>]");
}

TEST(PickleItems, of_lists_without_a_place_are_kept_and_nobody_is_asked) {
  EXPECT_THAT(unpickle("\x80\x04]K\x01"s + "a\x85.", {""}).asked, IsEmpty());               // in a tuple
  EXPECT_THAT(unpickle("\x80\x04]]K\x01"s + "a\x85" + "a.", {""}).asked, ElementsAre(""));  // … in a list, which has one
  EXPECT_THAT(unpickle("\x80\x04N]K\x01"s + "a0.", {""}).asked, IsEmpty());                 // dropped
  EXPECT_THAT(unpickle("\x80\x04]\x94K\x01"s + "a0h\0."s, {""}).asked, IsEmpty());          // dropped and fetched
  EXPECT_THAT(unpickle("\x80\x04(K\x01lK\x02"s + "a.", {""}).asked, IsEmpty());             // made with items in it
  EXPECT_EQ(unpickle("\x80\x04(K\x01lK\x02"s + "a.", {""}).value, "[1, 2]");
  EXPECT_THAT(unpickle("\x80\x04(lK\x02"s + "a.", {""}).items, ElementsAre("/0 = 2"));  // … with none
}

TEST(PickleItems, a_taken_list_stands_in_one_place) {
  auto const refusal = " of a list whose items were handed out one by one; expected it in one place only"s;
  EXPECT_EQ(unpickle(dict_of({{"a", "]\x94K\x01"s + "a"}, {"b", "h\0"s}}), {"/a"}).error, "x.pickle: byte 15: BINGET" + refusal);
  EXPECT_EQ(unpickle("\x80\x04]\x94K\x01"s + "ah\0\x86."s, {""}).value, "([1], [1])") << "in a tuple, hence not taken";
  EXPECT_EQ(unpickle(dict_of({{"a", "]\x94K\x01"s + "a"}, {"b", "h\0"s}})).value, "{'a': [1], 'b': [1]}") << "kept";
  EXPECT_EQ(unpickle(dict_of({{"a", "]\x94"}, {"b", "h\0"s}}), {"/a"}).value, "{'a': [], 'b': []}") << "without items";
  // Within one of its own items.
  EXPECT_EQ(unpickle("\x80\x04]\x94K\x01"s + "ah\0"s + "a.", {""}).error, "x.pickle: byte 7: BINGET" + refusal);
}

TEST(PickleItems, deep_ones_are_refused_though_they_are_not_kept) {
  std::string content = "\x80\x04]" + std::string(64, ']') + std::string(64, 'a') + ".";
  EXPECT_EQ(unpickle(content, {""}).error, "x.pickle: byte 130: APPEND nests values too deep; expected at most 64 levels");
}

TEST(PickleMachine, stops_after_each_opcode_that_delivered) {
  // [1, 2, 3] by APPEND, then 1000 by APPENDS, then two more.
  std::string content = "\x80\x04]K\x01"s + "aK\x02" + "aK\x03" + "a(";
  for (int i = 0; i < 1'000; ++i) content += "N";
  content += "e(NNe.";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value());
  PieceSource second{content};
  Taker taker{{""}};
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  std::vector<std::size_t> counts;
  std::vector<std::uint64_t> offsets;
  while (machine.advance().value()) {
    counts.push_back(taker.items.size());
    offsets.push_back(machine.offset());
    EXPECT_EQ(machine.root().type(), pickle::Type::none) << "not over";
  }
  EXPECT_THAT(counts, ElementsAre(1U, 2U, 3U, 1'003U, 1'005U));
  EXPECT_THAT(offsets, ElementsAre(6U, 9U, 12U, 1'014U, 1'018U));
  EXPECT_FALSE(machine.advance().value()) << "the answer stays";
  EXPECT_EQ(machine.root().taken_items(), 1'005U);
}

TEST(PickleMachine, forgets_what_it_delivered) {
  // 50 batches of 10 dicts, each with a text of 100 bytes; one frame that all share.
  std::string content = "\x80\x04](]\x94K\x01" + "ae"s;  // entry 0 of the memo is fetched again below
  for (int batch = 0; batch < 50; ++batch) {
    content += "(";
    for (int i = 0; i < 10; ++i) content += "}(K\x01X\x64\0\0\0"s + std::string(100, 't') + "K\x02h\0u"s;
    content += "e";
  }
  content += ".";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value()) << reuse.error().message;
  PieceSource second{content};
  Taker taker{{""}};
  std::vector<void const*> frames;
  std::vector<pickle::Value> kept;
  taker.on_item = [&](pickle::Value const& value) {
    if (!value.entries().empty()) frames.push_back(value.entries()[1].value.identity());
    if (taker.items.size() == 7) kept.push_back(value);
    return success();
  };
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  ASSERT_TRUE(machine.advance().value());
  auto const nodes = machine.retained_nodes();
  EXPECT_EQ(nodes, 2U) << "the taken list and the frame";
  while (machine.advance().value()) {
    EXPECT_EQ(machine.retained_nodes(), nodes + 2) << "… and the dict that was kept, with its text";
  }
  EXPECT_EQ(frames.size(), 500U);
  EXPECT_EQ(std::ranges::count(frames, frames.front()), 500) << "memo entries keep their identity across batches";
  kept.clear();
  EXPECT_EQ(machine.retained_nodes(), 1U) << "at the end the memo is given up";
  EXPECT_LT(machine.retained_bytes(), 200U);
}

TEST(PickleMachine, an_error_of_the_visitor_ends_it) {
  auto const content = "\x80\x04](K\x01K\x02K\x03"s + "e.";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  PieceSource second{content};
  Taker taker{{""}};
  taker.on_item = [](pickle::Value const& value) -> Result<void> {
    if (value.unsigned_value() == 2U) return fail(ErrorKind::overflow, Layer::request, "two is too much");
    return success();
  };
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  auto const error = machine.advance();
  ASSERT_FALSE(error.has_value());
  EXPECT_EQ(error.error().kind, ErrorKind::overflow);
  EXPECT_EQ(machine.advance().error().message, "two is too much");
  EXPECT_EQ(taker.items.size(), 2U);
}

TEST(PickleMachine, values_outlive_it) {
  auto const content = "\x80\x04](}K\x01\x8C\x03xyzse."sv;
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  PieceSource second{content};
  Taker taker{{""}};
  std::vector<pickle::Value> kept;
  taker.on_item = [&](pickle::Value const& value) {
    kept.push_back(value);
    return success();
  };
  {
    pickle::Machine machine{second, "x.pickle", *reuse, taker};
    while (machine.advance().value()) {
    }
    auto moved = std::move(machine);
    EXPECT_EQ(moved.root().taken_items(), 1U);
  }
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(python(kept[0]), "{1: 'xyz'}");
}

TEST(PickleMachine, notices_another_pickle_than_the_scanned_one) {
  PieceSource first{"\x80\x04N."};
  auto const reuse = pickle::scan(first, "x.pickle");
  for (auto const& other : {"\x80\x04]\x94h\x00\x86."s, "\x80\x04]]"s + "a."}) {
    PieceSource second{other};
    Taker taker;
    pickle::Machine machine{second, "x.pickle", *reuse, taker};
    auto const error = machine.advance();
    ASSERT_FALSE(error.has_value());
    EXPECT_EQ(error.error().message, "x.pickle: byte 4: "s + (other.size() == 8 ? "BINGET" : "APPEND") +
                                         " that the first reading did not see; expected the same bytes again");
  }
}

}  // namespace
}  // namespace headroom::test
