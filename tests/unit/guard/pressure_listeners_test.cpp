// Listeners of pressure in one thread: what they hear, through which door, and what they may do.
#include <optional>
#include <stdexcept>

#include "doors.hpp"
#include "pressure_log.hpp"

namespace headroom::test {
namespace {

using enum PressureLevel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(Listeners, an_empty_function_is_refused) {
  const auto id = listeners.add({});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(listeners.size(), 0U);
}

TEST_F(Listeners, hear_each_change_once_in_order_with_the_figures_of_the_moment) {
  const auto id = listen();
  auto a = take(700);
  auto b = take(200);
  auto c = take(50);
  auto d = take(50);
  ASSERT_TRUE(a.release());
  ASSERT_EQ(heard.size(), 5U);
  EXPECT_THAT(levels(), ElementsAre(low, medium, high, critical, none));
  PressureLevel from = none;
  for (std::size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].sequence, i + 1);
    EXPECT_EQ(heard[i].from, from);
    EXPECT_EQ(heard[i].budget_bytes, 1000U);
    from = heard[i].to;
  }
  EXPECT_EQ(heard[0].used_bytes, 700U);
  EXPECT_EQ(heard[3].used_bytes, 1000U);
  EXPECT_EQ(heard[4].used_bytes, 300U);
  EXPECT_TRUE(listeners.remove(id));
  EXPECT_FALSE(listeners.remove(id));
  ASSERT_TRUE(b.release() && c.release() && d.release());
  auto again = take(1000);
  EXPECT_EQ(heard.size(), 5U);
  EXPECT_EQ(totals().calls, 5U);
  EXPECT_EQ(totals().dropped, 0U);
}

TEST_F(Listeners, hear_only_changes_after_they_came) {
  auto a = take(700);
  listen();
  EXPECT_THAT(heard, IsEmpty());
  auto b = take(200);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].sequence, 2U);
  EXPECT_EQ(heard[0].from, low);
}

TEST_F(Listeners, hear_of_every_door) {
  auto runtime = DeviceRuntime::create(manager.device()).value();
  auto overlay = manager.with_runtime_overlay(runtime).value();
  auto door = door_on(manager);
  listen();
  const auto expect_up_and_down = [&](std::string const& which, auto&& hold) {
    heard.clear();
    {
      auto owner = hold();
      ASSERT_TRUE(owner) << which;
      EXPECT_THAT(levels(), ElementsAre(medium)) << which;
    }
    EXPECT_THAT(levels(), ElementsAre(medium, none)) << which;
  };
  expect_up_and_down("typed", [&] { return manager.alloc<std::byte>(900); });
  expect_up_and_down("a reservation", [&] { return manager.reserve_bytes(900); });
  expect_up_and_down("an overlay", [&] { return overlay.alloc<std::byte>(900); });
  expect_up_and_down("raw bytes", [&] { return overlay.alloc_raw(900, AllocTag{}); });
  heard.clear();
  auto token = manager.reserve_bytes(900).value();
  {
    auto spent = token.alloc<std::byte>(900).value();  // paid already: nothing changes
    EXPECT_THAT(levels(), ElementsAre(medium));
    token.release();
    EXPECT_THAT(levels(), ElementsAre(medium));
  }
  EXPECT_THAT(levels(), ElementsAre(medium, none));
  heard.clear();
  void* const block = door.allocate(900, kMinimumAlignment, {}).value();
  EXPECT_THAT(levels(), ElementsAre(medium));
  ASSERT_TRUE(door.deallocate(block, 900));
  EXPECT_THAT(levels(), ElementsAre(medium, none));
}

TEST_F(Listeners, hear_of_a_changed_budget) {
  listen();
  const auto held = take(600);
  manager.set_budget(MemoryBudget::with_limit(500));  // below use: nothing is taken away
  EXPECT_THAT(levels(), ElementsAre(critical));
  EXPECT_EQ(heard[0].used_bytes, 600U);
  EXPECT_EQ(heard[0].budget_bytes, 500U);
  manager.set_budget(MemoryBudget::unlimited());
  EXPECT_THAT(levels(), ElementsAre(critical, none));
  EXPECT_EQ(heard[1].budget_bytes, std::nullopt);
}

TEST_F(Listeners, hear_of_a_changed_margin) {
  listen();
  const auto base = take(695);
  auto edge = take(5);
  ASSERT_TRUE(edge.release());
  EXPECT_THAT(levels(), ElementsAre(low));  // 695 + 10 is above the boundary
  ledger.set_pressure_margin(0);
  EXPECT_THAT(levels(), ElementsAre(low, none));
  ledger.set_pressure_margin(std::nullopt);
  EXPECT_THAT(levels(), ElementsAre(low, none));  // a wider margin changes nothing by itself
}

