// A ledger's cell is used again when its manager is gone: the past before that is another manager's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

using flight::EventKind;

constexpr std::uint32_t kTag = 5;
constexpr std::uint64_t kOpened = 1000;

std::shared_ptr<Script> new_script() {
  auto script = std::make_shared<Script>();
  script->name(kTag, "cache");
  auto& train = script->book();
  train.name = "train";
  train.created_ticks = 10;
  train.limit = 9000;
  return script;
}

/// 'train' takes 300 bytes and gives them back.
void train(Script& script) {
  script.allocate(100, 0x1000, 40, kTag);
  script.allocate(150, 0x2000, 260, kTag);
  script.free(200, 0x1000, 40, kTag);
  script.free(210, 0x2000, 260, kTag);
}

/// 'train' is closed, and its cell goes to 'eval'. Operations are numbered on.
void open_eval(Script& script) {
  script.now = std::max(script.now, kOpened);
  auto& eval = script.book();
  eval.name = "eval";
  eval.generation = 2;
  eval.created_ticks = kOpened;
  eval.limit = 500;
  eval.peak = 0;
  eval.counters = {};
}

TEST(FollowOwners, each_has_its_own_name_limit_and_peak) {
  auto const script = new_script();
  train(*script);
  open_eval(*script);
  script->allocate(1100, 0x1000, 40, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);

  auto const before = model.state_at(0, 150);
  EXPECT_EQ(before.name, "") << "nobody wrote down that it was 'train'";
  EXPECT_FALSE(before.limit_known);
  EXPECT_FALSE(before.limit.has_value());
  EXPECT_EQ(before.known, Known::exact);
  EXPECT_EQ(before.allocated, 300U);
  EXPECT_EQ(before.peak, 300U);
  auto const last = model.state_at(0, kOpened - 1);
  EXPECT_EQ(last.name, "");
  EXPECT_EQ(last.peak, 300U);
  EXPECT_EQ(last.as_of_ticks, 210U);

  auto const opened = model.state_at(0, kOpened);
  EXPECT_EQ(opened.name, "eval");
  EXPECT_TRUE(opened.limit_known);
  EXPECT_EQ(opened.limit, 500U);
  EXPECT_EQ(opened.known, Known::exact);
  EXPECT_EQ(opened.allocated, 0U);
  EXPECT_EQ(opened.peak, 0U);
  EXPECT_EQ(opened.as_of_ticks, 0U) << "it has done nothing yet";
  auto const now = model.state_at(0, 1100);
  EXPECT_EQ(now.allocated, 40U);
  EXPECT_EQ(now.peak, 40U);

  auto const peak = model.peak(0);
  EXPECT_EQ(peak.bytes, 40U);
  EXPECT_EQ(peak.ticks, 1100U) << "not when 'train' held as much";
}

TEST(FollowOwners, one_that_has_done_nothing_yet_has_a_peak_of_zero) {
  for (bool const ends : {false, true}) {
    SCOPED_TRACE(ends ? "the program ended" : "it runs on");
    auto const script = new_script();
    train(*script);
    auto model = model_of(script);
    if (!ends) {
      ASSERT_TRUE(model.catch_up());
      EXPECT_EQ(model.state_at(0, 300).name, "train");
      EXPECT_EQ(model.state_at(0, 300).peak, 300U);
    }
    open_eval(*script);
    script->ended = ends;
    ASSERT_TRUE(model.catch_up());
    auto const state = model.state_at(0, kOpened);
    EXPECT_EQ(state.name, "eval");
    EXPECT_EQ(state.peak, 0U);
    EXPECT_EQ(state.as_of_ticks, 0U);
    EXPECT_EQ(model.state_at(0, 300).peak, 300U);
    if (ends) continue;
    script->allocate(1200, 0x1000, 7, kTag);
    ASSERT_TRUE(model.catch_up());
    EXPECT_EQ(model.losses().gaps, 0U);
    EXPECT_EQ(model.state_at(0, 1200).peak, 7U);
  }
}

TEST(FollowOwners, records_of_the_one_before_are_waited_for) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 40, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.poll());
  // The events were read, then 'train' did the rest and its cell was handed on, then the books were read.
  auto const rest = script->make_free(200, 0x1000, 40, kTag);
  open_eval(*script);
  ASSERT_TRUE(model.poll());
  script->put(rest);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.state_at(0, 200).allocated, 0U);
  EXPECT_EQ(model.state_at(0, 199).allocated, 40U) << "the free is in its place";
  EXPECT_EQ(model.state_at(0, kOpened).peak, 0U);
}

TEST(FollowOwners, a_first_operation_goes_on_with_the_numbers_of_the_one_before) {
  auto const script = new_script();
  script->record = false;  // overwritten long ago
  train(*script);
  open_eval(*script);
  script->record = true;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, kOpened).known, Known::exact) << "a new manager holds nothing";
  script->allocate(1200, 0x1000, 7, kTag);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.losses().operations_missing, 0U);
  EXPECT_EQ(model.state_at(0, 1199).known, Known::exact);
  EXPECT_EQ(model.state_at(0, 1199).allocated, 0U);
  EXPECT_EQ(model.state_at(0, 1200).allocated, 7U);
}

TEST(FollowOwners, budgets_and_pressure_are_not_handed_on) {
  auto const script = new_script();
  train(*script);
  auto change = script->event(EventKind::budget, 220);
  change.words[2] = flight::kLimitEnforcing | 8000;
  change.words[3] = flight::kLimitEnforcing | 9000;
  script->put(change);
  auto pressure = script->event(EventKind::pressure, 230);
  pressure.words[2] = 0U | (3U << 8U) | (1U << 16U);
  script->put(pressure);
  open_eval(*script);
  auto later = script->event(EventKind::budget, 1500);
  later.words[2] = flight::kLimitEnforcing | 400;
  later.words[3] = flight::kLimitEnforcing | 500;
  script->put(later);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 230).pressure, PressureLevel::high);
  auto const opened = model.state_at(0, kOpened);
  EXPECT_TRUE(opened.limit_known);
  EXPECT_EQ(opened.limit, 400U) << "what its first change found";
  EXPECT_EQ(opened.pressure, PressureLevel::none);
  EXPECT_EQ(model.state_at(0, 1500).limit, 500U);
}

TEST(FollowOwners, a_failure_is_named_after_the_manager_that_had_it) {
  auto const script = new_script();
  auto const refuse = [&](std::uint64_t ticks) {
    auto refusal = script->event(EventKind::refusal, ticks, kTag);
    refusal.words[2] = 64;
    script->put(refusal);
  };
  refuse(120);
  open_eval(*script);
  refuse(1300);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 2U);
  EXPECT_EQ(stories[0].ledger_name, "");
  EXPECT_EQ(stories[1].ledger_name, "eval");
}

}  // namespace
}  // namespace headroom::follow
