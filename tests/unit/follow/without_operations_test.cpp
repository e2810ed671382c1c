// A model that keeps the books, the journal and failures, and no operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

using flight::EventKind;

constexpr std::uint32_t kTag = 5;

TEST(FollowWithoutOperations, the_present_comes_from_the_books_and_the_past_is_not_recorded) {
  auto const script = std::make_shared<Script>();
  script->name(kTag, "cache");
  script->book().limit = 1000;
  script->allocate(100, 0x1000, 300, kTag);
  script->record = false;  // a gap, which nobody looks into
  script->allocate(150, 0x2000, 200, kTag);
  script->record = true;
  auto refusal = script->event(EventKind::refusal, 160, kTag);
  refusal.words[2] = 900;
  script->put(refusal);
  script->free(200, 0x1000, 300, kTag);
  script->book().tags = {{.id = kTag, .name = "cache", .bytes = 200, .at_peak_bytes = 500, .allocations = 2}};
  auto model = model_of(script, {.operations = false});
  ASSERT_TRUE(model.catch_up());

  auto const now = model.state_at(0, 200);
  EXPECT_EQ(now.known, Known::exact);
  EXPECT_EQ(now.name, "ledger 0");
  EXPECT_EQ(now.allocated, 200U);
  EXPECT_EQ(now.limit, 1000U);
  EXPECT_EQ(now.peak, 500U);
  ASSERT_EQ(now.tags.size(), 1U);
  EXPECT_EQ(now.tags[0].bytes, 200U);
  EXPECT_EQ(now.unattributed_bytes, 0U);
  EXPECT_EQ(model.state_at(0, 150).known, Known::not_recorded);
  EXPECT_EQ(model.peak(0).bytes, 500U);
  EXPECT_TRUE(model.peak(0).from_books);
  EXPECT_TRUE(model.live_at(0, 200).empty());
  std::size_t operations = 0;
  model.for_each_operation(0, 0, 1000, [&](Operation const&) { return ++operations != 0; });
  EXPECT_EQ(operations, 0U);

  ASSERT_EQ(model.failures().size(), 1U);
  EXPECT_EQ(model.failures()[0].requested, 900U);
  std::size_t events = 0;
  model.for_each_journal_event(0, 1000, [&](flight::Event const&) { ++events; });
  EXPECT_EQ(events, 1U);
  EXPECT_EQ(model.losses().events_read, 3U);
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.last_ticks(), 200U);
  EXPECT_EQ(script->table_reads, 0U) << "the live table is read for the sake of operations only";

  script->ended = true;
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.ended());
  EXPECT_EQ(script->table_reads, 0U);
  EXPECT_EQ(model.state_at(0, 200).allocated, 200U);
}

}  // namespace
}  // namespace headroom::follow
