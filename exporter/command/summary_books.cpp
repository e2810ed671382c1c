// The summary of a flight file, or of a post-mortem: the books of a living process, or what one left behind.
#include <algorithm>
#include <iostream>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <headroom/byte_size.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>

#include "command/figures.hpp"
#include "command/output.hpp"
#include "command/process_figures.hpp"
#include "command/summary_sources.hpp"

namespace headroom::command {
namespace {

using enum Table::Align;

/// What is live, by the table rather than by the counters: each block was seen.
struct Live {
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
};

[[nodiscard]] Live count_live(follow::Source const& source, ProcessFigures const& process) {
  Live live;
  source.for_each_live([&](flight::LiveAllocation const& allocation) {
    auto const is_here = [&](flight::LedgerSnapshot const& manager) { return manager.cell == allocation.ledger; };
    if (std::ranges::none_of(process.managers, is_here)) return;
    live.bytes += allocation.bytes;
    ++live.allocations;
  });
  for (auto const& manager : process.managers) {
    live.bytes += manager.live_untracked_bytes;
    live.allocations += manager.live_untracked;
  }
  return live;
}

[[nodiscard]] std::string label(follow::Source const& source, std::uint32_t id) {
  auto name = source.name(id);
  return name ? std::move(name->label) : std::string{};
}

struct Events {
  std::uint64_t recorded = 0, read = 0, lost = 0;  ///< read + lost = recorded
  bool left_out = false;                           ///< of a post-mortem that was written without them
  std::uint64_t newest_ticks = 0;                  ///< 0: there was none
};

/// Reads until the file was quiet for the time of a poll, or for long enough that it never is: then its own sum stands for the heads,
/// which is what they were at the last poll.
[[nodiscard]] Result<Events> count_events(follow::Source& source) {
  constexpr int kPolls = 50;
  Events events;
  follow::News news;
  for (int i = 0; i < kPolls && !news.ended; ++i) {
    news.events.clear();
    news.gaps.clear();
    if (auto const read = source.read(news); !read) return tl::unexpected{read.error()};
    for (auto const& event : news.events) events.newest_ticks = std::max(events.newest_ticks, event.ticks);
    if (source.process().events_recorded == source.accepted() + source.lost()) break;
  }
  events.read = source.accepted();
  events.lost = source.lost();
  events.recorded = events.read + events.lost;
  if (events.recorded == 0) {
    events.recorded = source.process().events_recorded;
    events.left_out = events.recorded != 0;
  }
  return events;
}

[[nodiscard]] double lifetime_seconds(ProcessFigures const& process) {
  if (process.living()) return process.age_seconds;
  auto const end = std::max(process.info.last_activity_realtime_ns, process.info.start_realtime_ns);
  return static_cast<double>(end - process.info.start_realtime_ns) * 1e-9;
}

[[nodiscard]] Figures to_figures(ProcessFigures const& process, Live const& live, Events const& events) {
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  for (auto const& manager : process.managers) {
    allocations += manager.counters.allocations;
    frees += manager.counters.frees;
  }
  return {.allocations = allocations,
          .frees = frees,
          .trace_failures = 0,
          .refused = process.failures,
          .unmatched_frees = 0,
          .peak_bytes = std::max(process.peak_bytes, process.allocated_bytes),
          .live_bytes = live.bytes,
          .live_allocations = live.allocations,
          .budget_bytes = process.budget_bytes,
          .claimed_bytes = process.claimed_bytes,
          .elapsed_seconds = lifetime_seconds(process),
          .events_recorded = events.recorded,
          .events_read = events.left_out ? std::nullopt : std::optional{events.read},
          .events_lost = events.left_out ? std::nullopt : std::optional{events.lost},
          .loop_frees = 0};
}

void print_head(std::string const& path, ProcessFigures const& process) {
  auto const& info = process.info;
  auto const colour = process.living() ? Colour::green : process.state == "killed" ? Colour::red : Colour::plain;
  std::cout << printable(path) << ": " << printable(info.program) << ", pid " << info.pid << ", "
            << painted(process.state, colour) << (process.is_record ? " when this was written," : "")
            << (process.living() ? ", for " : " after ") << format_seconds(lifetime_seconds(process)) << '\n';
  Table table{{{"", left}, {"", left}}, "  "};
  table.add({"started", format_utc(info.start_realtime_ns) + " on " + printable(info.host)});
  if (!info.command.empty()) table.add({"command", printable(info.command)});
  if (!process.living()) table.add({"last sign of life", format_utc(info.last_activity_realtime_ns)});
  if (info.was_shrunk) table.add({"note", "rings and table were made smaller to fit the memory file system"});
  if (info.events_off) table.add({"note", "events were off; the books are whole"});
  table.print(std::cout);
}

void print_manager(flight::LedgerSnapshot const& manager) {
  std::cout << painted("manager " + printable(manager.name), Colour::bold);
  if (!manager.device_name.empty()) std::cout << " on " << printable(manager.device_name);
  std::cout << '\n';
  Table table{{{"", left}, {"", left}}, "  "};
  table.add({"budget", format_budget(manager.limit) + (manager.limit && !manager.enforcing ? ", only observed" : "")});
  table.add({"live", format_count(manager.live_allocations) + " allocations, " + format_bytes_exact(manager.allocated)});
  table.add({"peak", format_bytes_exact(manager.peak)});
  if (manager.claimed != manager.allocated) table.add({"claimed", format_bytes_exact(manager.claimed)});
  table.add({"allocations", format_count(manager.counters.allocations)});
  table.add({"frees", format_count(manager.counters.frees)});
  table.add({"pressure", std::string{to_string(manager.pressure)}});
  auto const& guard = manager.guard;
  if (auto const recoveries = std::accumulate(guard.recoveries.begin(), guard.recoveries.end(), std::uint64_t{0});
      recoveries + guard.gave_up + guard.hook_runs + guard.policy_waits + guard.checkpoints != 0) {
    table.add({"short of memory", format_count(recoveries) + " requests recovered, " + format_count(guard.gave_up) +
                                      " failed though something was tried"});
    table.add({"tried", counted(guard.hook_runs, "hook run") + " freed " + format_bytes(guard.hook_freed_bytes) + ", " +
                            counted(guard.policy_waits, "wait") + " of " +
                            format_seconds(static_cast<double>(guard.policy_wait_ns) * 1e-9) + " in all, " +
                            format_count(guard.checkpoints) + " checkpoints"});
  }
  for (std::size_t kind = 0; kind < manager.free_failures.size(); ++kind) {
    auto const count = manager.free_failures[kind];
    if (count == 0 || static_cast<ErrorKind>(kind) == ErrorKind::driver) continue;  // the driver's: below
    table.add({"refused frees", {format_count(count) + " " + std::string{to_string(static_cast<ErrorKind>(kind))}, Colour::red}});
  }
  if (manager.failed_frees != 0) {
    table.add(
        {"failed frees", {format_count(manager.failed_frees) + ", " + format_bytes(manager.failed_free_bytes), Colour::red}});
  }
  table.print(std::cout);

  auto tags = manager.tags;
  std::erase_if(tags, [](flight::TagSnapshot const& tag) { return tag.bytes == 0 && tag.at_peak_bytes == 0; });
  if (tags.empty()) return;
  std::ranges::sort(tags, std::ranges::greater{}, &flight::TagSnapshot::at_peak_bytes);
  constexpr std::size_t kMostTags = 12;
  Table held{{{"TAG", left}, {"AT THE PEAK", right}, {"NOW", right}, {"ALLOCATIONS", right}}, "  "};
  for (std::size_t i = 0; i < std::min(tags.size(), kMostTags); ++i) {
    auto const& tag = tags[i];
    held.add({printable(tag.name), format_bytes(tag.at_peak_bytes), format_bytes(tag.bytes), format_count(tag.allocations)});
  }
  held.print(std::cout);
  if (tags.size() > kMostTags) std::cout << "  and " << format_count(tags.size() - kMostTags) << " tags more\n";
}

void print_failures(follow::Source const& source) {
  auto failures = source.first_failures();
  if (failures.empty()) return;
  std::ranges::sort(failures, std::ranges::less{}, &flight::FirstFailureInfo::first_ticks);
  auto const clock = source.clock();
  std::cout << painted("failed requests", Colour::bold) << '\n';
  Table table{{{"REASON", left},
               {"LAYER", left},
               {"TAG", left},
               {"COUNT", right},
               {"FIRST", left},
               {"ASKED", right},
               {"CLAIMED", right},
               {"BUDGET", right}},
              "  "};
  for (auto const& failure : failures) {
    table.add({{std::string{to_string(failure.kind)}, Colour::red},
               std::string{to_string(failure.layer)},
               printable(label(source, failure.tag)),
               format_count(failure.count),
               format_utc(clock.realtime_ns(failure.first_ticks)),
               format_bytes(failure.requested),
               format_bytes(failure.claimed),
               format_budget(failure.limit)});
  }
  table.print(std::cout);
}

void print_hooks(follow::Source const& source, ProcessFigures const& process) {
  auto const hooks = source.hooks();
  if (hooks.empty()) return;
  auto const clock = source.clock();
  std::cout << painted("hooks", Colour::bold) << '\n';
  Table table{{{"HOOK", left},
               {"MANAGER", left},
               {"RUNS", right},
               {"SKIPPED", right},
               {"FAILED", right},
               {"OVER TIME", right},
               {"FREED", right},
               {"REPORTED", right},
               {"TIME", right},
               {"NOW", left}},
              "  "};
  for (auto const& hook : hooks) {
    // A dead process's hook was running when it died.
    std::string const now = !hook.running_since_ticks ? ""
                                                      : (process.living() ? "runs since " : "ran since ") +
                                                            format_utc(clock.realtime_ns(*hook.running_since_ticks)) +
                                                            " on thread " + std::to_string(hook.running_thread);
    table.add({printable(hook.name),
               hook.ledger_id == 0 ? "(any)" : printable(label(source, hook.ledger_id)),
               format_count(hook.runs),
               format_count(hook.skips + hook.busy_skips),
               {format_count(hook.errors), hook.errors == 0 ? Colour::plain : Colour::red},
               format_count(hook.overruns),
               format_bytes(hook.freed_bytes),
               format_bytes(hook.reported_bytes),
               format_seconds(static_cast<double>(hook.duration_ns) * 1e-9),
               now});
  }
  table.print(std::cout);
}

void print_in_flight(follow::Source const& source, ProcessFigures const& process) {
  auto const operations = source.in_flight();
  if (operations.empty()) return;
  auto const clock = source.clock();
  std::cout << painted(process.living()    ? "at work now"
                       : process.is_record ? "at work when this was written"
                                           : "at work when it ended",
                       Colour::bold)
            << '\n';
  Table table{{{"THREAD", right}, {"NAME", left}, {"OPERATION", left}, {"BYTES", right}, {"SINCE", left}}, "  "};
  for (auto const& operation : operations) {
    table.add({std::to_string(operation.thread), printable(operation.thread_name), word_of(operation.operation),
               format_bytes(operation.bytes), format_utc(clock.realtime_ns(operation.since_ticks))});
  }
  table.print(std::cout);
}

}  // namespace

Result<std::uint64_t> summarize_books(Source& source, SummaryOptions const& options) {
  auto const opened = source.records();
  if (!opened) return tl::unexpected{opened.error()};
  auto& records = **opened;
  auto process = process_figures(records);
  auto const live = count_live(records, process);
  auto const events = count_events(records);
  if (!events) return tl::unexpected{events.error()};
  // Clocks are noted about once a second, events when they happen.
  if (events->newest_ticks != 0) {
    auto& last_activity = process.info.last_activity_realtime_ns;
    last_activity = std::max(last_activity, records.clock().realtime_ns(events->newest_ticks));
  }
  auto const figures = to_figures(process, live, *events);
  if (options.json) {
    print_json_line(to_json(figures));
    return *figures.peak_bytes;
  }
  print_head(source.name(), process);
  for (auto const& manager : process.managers) print_manager(manager);
  print_failures(records);
  print_hooks(records, process);
  print_in_flight(records, process);
  if (!process.living() && live.allocations != 0) {
    std::cout << (process.is_record ? "live when this was written: " : "still live when it ended: ")
              << format_count(live.allocations) << " allocations, " << format_bytes_exact(live.bytes) << '\n';
  }
  std::cout << "events: " << format_count(events->recorded) << " recorded, ";
  if (events->left_out) {
    std::cout << "left out of this file\n";
  } else {
    std::cout << format_count(events->read) << " still to be read, " << format_count(events->lost) << " overwritten\n";
  }
  return *figures.peak_bytes;
}

}  // namespace headroom::command