TEST_F(Listeners, with_the_margin_hear_one_change_of_a_hundred_thousand_steps_over_a_boundary) {
  listen();
  auto base = take(699);
  for (int i = 0; i < 100'000; ++i) {
    auto edge = manager.alloc<std::byte>(1);
    ASSERT_TRUE(edge);
  }
  EXPECT_THAT(levels(), ElementsAre(low));
  ASSERT_TRUE(base.release());
  EXPECT_THAT(levels(), ElementsAre(low, none));
  EXPECT_EQ(manager.stats().pressure_transitions, 2U);
}

TEST_F(Listeners, without_a_margin_hear_every_step) {
  ledger.set_pressure_margin(0);
  listen();
  const auto base = take(699);
  for (int i = 0; i < 1'000; ++i) {
    auto edge = manager.alloc<std::byte>(1);
    ASSERT_TRUE(edge);
    ASSERT_EQ(heard.size(), static_cast<std::size_t>(2 * i + 1));
  }
  EXPECT_EQ(heard.size(), 2'000U);
  EXPECT_EQ(heard.back().to, none);
  EXPECT_EQ(totals().dropped, 0U);
}

TEST_F(Listeners, a_margin_larger_than_everything_is_everything) {
  ledger.set_pressure_margin(~std::uint64_t{0});
  listen();
  auto held = take(1000);
  ASSERT_TRUE(held.release());
  // used + margin stays above the budget: the level never comes down.
  EXPECT_THAT(levels(), ElementsAre(critical));
}

TEST_F(Listeners, are_called_when_the_operation_is_over) {
  bool called = false;
  add([&](PressureChange const&) {
    called = true;
    auto& thread = flight::this_thread();
    EXPECT_EQ(thread.in_flight_depth, 0U);
    EXPECT_FALSE(thread.writing.load());
    EXPECT_TRUE(guard::inside_callback());
    EXPECT_FALSE(guard::inside_hook());
    for (auto const& operation : flight::FlightView::of_this_process().value().in_flight()) {
      EXPECT_NE(operation.thread, thread.thread_id);
    }
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  });
  auto held = take(1000);
  EXPECT_TRUE(std::exchange(called, false));
  ASSERT_TRUE(held.release());
  EXPECT_TRUE(called);
}

TEST_F(Listeners, that_throw_harm_nobody_else) {
  add([](PressureChange const&) { throw std::runtime_error("no"); });
  listen();
  add([](PressureChange const&) { throw 7; });
  const auto held = take(1000);
  EXPECT_THAT(levels(), ElementsAre(critical));
  EXPECT_EQ(totals().failures, 2U);
  EXPECT_EQ(totals().calls, 3U);
  EXPECT_FALSE(guard::inside_callback());
}

// ── what they may do ──

TEST_F(Listeners, a_change_made_inside_one_is_delivered_after_it_returned) {
  std::vector<std::string> story;
  Bytes more;
  const auto say = [&](std::string const& who, PressureChange const& change) { return who + std::to_string(change.sequence); };
  add([&](PressureChange const& change) {
    story.push_back(say("begin ", change));
    if (change.to == low) more = take(250);  // 950: high
    story.push_back(say("end ", change));
  });
  add([&](PressureChange const& change) { story.push_back(say("other ", change)); });
  const auto held = take(700);
  EXPECT_THAT(story, ElementsAre("begin 1", "end 1", "other 1", "begin 2", "end 2", "other 2"));
  EXPECT_EQ(snapshot_of(manager).pressure, high);
}

TEST_F(Listeners, may_free_what_made_them_ring) {
  auto cache = take(300);
  add([&](PressureChange const& change) {
    heard.push_back(change);
    if (change.to == critical && !cache.release()) ADD_FAILURE() << "the cache was not freed";
  });
  const auto held = take(700);
  EXPECT_THAT(levels(), ElementsAre(critical, low));
}

TEST_F(Listeners, may_remove_themselves) {
  ListenerId self{};
  int calls = 0;
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> is_alive = alive;
  self = add([&, kept = std::move(alive)](PressureChange const&) {
    ++calls;
    EXPECT_TRUE(listeners.remove(self));
    EXPECT_FALSE(is_alive.expired());
  });
  listen();
  auto held = take(1000);
  EXPECT_TRUE(is_alive.expired());
  ASSERT_TRUE(held.release());
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(levels(), ElementsAre(critical, none));
}

TEST_F(Listeners, may_remove_others_that_were_not_told_yet) {
  ListenerId second{};
  add([&](PressureChange const&) { listeners.remove(second); });
  second = listen();
  const auto held = take(1000);
  EXPECT_THAT(heard, IsEmpty());
  EXPECT_EQ(listeners.size(), 1U);
}

TEST_F(Listeners, may_add_others_which_hear_of_the_next_change) {
  bool once = false;
  add([&](PressureChange const&) {
    if (!std::exchange(once, true)) listen();
  });
  auto held = take(700);
  EXPECT_THAT(heard, IsEmpty());
  auto more = take(200);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].sequence, 2U);
}

