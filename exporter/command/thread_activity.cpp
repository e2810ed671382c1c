#include "command/thread_activity.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <headroom/follow.hpp>
#include <headroom/follow_words.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

/// Started at `ticks`, on both clocks. The clock on the wall may be set; how long ago comes from the one that cannot.
class Since {
public:
  Since(flight::FlightView const& view, bool is_living) : clock_{view.clock()}, is_living_{is_living} {
    auto const now = std::chrono::steady_clock::now().time_since_epoch();  // CLOCK_MONOTONIC, like the file's
    now_ns_ = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }

  [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t ticks) const noexcept { return clock_.realtime_ns(ticks); }
  [[nodiscard]] std::optional<double> seconds(std::uint64_t ticks) const noexcept {
    if (!is_living_) return std::nullopt;
    auto const then = std::min(clock_.monotonic_ns(ticks), now_ns_);
    return static_cast<double>(now_ns_ - then) * 1e-9;
  }

private:
  flight::ClockMap clock_;
  bool is_living_;
  std::uint64_t now_ns_ = 0;
};

void add_operation(ThreadActivity& thread, flight::InFlightOperation const& operation, ProcessFigures const& process,
                   Since const& since) {
  thread.operation = operation.operation;
  thread.bytes = operation.bytes;
  thread.since_realtime_ns = since.realtime_ns(operation.since_ticks);
  thread.seconds = since.seconds(operation.since_ticks);
  auto const manager = std::ranges::find(process.managers, operation.ledger, &flight::LedgerSnapshot::cell);
  if (manager == process.managers.end()) return;
  thread.manager = manager->name;
  thread.device = manager->device_name;
}

void add_hook(ThreadActivity& thread, flight::HookSnapshot const& hook, Since const& since) {
  thread.hook = hook.name;
  thread.hook_limit_ns = hook.limit_ns;
  thread.hook_since_realtime_ns = since.realtime_ns(*hook.running_since_ticks);
  thread.hook_seconds = since.seconds(*hook.running_since_ticks);
}

/// " since 3.2 s", or " since 2026-01-31 12:00:00 UTC" of the dead.
[[nodiscard]] std::string since_text(std::optional<double> seconds, std::optional<std::uint64_t> realtime_ns) {
  if (seconds) return " since " + format_seconds(*seconds);
  return realtime_ns ? " since " + format_utc(*realtime_ns) : std::string{};
}

[[nodiscard]] std::string operation_text(ThreadActivity const& activity) {
  auto const is_slow = !activity.seconds || *activity.seconds >= static_cast<double>(follow::kWaitsForDeviceNs) * 1e-9;
  return follow::operation_in_words(activity.operation, activity.bytes, printable(activity.device), is_slow);
}

/// Who waits for room, for the checkpoint callback, or for another thread's run of a hook, by the journal.
void add_shortages(std::vector<ThreadActivity>& threads, flight::FlightView const& view, ProcessFigures const& process,
                   Since const& since) {
  if (process.failures == 0 || process.state == "exited") return;
  constexpr std::size_t kMostStories = 64;  // no more threads than that have a lane
  follow::Model model{follow::flight_source(view),
                      {.memory_bytes = std::size_t{64} << 10U, .failures = kMostStories, .operations = false}};
  if (!model.catch_up()) return;
  for (auto const& story : model.failures(kMostStories)) {
    auto const thread = std::ranges::find(threads, story.thread, &ThreadActivity::thread);
    auto const is_under_way = story.end == follow::FailureEnd::under_way && story.doing && !story.incomplete;
    if (!is_under_way || thread == threads.end() || !thread->idle()) continue;
    auto const ticks = story.doing_since == 0 ? story.ticks : story.doing_since;
    thread->short_of_memory = story.doing;
    thread->bytes = story.requested;
    thread->manager = story.ledger_name;
    thread->since_realtime_ns = since.realtime_ns(ticks);
    thread->seconds = since.seconds(ticks);
  }
}

}  // namespace

std::vector<ThreadActivity> thread_activities(flight::FlightView const& view, ProcessFigures const& process) {
  Since const since{view, process.living()};
  auto const operations = view.in_flight();
  std::vector<ThreadActivity> threads;
  for (auto const& lane : view.lanes()) {
    if (!lane.owned) continue;
    ThreadActivity thread;
    thread.thread = lane.thread;
    thread.name = lane.thread_name;
    auto const operation = std::ranges::find(operations, lane.lane, &flight::InFlightOperation::lane);
    if (operation != operations.end()) add_operation(thread, *operation, process, since);
    threads.push_back(std::move(thread));
  }
  for (auto const& hook : view.hooks()) {
    if (!hook.running_since_ticks) continue;
    auto found = std::ranges::find(threads, hook.running_thread, &ThreadActivity::thread);
    if (found == threads.end() || !found->hook.empty()) {  // without a lane, or a hook of another guard within a hook
      ThreadActivity thread;
      thread.thread = hook.running_thread;
      found = threads.insert(threads.end(), std::move(thread));
    }
    add_hook(*found, hook, since);
  }
  add_shortages(threads, view, process, since);
  return threads;
}

std::string word_of(ThreadActivity const& activity) {
  if (!activity.short_of_memory) return word_of(activity.operation);
  return *activity.short_of_memory == flight::PolicyStep::checkpoint ? "checkpoint" : "waiting";
}

std::string sentence(ThreadActivity const& activity) {
  std::string text;
  if (!activity.hook.empty()) {
    text = "running hook " + printable(activity.hook) + since_text(activity.hook_seconds, activity.hook_since_realtime_ns);
    if (activity.hook_limit_ns != 0) {
      text += " (limit " + format_seconds(static_cast<double>(activity.hook_limit_ns) * 1e-9) + ')';
    }
    if (activity.operation == flight::InFlight::none) return text;
    text += ", in it ";
  }
  text +=
      activity.short_of_memory ? follow::shortage_in_words(*activity.short_of_memory, activity.bytes) : operation_text(activity);
  if (activity.idle()) return text;
  if (!activity.manager.empty()) text += " for manager " + printable(activity.manager);
  return text + since_text(activity.seconds, activity.since_realtime_ns);
}

}  // namespace headroom::command
