// State at an instant, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

constexpr std::uint32_t kWeights = 5;
constexpr std::uint32_t kCache = 6;

std::shared_ptr<Script> script_with_tags() {
  auto script = std::make_shared<Script>();
  script->name(kWeights, "weights");
  script->name(kCache, "kv-cache");
  script->name(20, "train.cpp:42 step");
  script->name(21, "train.cpp:57 eval");
  script->book().limit = 1000;
  return script;
}

std::uint64_t bytes_of(LedgerState const& state, std::string_view tag) {
  for (auto const& held : state.tags) {
    if (held.name == tag) return held.bytes;
  }
  return 0;
}

TEST(FollowState, every_instant_is_exact) {
  auto const script = script_with_tags();
  script->allocate(100, 0x1000, 300, kWeights);
  script->allocate(200, 0x2000, 200, kCache);
  script->free(300, 0x1000, 300, kWeights);
  script->allocate(400, 0x1000, 50, kCache);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());

  auto const nothing = model.state_at(0, 99);
  EXPECT_EQ(nothing.known, Known::exact);
  EXPECT_EQ(nothing.allocated, 0U);
  EXPECT_EQ(nothing.peak, 0U);
  EXPECT_TRUE(nothing.tags.empty());

  auto const at_first = model.state_at(0, 100);
  EXPECT_EQ(at_first.allocated, 300U);
  EXPECT_EQ(at_first.as_of_ticks, 100U);

  auto const at_peak = model.state_at(0, 299);
  EXPECT_EQ(at_peak.known, Known::exact);
  EXPECT_EQ(at_peak.allocated, 500U);
  EXPECT_EQ(at_peak.claimed, 500U);
  EXPECT_EQ(at_peak.limit, 1000U);
  EXPECT_EQ(at_peak.peak, 500U);
  EXPECT_EQ(at_peak.live_allocations, 2U);
  ASSERT_EQ(at_peak.tags.size(), 2U);
  EXPECT_EQ(at_peak.tags[0].name, "weights");
  EXPECT_EQ(at_peak.tags[0].bytes, 300U);
  EXPECT_EQ(at_peak.tags[1].name, "kv-cache");

  auto const after = model.state_at(0, 1'000'000);
  EXPECT_EQ(after.allocated, 250U);
  EXPECT_EQ(after.peak, 500U);
  EXPECT_EQ(bytes_of(after, "kv-cache"), 250U);
  EXPECT_EQ(bytes_of(after, "weights"), 0U);
  EXPECT_EQ(after.tags[0].allocations, 2U);
  EXPECT_EQ(after.name, "ledger 0");
}

TEST(FollowState, a_ledger_that_is_not_there_says_so) {
  auto model = model_of(script_with_tags());
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(3, 100).known, Known::no_ledger);
  EXPECT_EQ(model.alive_since(3, 1, 2).known, Known::no_ledger);
  EXPECT_TRUE(model.live_at(3, 100).empty());
}

TEST(FollowState, blocks_from_before_are_taken_from_the_table_and_from_their_frees) {
  auto const script = script_with_tags();
  script->record = false;  // overwritten long ago
  script->allocate(10, 0x1000, 100, kWeights, 20);
  script->allocate(20, 0x2000, 60, kCache);
  script->record = true;
  script->allocate(100, 0x3000, 7, kCache);
  script->free(200, 0x2000, 60, kCache);  // its slot is gone when the table is read
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());

  auto const before_free = model.state_at(0, 150);
  EXPECT_EQ(before_free.known, Known::exact);
  EXPECT_EQ(before_free.allocated, 167U);
  EXPECT_EQ(before_free.unattributed_bytes, 0U);
  EXPECT_EQ(bytes_of(before_free, "weights"), 100U);
  EXPECT_EQ(bytes_of(before_free, "kv-cache"), 67U);
  EXPECT_EQ(model.state_at(0, 99).known, Known::forgotten);

  auto const after = model.state_at(0, 200);
  EXPECT_EQ(after.allocated, 107U);
  EXPECT_EQ(bytes_of(after, "kv-cache"), 7U);
  auto const live = model.live_at(0, 150);
  ASSERT_EQ(live.size(), 3U);
  EXPECT_FALSE(live[0].ticks.has_value()) << "known by its free alone";
  EXPECT_EQ(live[0].bytes, 60U);
  EXPECT_EQ(live[1].site, "train.cpp:42 step");
  EXPECT_EQ(live[1].ticks, 10U);
}

TEST(FollowState, blocks_without_a_slot_are_counted_as_unattributed) {
  auto const script = script_with_tags();
  script->record = false;
  script->in_table = false;
  script->allocate(10, 0x1000, 100, kWeights);
  script->in_table = true;
  script->record = true;
  script->allocate(100, 0x2000, 8, kCache);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const state = model.state_at(0, 100);
  EXPECT_EQ(state.known, Known::partial);
  EXPECT_EQ(state.allocated, 108U);
  EXPECT_EQ(state.unattributed_bytes, 100U);
  EXPECT_EQ(bytes_of(state, "kv-cache"), 8U);
}

TEST(FollowState, the_order_of_the_ledger_counts_not_that_of_the_records) {
  auto const script = script_with_tags();
  auto const first = script->make_allocate(110, 0x1000, 100);  // stamped late
  auto const second = script->make_free(105, 0x1000, 100);
  auto const third = script->make_allocate(107, 0x1000, 30);
  for (auto const& event : {third, first, second}) script->put(event);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 109).allocated, 0U) << "nothing before the first operation's instant";
  auto const state = model.state_at(0, 110);
  EXPECT_EQ(state.allocated, 30U);
  EXPECT_EQ(state.live_allocations, 1U);
  EXPECT_EQ(state.peak, 100U);
}

