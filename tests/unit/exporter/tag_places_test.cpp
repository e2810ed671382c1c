// What finds no place among the series of a process is summed up, and nothing is lost.
#include "tag_places.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

using flight::LedgerSnapshot;
using flight::TagSnapshot;

LedgerSnapshot ledger(std::uint64_t created, std::vector<TagSnapshot> tags) {
  LedgerSnapshot ledger;
  ledger.created_ticks = created;
  ledger.tags = std::move(tags);
  return ledger;
}

TagSnapshot tag(std::uint32_t id, std::string name, std::uint64_t bytes) {
  return {.id = id, .name = std::move(name), .bytes = bytes, .at_peak_bytes = 2 * bytes, .allocations = 1};
}

std::vector<std::string> names(LedgerSnapshot const& ledger) {
  std::vector<std::string> list;
  for (auto const& one : ledger.tags) list.push_back(one.name + '=' + std::to_string(one.bytes));
  return list;
}

TEST(TagPlaces, as_many_as_there_are_places_stay_as_they_are) {
  std::vector ledgers{ledger(1, {tag(9, "b", 2), tag(3, "a", 1)}), ledger(2, {tag(5, "c", 4)})};
  keep_to_tag_places(ledgers, 3);
  EXPECT_THAT(names(ledgers[0]), testing::ElementsAre("b=2", "a=1"));
  EXPECT_THAT(names(ledgers[1]), testing::ElementsAre("c=4"));
}

TEST(TagPlaces, managers_that_were_made_first_have_theirs_and_the_rest_is_summed) {
  std::vector ledgers{ledger(20, {tag(1, "late", 1), tag(2, "later", 2)}),
                      ledger(10, {tag(7, "c", 64), tag(5, "a", 16), tag(6, "b", 32), tag(4, "other", 8)})};
  keep_to_tag_places(ledgers, 2);
  EXPECT_THAT(names(ledgers[1]), testing::ElementsAre("a=16", "b=32", "other=72")) << "by their place in the directory";
  EXPECT_EQ(ledgers[1].tags.back().at_peak_bytes, 144U);
  EXPECT_EQ(ledgers[1].tags.back().allocations, 2U);
  EXPECT_THAT(names(ledgers[0]), testing::ElementsAre("other=3"));
}

TEST(TagPlaces, what_is_called_other_takes_no_place) {
  std::vector ledgers{ledger(1, {tag(1, "other", 1), tag(2, "a", 2)}), ledger(2, {tag(3, "b", 4), tag(4, "other", 8)})};
  keep_to_tag_places(ledgers, 2);
  EXPECT_THAT(names(ledgers[0]), testing::ElementsAre("a=2", "other=1"));
  EXPECT_THAT(names(ledgers[1]), testing::ElementsAre("b=4", "other=8"));
}

}  // namespace
}  // namespace headroom::exporter
