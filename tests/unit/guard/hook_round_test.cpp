// Rounds of hooks: who is called, in which order, when a round ends, and what is counted.
#include <stdexcept>
#include <thread>

#include "hook_rounds.hpp"

namespace headroom::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(Hooks, bad_ones_are_refused_with_the_reason) {
  const auto refused = [&](OomHook bad, std::string const& part) {
    const auto id = registry.add(std::move(bad));
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(id.error().layer, Layer::guard);
    EXPECT_THAT(id.error().message, ::testing::HasSubstr(part));
  };
  refused(hook("", [] { return 0; }), "needs a name");
  OomHook empty;
  empty.name = "empty";
  refused(empty, "'empty' has no callback");
  auto hasty = hook("hasty", [] { return 0; });
  hasty.time_limit = std::chrono::nanoseconds{0};
  refused(hasty, "'hasty' has a time limit of 0 ns");
  EXPECT_EQ(registry.size(), 0U);
}

TEST_F(Hooks, go_by_priority_then_the_larger_estimate_then_who_came_first) {
  add_noting("late", 7);
  add_noting("small", 1, 10);
  add_noting("large", 1, 20);
  add_noting("small too", 1, 10);
  add_noting("first", -3);
  const auto full = take(2048);
  const auto result = round_for(1024);
  EXPECT_THAT(called, ElementsAre("first", "large", "small", "small too", "late"));
  EXPECT_EQ(names(result), called);
  EXPECT_EQ(result.end, RoundEnd::exhausted);
  EXPECT_EQ(result.runs, 5U);
  EXPECT_FALSE(result.made_progress);
}

TEST_F(Hooks, end_as_soon_as_the_request_fits) {
  auto a = take(1024);
  auto b = take(1024);
  add(hook("a", [&] { return a.release() ? 1024 : 0; }, 0));
  add_noting("not needed", 1);
  const auto result = round_for(1024);
  EXPECT_TRUE(result.claimed());
  EXPECT_THAT(called, IsEmpty());
  EXPECT_EQ(names(result), std::vector<std::string>{"a"});
  EXPECT_EQ(manager.allocated_bytes(), 2048U);
}

TEST_F(Hooks, are_told_what_is_asked_and_what_is_missing) {
  const auto full = take(2000);
  std::vector<HookContext> told;
  std::vector<std::string> devices;
  auto tell = hook("told", [] { return 0; });
  tell.callback = [&](HookContext const& context) {
    told.push_back(context);
    devices.emplace_back(context.device_name);
    return 0;
  };
  add(tell);
  add(tell);
  const auto deadline = std::chrono::steady_clock::now() + kForEver;
  HookRound round;
  round.context = {.device_ordinal = 3,
                   .device_name = "a GPU",
                   .requested_bytes = 100,
                   .shortfall_bytes = 52,
                   .attempt = 2,
                   .budget = 2048,
                   .deadline = deadline};
  std::uint64_t missing = 52;
  round.shortfall = [&] { return missing--; };
  EXPECT_EQ(registry.run_round(round).end, RoundEnd::exhausted);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].device_ordinal, 3);
  EXPECT_THAT(devices, ElementsAre("a GPU", "a GPU"));
  EXPECT_EQ(told[0].requested_bytes, 100U);
  EXPECT_EQ(told[0].attempt, 2U);
  EXPECT_EQ(told[0].budget, 2048U);
  EXPECT_EQ(told[0].deadline, deadline);
  EXPECT_EQ(told[0].shortfall_bytes, 52U);
  EXPECT_EQ(told[1].shortfall_bytes, 51U);
}

TEST_F(Hooks, with_an_overhead_above_the_headroom_are_passed_over_and_equal_ones_run) {
  auto cache = take(100);
  const auto full = take(1848);  // 100 are left
  auto greater = hook("greater", [&] { return called.emplace_back("greater"), 0; }, 0);
  greater.execution_overhead_bytes = 101;
  auto equal = hook("equal", [&] { return called.emplace_back("equal"), cache.release() ? 100 : 0; }, 1);
  equal.execution_overhead_bytes = 100;
  auto then = hook("then it fits", [&] { return called.emplace_back("then it fits"), 0; }, 2);
  then.execution_overhead_bytes = 200;  // recomputed: 100 + 100
  auto not_yet = hook("not even then", [&] { return called.emplace_back("not even then"), 0; }, 3);
  not_yet.execution_overhead_bytes = 201;
  for (auto const& each : {greater, equal, then, not_yet}) add(each);
  const auto result = round_for(1024);
  EXPECT_THAT(called, ElementsAre("equal", "then it fits"));
  ASSERT_EQ(result.turns.size(), 4U);
  EXPECT_EQ(result.turns[0].outcome, HookOutcome::skipped_large);
  EXPECT_EQ(result.turns[1].outcome, HookOutcome::ran);
  EXPECT_EQ(result.turns[2].outcome, HookOutcome::ran);
  EXPECT_EQ(result.turns[3].outcome, HookOutcome::skipped_large);
  EXPECT_EQ(registry.totals().skips, 2U);
  EXPECT_EQ(shown("greater").skips, 1U);
  EXPECT_EQ(shown("greater").runs, 0U);
}

