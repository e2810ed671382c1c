// The pressure state of a ledger: the seed's boundaries, and hysteresis on the way down.
#include "base/atomics.hpp"
#include "ledger/protocol.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using Steps = ledger::Protocol<StdAtomics>;
using enum PressureLevel;

TEST(PressureLevels, boundaries_belong_to_the_more_severe_level) {
  EXPECT_EQ(pressure_level(699, 1000), none);
  EXPECT_EQ(pressure_level(700, 1000), low);
  EXPECT_EQ(pressure_level(890, 1000), low);
  EXPECT_EQ(pressure_level(900, 1000), medium);
  EXPECT_EQ(pressure_level(949, 1000), medium);
  EXPECT_EQ(pressure_level(950, 1000), high);
  EXPECT_EQ(pressure_level(999, 1000), high);
  EXPECT_EQ(pressure_level(1000, 1000), critical);
  EXPECT_EQ(pressure_level(2000, 1000), critical);
  EXPECT_EQ(pressure_level(0, 0), critical);
}

TEST(PressureLevels, narrow_and_wide_arithmetic_agree) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 56;
  for (const std::uint64_t budget : {kTop - 1, kTop, kTop + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(pressure_level(budget / 2, budget), none);
    EXPECT_EQ(pressure_level(budget / 4 * 3, budget), low);
    EXPECT_EQ(pressure_level(budget - budget / 15, budget), medium);
    EXPECT_EQ(pressure_level(budget - 1, budget), high);
  }
}

TEST(PressureState, falls_only_when_the_margin_is_free_too) {
  constexpr std::uint64_t kLimit = ledger::pack_limit(1000, true, false);
  // Margin words: bytes + 1.
  EXPECT_EQ(Steps::next_level(none, 700, kLimit, 11), low);
  EXPECT_EQ(Steps::next_level(low, 699, kLimit, 11), low);
  EXPECT_EQ(Steps::next_level(low, 690, kLimit, 11), low);  // 690 + 10 is the boundary
  EXPECT_EQ(Steps::next_level(low, 689, kLimit, 11), none);
  EXPECT_EQ(Steps::next_level(low, 699, kLimit, 1), none);  // margin 0: the seed's own behaviour
  EXPECT_EQ(Steps::next_level(critical, 100, kLimit, 11), none);
  EXPECT_EQ(Steps::next_level(critical, 0, ledger::pack_limit(0, false, true), 1), none);
}

TEST(PressureState, one_byte_around_a_boundary_a_hundred_thousand_times_is_one_transition) {
  auto manager = null_manager(MemoryBudget::with_limit(100'000));
  auto base = manager.alloc<std::byte>(69'999).value();
  for (int i = 0; i < 100'000; ++i) {
    auto edge = manager.alloc<std::byte>(1);
    ASSERT_TRUE(edge);
  }
  EXPECT_EQ(manager.stats().pressure_transitions, 1U);
  ASSERT_TRUE(base.release());
  EXPECT_EQ(manager.stats().pressure_transitions, 2U);
  EXPECT_EQ(snapshot_of(manager).pressure, none);
}

TEST(PressureState, every_transition_of_one_thread_is_an_event_in_order) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto a = manager.alloc<std::byte>(700).value();
  auto b = manager.alloc<std::byte>(200).value();
  auto c = manager.alloc<std::byte>(50).value();
  auto d = manager.alloc<std::byte>(50).value();
  ASSERT_TRUE(a.release());
  const auto ledger = snapshot_of(manager);
  EXPECT_EQ(ledger.transitions[0][1], 1U);
  EXPECT_EQ(ledger.transitions[1][2], 1U);
  EXPECT_EQ(ledger.transitions[2][3], 1U);
  EXPECT_EQ(ledger.transitions[3][4], 1U);
  EXPECT_EQ(ledger.transitions[4][0], 1U);
  EXPECT_EQ(ledger.pressure_sequence, 5U);
  auto events = events_of(flight::EventKind::pressure);
  std::erase_if(events, [&](auto const& event) { return event.ledger() != ledger.cell; });
  ASSERT_GE(events.size(), 5U);
  events.erase(events.begin(), events.end() - 5);  // the cell may have had earlier lives
  std::uint64_t sequence = 0;
  for (auto const& event : events) EXPECT_EQ(event.words[2] >> 16, ++sequence);
}

TEST(PressureState, a_changed_budget_is_judged_at_once) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(600).value();
  EXPECT_EQ(snapshot_of(manager).pressure, none);
  manager.set_budget(MemoryBudget::with_limit(620));
  EXPECT_EQ(snapshot_of(manager).pressure, high);
  manager.set_budget(MemoryBudget::unlimited());
  EXPECT_EQ(snapshot_of(manager).pressure, none);
}

}  // namespace
}  // namespace headroom::test
