// What happened and what goes on: failures, hooks, threads, and what nobody saw.
#include <algorithm>
#include <string>
#include <utility>

#include <headroom/follow_words.hpp>

#include "state_parts.hpp"

namespace headroom::exporter {
namespace {

using flight::InFlight;

std::uint64_t age_ns(Look const& look, std::uint64_t ticks) {
  const auto then = look.clock.monotonic_ns(ticks);
  return look.monotonic_ns > then ? look.monotonic_ns - then : 0;
}

flight::LedgerSnapshot const* ledger_of(Look const& look, std::uint32_t cell) {
  const auto found = std::ranges::find(look.ledgers, cell, &flight::LedgerSnapshot::cell);
  return found == look.ledgers.end() ? nullptr : &*found;
}

Json failure_json(follow::FailureStory const& story, Look const& look) {
  auto words = follow::failure_in_words(story, [&look](std::uint64_t ticks) { return look.clock.duration_ns(ticks); });
  Json failure;
  failure["number"] = figure(story.number);
  failure["at_second"] = seconds(look.clock.monotonic_ns(story.ticks));
  failure["age_seconds"] = seconds(age_ns(look, story.ticks));
  failure["manager"] = name_or_null(story.ledger_name);
  failure["tag"] = name_or_null(story.tag);
  failure["site"] = name_or_null(story.site);
  failure["thread"] = story.thread;
  failure["requested_bytes"] = figure(story.requested);
  failure["reason"] = story.kind ? Json(to_string(*story.kind)) : Json(nullptr);
  failure["layer"] = story.layer ? Json(to_string(*story.layer)) : Json(nullptr);
  failure["allocated_bytes"] = figure(story.allocated);
  failure["claimed_bytes"] = figure(story.claimed);
  failure["budget_bytes"] = figure(story.limit);
  failure["device_free_bytes"] = figure(story.device_free);
  failure["end"] = follow::to_string(story.end);
  failure["what"] = std::move(words.what);
  failure["done"] = std::move(words.done);
  failure["outcome"] = std::move(words.outcome);
  return failure;
}

class Threads {
public:
  explicit Threads(Look const& look) : look_(look) {}

  void add(std::uint64_t thread, std::string doing, std::uint64_t since_ticks, Json manager) {
    const auto lane = std::ranges::find_if(look_.lanes, [thread](auto const& one) { return one.owned && one.thread == thread; });
    busy_.push_back({{"thread", figure(thread)},
                     {"name", lane == look_.lanes.end() ? Json(nullptr) : name_or_null(lane->thread_name)},
                     {"doing", std::move(doing)},
                     {"seconds", seconds(age_ns(look_, since_ticks))},
                     {"manager", std::move(manager)}});
    is_busy_.push_back(thread);
  }
  [[nodiscard]] bool is_busy(std::uint64_t thread) const { return std::ranges::find(is_busy_, thread) != is_busy_.end(); }

  [[nodiscard]] Json json() && {
    const auto attached = std::ranges::count_if(look_.lanes, [](auto const& lane) { return lane.owned; });
    return {{"attached", attached}, {"busy", std::move(busy_)}};
  }

private:
  Look const& look_;
  Json busy_ = Json::array();
  std::vector<std::uint64_t> is_busy_;
};

}  // namespace

Json failures_json(Look const& look) {
  auto list = Json::array();
  for (auto story = look.failures.rbegin(); story != look.failures.rend(); ++story) list.push_back(failure_json(*story, look));
  return list;
}

Json hooks_json(Look const& look) {
  auto list = Json::array();
  for (auto const& hook : look.hooks) {
    const auto owner = std::ranges::find(look.ledgers, hook.ledger_id, &flight::LedgerSnapshot::directory_id);
    const bool has_owner = hook.ledger_id != 0 && owner != look.ledgers.end();
    list.push_back(
        {{"name", name_or_null(hook.name)},
         {"manager", has_owner ? name_or_null(owner->name) : Json(nullptr)},
         {"priority", hook.priority},
         {"runs", figure(hook.runs)},
         {"freed_bytes", figure(hook.freed_bytes)},
         {"reported_bytes", figure(hook.reported_bytes)},
         {"errors", figure(hook.errors)},
         {"overruns", figure(hook.overruns)},
         {"skips", figure(hook.skips)},
         {"busy_skips", figure(hook.busy_skips)},
         {"seconds", seconds(hook.duration_ns)},
         {"running_seconds", hook.running_since_ticks ? seconds(age_ns(look, *hook.running_since_ticks)) : Json(nullptr)},
         {"limit_seconds", hook.limit_ns == 0 ? Json(nullptr) : seconds(hook.limit_ns)}});
  }
  return list;
}

Json threads_json(Look const& look) {
  Threads threads{look};
  for (auto const& operation : look.in_flight) {
    if (operation.operation == InFlight::none) continue;
    auto const* const ledger = ledger_of(look, operation.ledger);
    const bool is_slow = age_ns(look, operation.since_ticks) >= follow::kWaitsForDeviceNs;
    threads.add(operation.thread,
                follow::operation_in_words(operation.operation, operation.bytes,
                                           ledger == nullptr ? std::string{} : ledger->device_name, is_slow),
                operation.since_ticks, ledger == nullptr ? Json(nullptr) : name_or_null(ledger->name));
  }
  for (auto const& hook : look.hooks) {
    if (!hook.running_since_ticks) continue;
    const auto limit = hook.limit_ns == 0 ? std::string{} : " (limit " + follow::duration_in_words(hook.limit_ns) + ")";
    threads.add(hook.running_thread, "running hook '" + hook.name + "'" + limit, *hook.running_since_ticks, nullptr);
  }
  for (auto const& story : look.failures) {
    const bool is_under_way = story.end == follow::FailureEnd::under_way && story.doing && !story.incomplete;
    if (!is_under_way || threads.is_busy(story.thread)) continue;
    threads.add(story.thread, follow::shortage_in_words(*story.doing, story.requested),
                story.doing_since == 0 ? story.ticks : story.doing_since, name_or_null(story.ledger_name));
  }
  return std::move(threads).json();
}

Json losses_json(Look const& look) {
  auto const& process = look.process;
  return {{"events_recorded", figure(process.events_recorded)},
          {"events_read", figure(look.losses.events_read)},
          {"events_lost", figure(look.events_lost)},
          {"events_refused", figure(look.losses.events_refused)},
          {"failures_forgotten", figure(look.losses.forgotten_failures)},
          {"tags_folded", figure(process.tags_folded)},
          {"sites_folded", figure(process.sites_folded)},
          {"managers_without_books", figure(process.ledgers_without_cell)},
          {"events_off", process.events_off},
          {"was_shrunk", process.was_shrunk}};
}

}  // namespace headroom::exporter
