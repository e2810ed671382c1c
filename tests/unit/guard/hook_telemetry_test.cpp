// What a reader of the flight file sees of hooks: every figure of every event, totals, cells that are used again.
#include "hook_rounds.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;

TEST_F(Hooks, every_figure_of_a_run_is_in_its_events) {
  auto cache = take(512);
  const auto rest = take(1500);
  auto frees = hook("frees", [&] { return cache.release() ? 600 : 0; }, -5, 700);
  frees.time_limit = std::chrono::seconds{3600};
  add(frees);
  flight::EventReader reader{flight::FlightView::of_this_process().value()};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  events.clear();
  const auto result = round_for(1024);  // 2012 + 1024 − 2048 = 988 are missing
  EXPECT_FALSE(result.claimed());
  reader.poll(events, gaps);
  std::erase_if(events,
                [](auto const& event) { return event.kind != EventKind::hook_begin && event.kind != EventKind::hook_end; });
  ASSERT_EQ(events.size(), 3U);
  flight::sort_timeline(events);
  const auto id = shown("frees").directory_id;
  auto const& begin = events[0];
  EXPECT_EQ(begin.kind, EventKind::hook_begin);
  EXPECT_EQ(begin.words[2], 988U);
  EXPECT_EQ(begin.words[3], 700U);
  EXPECT_EQ(begin.words[4], 36U);
  EXPECT_EQ(begin.words[6], 1024U);
  EXPECT_EQ(begin.hook(), id);
  EXPECT_EQ(begin.ledger(), manager.ledger_cell());
  EXPECT_EQ(begin.thread(), flight::this_thread().thread_id);
  auto const& end = events[1];
  EXPECT_EQ(end.kind, EventKind::hook_end);
  EXPECT_EQ(end.flags(), 0U);
  EXPECT_EQ(end.words[flight::HookEnd::kReported], 600U);
  EXPECT_EQ(end.words[flight::HookEnd::kFreed], 512U);
  EXPECT_EQ(end.words[flight::HookEnd::kNs], static_cast<std::uint64_t>(result.turns.at(0).duration.count()));
  EXPECT_EQ(end.hook(), id);
  EXPECT_EQ(end.ledger(), manager.ledger_cell());
  auto const& tail = events[2];
  EXPECT_EQ(tail.flags(), flight::kFlagContinues);
  EXPECT_EQ(tail.words[flight::HookEndTail::kLedgerFell], 512U);
  EXPECT_EQ(tail.words[flight::HookEndTail::kEstimate], 700U);
  EXPECT_EQ(tail.words[flight::HookEndTail::kRequested], 1024U);
  EXPECT_EQ(tail.words[flight::HookEndTail::kShortfall], 988U);
  EXPECT_EQ(tail.words[flight::HookEndTail::kLimitNs], 3'600'000'000'000U);
}

TEST_F(Hooks, totals_stand_in_the_hooks_cell) {
  auto a = take(100);
  auto b = take(50);
  add(hook(
      "cell",
      [&] {
        if (a.release() && a.data() == nullptr && b.size() == 50)
          return std::exchange(held, {}).empty() && b.release() ? 1000 : 0;
        return 0;
      },
      12, 77));
  round_for(4096);
  round_for(4096);
  const auto cell = shown("cell");
  EXPECT_EQ(cell.priority, 12);
  EXPECT_EQ(cell.runs, 2U);
  EXPECT_EQ(cell.errors, 0U);
  EXPECT_EQ(cell.freed_bytes, 150U);
  EXPECT_EQ(cell.reported_bytes, 1000U);
  EXPECT_EQ(cell.estimated_bytes, 154U);
  EXPECT_FALSE(cell.running_since_ticks.has_value());
  std::uint64_t in_histogram = 0;
  for (const auto count : cell.duration_histogram) in_histogram += count;
  EXPECT_EQ(in_histogram, 2U);
}

TEST_F(Hooks, a_throw_is_a_flag_of_the_end) {
  add(hook("throws", []() -> std::uint64_t { throw 1; }));
  EventWatch watch;
  round_for(4096);
  const auto ends = watch.of(manager, EventKind::hook_end);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(ends[0].hook_threw());
  EXPECT_FALSE(ends[0].hook_overran());
  EXPECT_EQ(shown("throws").errors, 1U);
}

TEST_F(Hooks, a_turn_without_a_run_is_an_event_with_its_reason) {
  auto hungry = hook("hungry", [] { return 0; });
  hungry.execution_overhead_bytes = 2049;
  add(hungry);
  EventWatch watch;
  round_for(4096);
  const auto skips = watch.of(manager, EventKind::hook_skip);
  ASSERT_EQ(skips.size(), 1U);
  EXPECT_EQ(skips[0].words[2], 2048U);
  EXPECT_EQ(skips[0].words[3], 2049U);
  EXPECT_EQ(skips[0].words[4], 2048U);
  EXPECT_EQ(skips[0].words[6], static_cast<std::uint64_t>(flight::HookSkip::large));
  EXPECT_EQ(watch.count(manager, EventKind::hook_begin), 0U);
}

TEST_F(Hooks, are_seen_from_inside_while_they_run) {
  flight::HookSnapshot inside;
  add(hook("running", [&] { return inside = shown("running"), 0; }));
  EXPECT_FALSE(shown("running").running_since_ticks.has_value());
  round_for(4096);
  ASSERT_TRUE(inside.running_since_ticks.has_value());
  EXPECT_EQ(inside.running_thread, flight::this_thread().thread_id);
  EXPECT_EQ(inside.limit_ns, 600'000'000'000U);
  EXPECT_EQ(inside.runs, 0U);
}

// Its own thread notices when nobody waited for it.
TEST_F(Hooks, a_run_over_its_limit_is_an_event_when_it_ends) {
  auto slow = hook("slow", [] {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds{2}) continue;
    return 0;
  });
  slow.time_limit = std::chrono::nanoseconds{1'000'000};
  add(slow);
  EventWatch watch;
  const auto result = round_for(4096);
  EXPECT_TRUE(result.turns.at(0).overran);
  EXPECT_EQ(watch.count(manager, EventKind::hook_overrun), 1U);
  EXPECT_EQ(shown("slow").overruns, 1U);
  EXPECT_TRUE(watch.of(manager, EventKind::hook_end).at(0).hook_overran());
}

TEST_F(Hooks, a_cell_that_is_used_again_begins_at_nothing) {
  add(hook("first life", [] { return 5; }));
  round_for(4096);
  const auto first = shown("first life");
  EXPECT_EQ(first.runs, 1U);
  EXPECT_TRUE(registry.remove("first life"));
  for (auto const& hook : flight::FlightView::of_this_process().value().hooks()) EXPECT_NE(hook.name, "first life");
  add(hook("second life", [] { return 7; }));
  const auto second = shown("second life");
  EXPECT_EQ(second.cell, first.cell);
  EXPECT_EQ(second.runs, 0U);
  EXPECT_EQ(second.reported_bytes, 0U);
  EXPECT_EQ(second.limit_ns, 0U);
}

TEST_F(Hooks, a_name_of_any_bytes_is_shown_as_valid_text) {
  add(hook("caf\xe9\n\"x\"", [] { return 0; }));
  const auto hooks = flight::FlightView::of_this_process().value().hooks();
  const auto found = std::ranges::find_if(hooks, [&](auto const& hook) { return hook.ledger_id == ledger.directory_id(); });
  ASSERT_NE(found, hooks.end());
  EXPECT_EQ(found->name, "caf\xef\xbf\xbd\n\"x\"");
}

}  // namespace
}  // namespace headroom::test