// A device's free bytes, say, where the budget has room.
TEST_F(Hooks, judge_their_overhead_by_the_headroom_that_the_round_names) {
  auto hungry = hook("hungry", [&] { return called.emplace_back("hungry"), 0; });
  hungry.execution_overhead_bytes = 11;
  add(hungry);
  HookRound round;
  std::uint64_t headroom = 10;
  round.headroom = [&] { return headroom; };
  EXPECT_EQ(registry.run_round(round).turns.at(0).outcome, HookOutcome::skipped_large);
  headroom = 11;
  EXPECT_EQ(registry.run_round(round).turns.at(0).outcome, HookOutcome::ran);
}

TEST_F(Hooks, that_free_too_little_do_not_get_a_request_in_by_reporting) {
  auto cache = take(512);
  const auto rest = take(1536);
  add(hook("frees 512", [&] { return cache.release() ? 512 : 0; }, 0));
  add(hook("boasts", [] { return std::uint64_t{1} << 62; }, 1));
  const auto result = round_for(1024);
  EXPECT_FALSE(result.claimed());
  EXPECT_EQ(result.end, RoundEnd::exhausted);
  EXPECT_TRUE(result.made_progress);
  EXPECT_EQ(result.freed_bytes, 512U);
  EXPECT_EQ(result.reported_bytes, flight::kBytesMask + 512);  // no more than a budget can be
  EXPECT_EQ(result.ledger_fell_bytes, 512);
  EXPECT_EQ(manager.allocated_bytes(), 1536U);
  EXPECT_LE(manager.peak_bytes(), 2048U);
}

TEST_F(Hooks, that_throw_are_counted_and_the_next_has_its_turn) {
  auto cache = take(48);
  const auto full = take(2000);
  add(hook("throws", [&]() -> std::uint64_t {
    EXPECT_TRUE(cache.release());
    throw std::runtime_error("no");
  }));
  add(hook("throws a number", []() -> std::uint64_t { throw 7; }));
  add_noting("next");
  const auto result = round_for(1024);
  EXPECT_THAT(called, ElementsAre("next"));
  ASSERT_EQ(result.turns.size(), 3U);
  EXPECT_EQ(result.turns[0].outcome, HookOutcome::threw);
  EXPECT_EQ(result.turns[0].reported_bytes, 0U);
  EXPECT_EQ(result.turns[0].freed_bytes, 48U);
  EXPECT_EQ(result.turns[1].outcome, HookOutcome::threw);
  EXPECT_EQ(result.failures, 2U);
  EXPECT_EQ(registry.totals().failures, 2U);
  EXPECT_EQ(shown("throws").errors, 1U);
  EXPECT_EQ(manager.allocated_bytes(), 2000U);
  EXPECT_FALSE(guard::inside_hook());
}

TEST_F(Hooks, may_allocate_and_get_no_hooks_of_their_own) {
  auto cache = take(1024);
  const auto rest = take(1024);
  RoundResult inner;
  add(hook("spills", [&] {
    EXPECT_TRUE(guard::inside_hook());
    EXPECT_FALSE(manager.alloc<std::byte>(1));  // nothing is set aside for it
    inner = round_for(1);
    EXPECT_TRUE(cache.release());
    EXPECT_TRUE(manager.alloc<std::byte>(1024));
    return 1024;
  }));
  const auto result = round_for(1024);
  EXPECT_TRUE(result.claimed());
  EXPECT_EQ(inner.end, RoundEnd::inside_hook);
  EXPECT_THAT(inner.turns, IsEmpty());
  EXPECT_EQ(result.runs, 1U);
  EXPECT_EQ(result.turns.at(0).freed_bytes, 2048U);  // the cache, and what it allocated meanwhile
  EXPECT_EQ(result.turns.at(0).ledger_fell_bytes, 1024);
}