TEST_F(Listeners, that_end_may_call_back) {
  struct Removes {
    guard::PressureListeners& listeners;
    ListenerId id;
    ~Removes() { listeners.remove(id); }
  };
  auto removes = std::make_shared<Removes>(listeners, listen());
  const auto first = add([removes = std::move(removes)](PressureChange const&) {});
  EXPECT_TRUE(listeners.remove(first));
  EXPECT_EQ(listeners.size(), 0U);
}

// ── bounds ──

TEST_F(Listeners, a_queue_that_runs_over_drops_the_oldest_counts_them_and_keeps_the_newest) {
  ledger.set_pressure_margin(0);
  add([&](PressureChange const& change) {
    heard.push_back(change);
    for (int i = 0; change.sequence == 1 && i < 50; ++i) up_and_down();
  });
  const auto held = take(700);
  // While the first was being told, 2 to 101 came; 64 places hold 38 to 101.
  ASSERT_EQ(heard.size(), 65U);
  EXPECT_EQ(heard[0].sequence, 1U);
  for (std::size_t i = 1; i < heard.size(); ++i) EXPECT_EQ(heard[i].sequence, 37 + i);
  EXPECT_EQ(totals().dropped, 36U);
  EXPECT_EQ(heard.back().to, low);
  EXPECT_EQ(snapshot_of(manager).pressure_sequence, 101U);
}

TEST_F(Listeners, one_that_makes_changes_for_ever_gives_its_thread_back) {
  std::uint64_t calls = 0;
  add([&](PressureChange const&) {
    ++calls;
    up_and_down();
  });
  constexpr std::uint64_t kMost = guard::PressureListeners::kMostInOneCall;
  // Each call of the listener makes two changes and takes one, so that from the 65th on every other one is dropped.
  auto held = take(700);
  EXPECT_EQ(calls, 1 + kMost);  // the change of the operation, and those of the listener
  EXPECT_EQ(snapshot_of(manager).pressure_sequence, 1 + 2 * calls);
  ASSERT_TRUE(held.release());  // change 516: this time it is among those that are dropped
  EXPECT_EQ(calls, 1 + 2 * kMost);
  auto other = null_manager(MemoryBudget::unlimited());
  {
    const auto any = other.alloc<std::byte>(1).value();
  }  // each operation of this thread goes on, on whichever ledger
  EXPECT_EQ(calls, 1 + 4 * kMost);
}

TEST_F(Listeners, what_is_left_goes_out_with_the_next_operation) {
  std::uint64_t calls = 0;
  add([&](PressureChange const&) {
    if (++calls <= 300) up_and_down();
  });
  auto held = take(700);
  EXPECT_EQ(calls, 257U);  // that of the operation, and 256 of the listener
  ASSERT_TRUE(held.release());
  EXPECT_GT(calls, 300U);
  EXPECT_EQ(calls + totals().dropped, snapshot_of(manager).pressure_sequence);
}

// ── lives of a ledger ──

TEST_F(Listeners, of_a_ledger_are_the_same_however_often_they_are_asked_for) {
  EXPECT_EQ(guard::PressureListeners::of(ledger).value(), &listeners);
}

TEST(ListenersOfAReusedLedger, hear_of_its_new_life_with_its_own_numbers) {
  std::vector<PressureChange> heard;
  for (int life = 0; life < 16; ++life) {
    auto manager = null_manager(MemoryBudget::with_limit(1000));
    auto& listeners = *guard::PressureListeners::of(ledger_of(manager)).value();
    EXPECT_EQ(listeners.size(), 0U);
    heard.clear();
    const auto id = listeners.add([&](PressureChange const& change) { heard.push_back(change); }).value();
    auto held = manager.alloc<std::byte>(1000).value();
    ASSERT_TRUE(held.release());
    ASSERT_EQ(heard.size(), 2U);
    EXPECT_EQ(heard[0].sequence, 1U);
    EXPECT_EQ(heard[1].sequence, 2U);
    EXPECT_TRUE(listeners.remove(id));
  }
}

}  // namespace
}  // namespace headroom::test