TEST(FollowState, an_address_given_out_again_before_its_free_was_booked_keeps_both_blocks) {
  auto const script = script_with_tags();
  script->allocate(100, 0x1000, 64, kWeights);
  script->allocate(200, 0x1000, 64, kCache);
  script->put(script->operation(flight::EventKind::free, 300, 0x1000, 64, kWeights, 0));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 250).allocated, 128U);
  auto const state = model.state_at(0, 300);
  EXPECT_EQ(bytes_of(state, "kv-cache"), 64U) << "the older one was freed";
  EXPECT_EQ(bytes_of(state, "weights"), 0U);
}

TEST(FollowState, a_block_that_the_table_showed_before_its_record_counts_once) {
  auto const script = script_with_tags();
  script->record = false;
  script->allocate(10, 0x1000, 100, kWeights);
  script->record = true;
  auto const books_then = script->book();
  // The books were read, then the next operation took its slot, then the table was read; its record comes later.
  auto const early = script->make_allocate(200, 0x9000, 40, kCache);
  auto const books_now = std::exchange(script->books[0].snapshot, books_then);
  script->now = 250;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->book() = books_now;
  script->put(early);
  script->free(300, 0x9000, 40, kCache);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  auto const state = model.state_at(0, 250);
  EXPECT_EQ(state.allocated, 140U);
  EXPECT_EQ(state.live_allocations, 2U);
  EXPECT_EQ(bytes_of(state, "kv-cache"), 40U);
  EXPECT_EQ(state.known, Known::exact);
  auto const after = model.state_at(0, 300);
  EXPECT_EQ(after.live_allocations, 1U);
  EXPECT_EQ(bytes_of(after, "kv-cache"), 0U);
}

TEST(FollowState, ledgers_do_not_mix) {
  auto const script = script_with_tags();
  script->allocate(100, 0x1000, 300, kWeights);
  script->ledger = 4;
  script->allocate(150, 0x1000, 20, kCache);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 200).allocated, 300U);
  EXPECT_EQ(model.state_at(4, 200).allocated, 20U);
  EXPECT_EQ(model.state_at(4, 149).allocated, 0U);
  auto const states = model.states_at(200);
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[1].ledger, 4U);
}

TEST(FollowState, a_device_account_has_a_present_and_no_past) {
  auto const script = script_with_tags();
  auto& account = script->book(2);
  account.is_device_account = true;
  account.allocated = 77;
  script->allocate(100, 0x1000, 77);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(2, 50).known, Known::not_recorded);
  auto const now = model.state_at(2, 100);
  EXPECT_EQ(now.known, Known::exact);
  EXPECT_EQ(now.allocated, 77U);
  EXPECT_EQ(now.unattributed_bytes, 77U) << "the books of this account name no tag";
}

TEST(FollowState, budgets_and_pressure_have_their_instants) {
  auto const script = script_with_tags();
  script->book().limit = 500;
  script->allocate(100, 0x1000, 10);
  auto change = script->event(flight::EventKind::budget, 200);
  change.words[2] = flight::kLimitEnforcing | 1000;
  change.words[3] = flight::kLimitEnforcing | 500;
  script->put(change);
  auto pressure = script->event(flight::EventKind::pressure, 250);
  pressure.words[2] = 0U | (2U << 8U) | (1U << 16U);
  script->put(pressure);
  script->allocate(300, 0x2000, 10);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 199).limit, 1000U);
  EXPECT_EQ(model.state_at(0, 200).limit, 500U);
  EXPECT_EQ(model.state_at(0, 200).pressure, PressureLevel::none);
  EXPECT_EQ(model.state_at(0, 250).pressure, PressureLevel::medium);
}

TEST(FollowState, a_lost_budget_change_leaves_the_budget_unknown) {
  auto const script = script_with_tags();
  script->allocate(100, 0x1000, 10);
  auto change = script->event(flight::EventKind::budget, 200);
  change.words[2] = flight::kLimitEnforcing | 1000;
  change.words[3] = flight::kLimitEnforcing | 500;
  script->put(change);
  script->book().limit = 700;  // a second change that nobody could read
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.state_at(0, 150).limit_known);
  EXPECT_EQ(model.state_at(0, 150).limit, 1000U);
  EXPECT_FALSE(model.state_at(0, 250).limit_known);
}

TEST(FollowState, claimed_is_absent_while_a_reservation_may_have_been_spent) {
  auto const script = script_with_tags();
  script->allocate(100, 0x1000, 10);
  script->put(script->event(flight::EventKind::reserve, 200));
  script->allocate(300, 0x2000, 10);
  script->book().unspent = 90;
  script->book().unspent_reservations = 1;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(model.state_at(0, 300).claimed.has_value());
  EXPECT_FALSE(model.state_at(0, 150).claimed.has_value());
}

TEST(FollowState, a_wall_clock_that_was_set_back_moves_no_instant) {
  auto const script = script_with_tags();
  script->syncs = {{.ticks = 0, .monotonic_ns = 0, .realtime_ns = 10'000},
                   {.ticks = 1000, .monotonic_ns = 1000, .realtime_ns = 5'000}};
  script->allocate(500, 0x1000, 10);
  script->allocate(1500, 0x2000, 10);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_LT(model.realtime_ns(1500), model.realtime_ns(0));
  EXPECT_EQ(model.state_at(0, 500).allocated, 10U);
  EXPECT_EQ(model.state_at(0, 1499).allocated, 10U);
  EXPECT_EQ(model.state_at(0, 1500).allocated, 20U);
  EXPECT_EQ(model.monotonic_ns(1500) - model.monotonic_ns(500), 1000U);
}

}  // namespace
}  // namespace headroom::follow