TEST_F(Hooks, of_another_registry_do_not_run_inside_a_hook_either) {
  HookRegistry other{ledger};
  ASSERT_TRUE(other.add(hook("other", [&] { return called.emplace_back("other"), 0; })));
  add(hook("outer", [&] {
    EXPECT_EQ(other.run_round({}).end, RoundEnd::inside_hook);
    return 0;
  }));
  round_for(4096);
  EXPECT_THAT(called, IsEmpty());
}

TEST_F(Hooks, that_free_nothing_make_no_progress) {
  const auto full = take(2048);
  add(hook("claims to have freed", [] { return 4096; }));
  const auto result = round_for(1024);
  EXPECT_EQ(result.end, RoundEnd::exhausted);
  EXPECT_FALSE(result.made_progress);
  EXPECT_EQ(result.reported_bytes, 4096U);
  EXPECT_EQ(result.freed_bytes, 0U);
}

TEST_F(Hooks, freed_bytes_are_those_of_their_own_thread_and_ledger) {
  auto here = take(512);
  auto elsewhere = take(256);
  auto reserved = manager.reserve_bytes(128).value();
  auto other_manager = null_manager(MemoryBudget::unlimited());
  auto foreign = other_manager.alloc<std::byte>(4096).value();
  const auto full = take(2048 - 512 - 256 - 128);
  add(hook("mixed", [&] {
    EXPECT_TRUE(here.release());
    EXPECT_TRUE(foreign.release());
    reserved.release();
    std::thread{[&] { EXPECT_TRUE(elsewhere.release()); }}.join();
    return 0;
  }));
  const auto result = round_for(2048);
  ASSERT_EQ(result.turns.size(), 1U);
  EXPECT_EQ(result.turns[0].freed_bytes, 512U + 128U);
  EXPECT_EQ(result.turns[0].ledger_fell_bytes, 512 + 128 + 256);
  EXPECT_EQ(registry.totals().freed_bytes, 640U);
}

TEST_F(Hooks, rest_when_the_deadline_has_passed) {
  add_noting("too late");
  HookRound round;
  round.context.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(registry.run_round(round).end, RoundEnd::deadline);
  EXPECT_THAT(called, IsEmpty());
}

TEST_F(Hooks, end_at_the_deadline_that_passes_during_one) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{1};
  add(hook("slow", [&] {
    while (std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return 0;
  }));
  add_noting("too late", 1);
  HookRound round;
  round.context.deadline = deadline;
  EXPECT_EQ(registry.run_round(round).end, RoundEnd::deadline);
  EXPECT_THAT(called, IsEmpty());
}

TEST_F(Hooks, that_report_more_than_there_can_be_do_not_make_the_sum_wrap) {
  add(hook("minus one", [] { return ~std::uint64_t{0}; }));
  for (int i = 0; i < 10; ++i) round_for(4096);
  EXPECT_EQ(shown("minus one").reported_bytes, 175'921'860'444'150U);  // ten times 2^44 - 1
  EXPECT_EQ(registry.totals().reported_bytes, 175'921'860'444'150U);
}

TEST_F(Hooks, that_only_use_scratch_memory_make_no_progress) {
  const auto full = take(2000);
  add(hook("scratch", [&] { return take(40).size() == 40 ? 1 : 0; }));
  add(hook("scratch out of a reservation of its own", [&] {
    auto reservation = manager.reserve_bytes(40).value();
    return reservation.alloc<std::byte>(30)->size() == 30 ? 1 : 0;
  }));
  const auto result = round_for(1024);
  EXPECT_EQ(result.runs, 2U);
  EXPECT_EQ(result.freed_bytes, 80U);  // all of it really freed, and none of it a gain
  EXPECT_FALSE(result.made_progress);
}

TEST_F(Hooks, that_use_scratch_memory_of_a_reserve_make_no_progress) {
  auto reserve = manager.reserve_bytes(48).value();
  const auto full = take(2000);
  add(hook("scratch", [&] { return reserve.alloc<std::byte>(40)->size() == 40 ? 1 : 0; }));
  const auto result = round_for(1024);
  EXPECT_EQ(result.turns.at(0).ledger_fell_bytes, 40);  // until the reserve claims it back
  EXPECT_FALSE(result.made_progress);
}

