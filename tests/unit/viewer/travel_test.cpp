// Going from moment to moment, and closer to one.
#include "travel.hpp"

#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::viewer {
namespace {

TEST(Travel, goes_from_event_to_event_those_of_the_journal_too) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5);
  script->put(script->event(flight::EventKind::pressure, 150));
  script->allocate(200, 0x2000, 10, 5);
  script->put(script->event(flight::EventKind::refusal, 250));
  auto tail = script->event(flight::EventKind::refusal, 260);
  tail.words[0] |= flight::kFlagContinues;
  script->put(tail);
  script->ledger = 3;
  script->put(script->event(flight::EventKind::pressure, 270));  // another one's
  script->put(script->event(flight::EventKind::mark, 280));      // everybody's
  script->ledger = 0;
  script->allocate(300, 0x3000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  state.choose_ledger(0);
  state.travel_to(100);
  for (auto const expected : {150, 200, 250, 280, 300, 300}) {
    go_to_event(state, true);
    EXPECT_EQ(state.cursor, static_cast<std::uint64_t>(expected));
  }
  for (auto const expected : {280, 250, 200, 150, 100, 100}) {
    go_to_event(state, false);
    EXPECT_EQ(state.cursor, static_cast<std::uint64_t>(expected));
  }
}

TEST(ViewState, zooms_to_a_tick_however_long_the_machine_has_run) {
  constexpr std::uint64_t kBegin = (std::uint64_t{1} << 60U) + 12'345;  // doubles are 256 apart there
  auto const script = follow::named_script();
  script->allocate(kBegin, 0x1000, 10, 5);
  script->allocate(kBegin + 1'000'000, 0x2000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  constexpr auto kAround = kBegin + 500'001;
  for (auto i = 0; i < 100; ++i) state.zoom(1 / 1.5, kAround);
  EXPECT_EQ(state.visible.length(), 8U);
  EXPECT_TRUE(state.visible.contains(kAround)) << state.visible.begin - kBegin;
}

}  // namespace
}  // namespace headroom::viewer
