// A memo entry is kept from its put to its last fetch, and no longer.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickle_bytes.hpp"
#include "pickles.hpp"

namespace headroom::test {
namespace {

using pickled::again;
using pickled::Opcodes;
using pickled::remembered;
using testing::HasSubstr;

/// The second pass's error, "" where there is none, when no more than `most` bytes may be alive at one time.
std::string error_within(std::uint64_t most, std::string_view content) {
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  if (!reuse) return "the first pass: " + reuse.error().message;
  PieceSource second{content};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  machine.set_max_retained_bytes(most);
  auto const more = machine.advance();
  if (!more) return more.error().message;
  EXPECT_LE(machine.retained_nodes(), 1U) << "the root";
  return "";
}

Opcodes repeated(std::size_t times, Opcodes const& opcodes) {
  Opcodes all;
  for (std::size_t i = 0; i < times; ++i) all += opcodes;
  return all;
}

Opcodes drop(Opcodes const& value) { return value + "0"; }

/// 1000 bytes.
Opcodes long_text() { return pickled::text(std::string(1'000, 't')); }

TEST(PickleMemo, lists_that_are_each_fetched_once_are_not_all_kept) {
  Opcodes lists;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    lists += drop(remembered(pickled::list({pickled::integer(i), pickled::none()}), i)) + drop(again(i));
  }
  EXPECT_EQ(error_within(4'096, pickled::pickle(lists + "N")), "");
}

TEST(PickleMemo, an_entry_is_kept_up_to_its_last_fetch) {
  // Ten of 1000 bytes that are all fetched at the end are alive together.
  Opcodes texts;
  for (std::uint32_t i = 0; i < 10; ++i) texts += drop(remembered(long_text(), i));
  for (std::uint32_t i = 0; i < 10; ++i) texts += drop(again(i));
  auto const content = pickled::pickle(texts + "N");
  EXPECT_THAT(error_within(9'000, content),
              HasSubstr(": BINUNICODE when too many values are alive; expected at most 9000 bytes"));
  EXPECT_EQ(error_within(12'500, content), "");
}

TEST(PickleMemo, an_entry_is_fetched_300_times) {
  EXPECT_EQ(unpickle(pickled::pickle("(" + remembered(pickled::text("a"), 0) + repeated(300, again(0)) + "t")).value,
            "('a'" + repeated(300, ", 'a'") + ")");
}

TEST(PickleMemo, fetches_are_counted_up_to_254_and_more_keep_an_entry_to_the_end) {
  auto const entries = [](std::size_t fetches) {
    Opcodes opcodes;
    for (std::uint32_t i = 0; i < 10; ++i) opcodes += drop(remembered(long_text(), i)) + repeated(fetches, drop(again(i)));
    return pickled::pickle(opcodes + "N");
  };
  EXPECT_EQ(error_within(4'096, entries(2)), "");
  EXPECT_EQ(error_within(4'096, entries(254)), "");
  EXPECT_THAT(error_within(4'096, entries(255)), HasSubstr("when too many values are alive"));
  EXPECT_EQ(error_within(12'500, entries(255)), "");
}

TEST(PickleMemo, an_entry_that_is_put_again_is_the_new_one) {
  auto const put = [](std::string_view text) { return remembered(pickled::text(text), 7); };
  auto const before = repeated(10, "N0");  // a number is no higher than the bytes before it
  EXPECT_EQ(unpickle(pickled::pickle(before + "(" + put("a") + again(7) + put("b") + again(7) + again(7) + "t")).value,
            "('a', 'a', 'b', 'b', 'b')");
  EXPECT_EQ(unpickle(pickled::pickle(before + "(" + put("a") + put("b") + again(7) + put("c") + "t")).value,
            "('a', 'b', 'b', 'c')");
  // By DUP one value lies twice on the stack and once in the memo.
  EXPECT_EQ(unpickle(pickled::pickle(before + "(" + put("a") + "2" + put("b") + again(7) + "t")).value, "('a', 'a', 'b', 'b')");
}

TEST(PickleMemo, what_is_put_again_takes_the_place_of_what_was_there) {
  auto const put = drop(remembered(long_text(), 0));
  EXPECT_EQ(error_within(4'096, pickled::pickle(repeated(100, put) + again(0))), "") << "fetched at the end";
  EXPECT_EQ(error_within(4'096, pickled::pickle(repeated(100, put + drop(again(0))) + "N")), "") << "fetched each time";
  auto const fetched_once = [](std::uint32_t entry) {
    return drop(remembered(pickled::none(), entry)) + drop(again(entry)) + drop(remembered(long_text(), entry));
  };
  Opcodes never_again;
  for (std::uint32_t i = 0; i < 100; ++i) never_again += fetched_once(i);
  EXPECT_EQ(error_within(4'096, pickled::pickle(never_again + "N")), "") << "put after the last fetch";
}

TEST(PickleMemo, entries_far_from_each_other_are_found_and_let_go) {
  // Numbers around the borders of the memo's tables.
  std::vector<std::uint32_t> const numbers{0, 15, 16, 1'023, 1'024, 1'039, 32'767, 32'768, 65'535, 65'536};
  auto content = repeated(65'536, "N0") + "(";
  std::string expected;
  for (auto const number : numbers) content += remembered(pickled::integer(number), number);
  for (auto const number : numbers) content += again(number) + (number % 2 == 0 ? again(number) : "");
  for (auto const number : numbers) expected += (expected.empty() ? "(" : ", ") + std::to_string(number);
  for (auto const number : numbers) {
    expected += ", " + std::to_string(number);
    if (number % 2 == 0) expected += ", " + std::to_string(number);
  }
  EXPECT_EQ(unpickle(pickled::pickle(content + "t")).value, expected + ")");
}

TEST(PickleMemo, a_fetch_that_the_first_reading_did_not_see_is_refused) {
  auto const scanned = pickled::pickle("(" + remembered(pickled::text("a"), 0) + again(0) + "t");
  auto const read = pickled::pickle("(" + remembered(pickled::text("a"), 0) + again(0) + again(0) + "t");
  PieceSource first{scanned};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value());
  PieceSource second{read};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  auto const more = machine.advance();
  ASSERT_FALSE(more.has_value());
  // PROTO, MARK, BINUNICODE of one byte, LONG_BINPUT, LONG_BINGET.
  EXPECT_EQ(more.error().message,
            "x.pickle: byte 19: LONG_BINGET that the first reading did not see; expected the same bytes again");
}

TEST(PickleMemo, an_entry_that_was_not_put_is_refused_by_both_readings_alike) {
  auto const content = pickled::pickle("(" + remembered(pickled::text("a"), 0) + again(0) + again(1) + "t");
  auto const* const words = "x.pickle: byte 19: LONG_BINGET of memo entry 1, which was not put; expected one of the 1 that were";
  auto const refused = unpickle(content);
  EXPECT_TRUE(refused.by_scan);
  EXPECT_EQ(refused.error, words);
  pickle::Reuse reuse;
  reuse.add_fetch(0);
  PieceSource source{content};
  Taker taker;
  pickle::Machine machine{source, "x.pickle", reuse, taker};
  EXPECT_EQ(machine.advance().error().message, words);
}

TEST(PickleMemo, counts_without_room_are_many) {
  pickle::Reuse reuse{256};  // for one page
  for (int i = 0; i < 3; ++i) reuse.add_fetch(255);
  for (int i = 0; i < 2; ++i) reuse.add_fetch(256);
  reuse.add_fetch(257);
  for (int i = 0; i < 2; ++i) reuse.add_fetch(0);
  EXPECT_EQ(reuse.fetches(0), 2U);
  EXPECT_EQ(reuse.fetches(1), 0U);
  EXPECT_EQ(reuse.fetches(255), 3U);
  EXPECT_EQ(reuse.fetches(256), pickle::FetchCounts::kMany) << "twice, beyond the page";
  EXPECT_EQ(reuse.fetches(257), 1U) << "once needs no room";
  EXPECT_EQ(reuse.fetches(100'000), 0U);
  for (int i = 0; i < 300; ++i) reuse.add_fetch(7);
  EXPECT_EQ(reuse.fetches(7), pickle::FetchCounts::kMany);
}

}  // namespace
}  // namespace headroom::test