TEST_F(Hooks, that_free_more_than_they_took_make_progress) {
  auto cache = take(100);
  const auto full = take(1900);
  add(hook("moves", [&] {
    const auto scratch = take(48);
    return cache.release() && scratch.size() == 48 ? 100 : 0;
  }));
  EXPECT_TRUE(round_for(1024).made_progress);
}

TEST_F(Hooks, whose_memory_another_thread_frees_make_progress_beside_scratch_memory) {
  auto cache = take(100);
  const auto full = take(1900);
  add(hook("asks another", [&] {
    const auto scratch = take(48);
    std::thread{[&] { EXPECT_TRUE(cache.release()); }}.join();
    return scratch.size() == 48 ? 100 : 0;
  }));
  EXPECT_TRUE(round_for(1024).made_progress);
}

// ── the list, from inside ──

TEST_F(Hooks, are_removed_by_name_all_of_that_name) {
  add_noting("twin");
  add_noting("single");
  add_noting("twin");
  EXPECT_FALSE(registry.remove("nobody"));
  EXPECT_TRUE(registry.remove("twin"));
  EXPECT_FALSE(registry.remove("twin"));
  EXPECT_EQ(registry.size(), 1U);
  round_for(4096);
  EXPECT_THAT(called, ElementsAre("single"));
}

TEST_F(Hooks, may_remove_themselves_and_others) {
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> is_alive = alive;
  add(hook(
      "removes itself",
      [&, kept = std::move(alive)] {
        EXPECT_TRUE(registry.remove("removes itself"));
        EXPECT_FALSE(is_alive.expired());  // until it returned
        return called.emplace_back("removes itself"), 0;
      },
      0));
  add(hook(
      "removes the next",
      [&] {
        EXPECT_TRUE(registry.remove("removed"));
        EXPECT_FALSE(registry.remove("removes itself"));
        return called.emplace_back("removes the next"), 0;
      },
      1));
  add_noting("removed", 2);
  add_noting("last", 3);
  const auto first = round_for(4096);
  EXPECT_THAT(called, ElementsAre("removes itself", "removes the next", "last"));
  EXPECT_EQ(names(first), called);
  EXPECT_TRUE(is_alive.expired());
  called.clear();
  EXPECT_EQ(registry.size(), 2U);
}

TEST_F(Hooks, registered_inside_a_round_have_their_turn_in_the_next) {
  bool once = false;
  add(hook("registers", [&] {
    if (!std::exchange(once, true)) add_noting("new", 1);
    return 0;
  }));
  round_for(4096);
  EXPECT_THAT(called, IsEmpty());
  EXPECT_EQ(registry.size(), 2U);
  round_for(4096);
  EXPECT_THAT(called, ElementsAre("new"));
}

TEST_F(Hooks, a_callback_that_ends_may_call_back) {
  struct Removes {
    HookRegistry& registry;
    ~Removes() { registry.remove("second"); }
  };
  add_noting("second");
  auto removes = std::make_shared<Removes>(registry);
  add(hook("first", [removes = std::move(removes)] { return 0; }));
  EXPECT_TRUE(registry.remove("first"));
  EXPECT_EQ(registry.size(), 0U);
}

TEST_F(Hooks, a_thousand_are_called_in_order_and_counted) {
  constexpr int kMany = 1000;
  const auto runs_shown = [](std::uint32_t ledger_id) {
    std::uint64_t runs = 0;
    for (auto const& hook : flight::FlightView::of_this_process().value().hooks()) {
      if (hook.ledger_id == ledger_id) runs += hook.runs;
    }
    return runs;
  };
  const std::uint64_t folded_before = runs_shown(0);
  std::vector<int> order;
  for (int i = kMany - 1; i >= 0; --i) add(hook("hook " + std::to_string(i), [&order, i] { return order.push_back(i), 1; }, i));
  EXPECT_EQ(registry.size(), 1000U);
  const auto result = round_for(4096);
  ASSERT_EQ(order.size(), 1000U);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(result.runs, 1000U);
  EXPECT_EQ(result.reported_bytes, 1000U);
  // The file has 255 cells for them; the others are counted together, and every run is counted once.
  EXPECT_EQ(runs_shown(ledger.directory_id()), 255U);
  EXPECT_EQ(runs_shown(0) - folded_before, 745U);
  EXPECT_TRUE(registry.remove("hook 999"));  // has a cell: it was the first to come
  add(hook("with a cell again", [] { return 0; }));
  EXPECT_EQ(shown("with a cell again").runs, 0U);
}

}  // namespace
}  // namespace headroom::test
