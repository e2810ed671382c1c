#include "command/top_frame.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <sstream>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

using enum Table::Align;

constexpr std::size_t kProcesses = 6;
constexpr std::size_t kFailures = 4;
constexpr std::size_t kHooks = 4;
constexpr std::size_t kThreads = 4;
constexpr std::size_t kBarWidth = 20;
constexpr std::uint64_t kLongNs = 100'000'000;  // an operation that takes a tenth of a second is worth a line

[[nodiscard]] Colour colour_of(PressureLevel level) noexcept {
  if (level >= PressureLevel::high) return Colour::red;
  return level >= PressureLevel::low ? Colour::yellow : Colour::plain;
}

[[nodiscard]] Colour red_unless_zero(std::uint64_t count) noexcept { return count == 0 ? Colour::plain : Colour::red; }

void print_processes(std::ostream& out, TopProcesses const& processes) {
  Table table{{{"", left},
               {"PID", right},
               {"PROGRAM", left},
               {"STATE", left},
               {"AGE", right},
               {"BUDGET", right},
               {"USED", right},
               {"PRESSURE", left},
               {"FAILURES", right}}};
  for (auto const& row : processes.rows(kProcesses)) {
    auto const& figures = row.figures;
    table.add({{row.is_selected ? ">" : " ", Colour::bold},
               std::to_string(row.pid),
               {printable(figures.info.program), row.is_selected ? Colour::bold : Colour::plain},
               {figures.state, figures.living()            ? Colour::green
                               : figures.state == "killed" ? Colour::red
                                                           : Colour::dim},
               format_seconds(figures.age_seconds),
               figures.managers.empty() ? "-" : format_budget(figures.budget_bytes),
               format_bytes(figures.allocated_bytes),
               {std::string{to_string(figures.pressure)}, colour_of(figures.pressure)},
               {format_count(figures.failures), red_unless_zero(figures.failures)}});
  }
  table.print(out);
  if (processes.count() > kProcesses) out << "  " << format_count(processes.count() - kProcesses) << " more\n";
}

void sort_tags(std::vector<flight::TagSnapshot>& tags, TopSort sort) {
  switch (sort) {
    case TopSort::tag: std::ranges::stable_sort(tags, {}, &flight::TagSnapshot::name); break;
    case TopSort::size: std::ranges::stable_sort(tags, std::ranges::greater{}, &flight::TagSnapshot::bytes); break;
    case TopSort::allocations: std::ranges::stable_sort(tags, std::ranges::greater{}, &flight::TagSnapshot::allocations); break;
  }
}

void print_manager(std::ostream& out, flight::LedgerSnapshot const& manager, TopSort sort, std::size_t most_tags) {
  out << painted("manager " + printable(manager.name), Colour::bold);
  if (!manager.device_name.empty()) out << " on " << printable(manager.device_name);
  out << '\n';
  // Claimed is what counts against the budget; the peak is one of allocated bytes.
  if (manager.limit) {
    out << "  " << painted(bar(manager.claimed, *manager.limit, kBarWidth), colour_of(manager.pressure)) << ' '
        << format_bytes(manager.claimed) << " of " << format_bytes(*manager.limit);
    if (auto const share = percent(manager.claimed, *manager.limit); !share.empty()) out << " (" << share << ')';
    if (!manager.enforcing) out << ", only observed";
  } else {
    out << "  " << format_bytes(manager.claimed) << ", no budget";
  }
  out << "  peak " << format_bytes(manager.peak) << "  live " << format_count(manager.live_allocations) << "  pressure "
      << painted(to_string(manager.pressure), colour_of(manager.pressure));
  if (manager.waiters != 0) out << "  waiting " << format_count(manager.waiters);
  if (manager.unspent != 0) out << "  reserved " << format_bytes(manager.unspent);
  if (manager.failed_frees != 0) out << "  " << painted(format_count(manager.failed_frees) + " failed frees", Colour::red);
  out << '\n';

  auto tags = manager.tags;
  std::erase_if(tags, [](flight::TagSnapshot const& tag) { return tag.bytes == 0 && tag.allocations == 0; });
  if (tags.empty()) return;
  sort_tags(tags, sort);
  Table table{{{"TAG", left}, {"NOW", right}, {"", right}, {"AT THE PEAK", right}, {"ALLOCATIONS", right}}, "  "};
  for (std::size_t i = 0; i < std::min(tags.size(), most_tags); ++i) {
    auto const& tag = tags[i];
    table.add({printable(tag.name), format_bytes(tag.bytes), percent(tag.bytes, manager.allocated),
               format_bytes(tag.at_peak_bytes), format_count(tag.allocations)});
  }
  table.print(out);
  if (tags.size() > most_tags) out << "  " << format_count(tags.size() - most_tags) << " more tags\n";
}

[[nodiscard]] std::string outcome_of(follow::FailureStory const& story) {
  std::uint64_t freed = 0;
  for (auto const& turn : story.hooks) freed += turn.freed;
  std::string text;
  switch (story.end) {
    case follow::FailureEnd::failed: text = "failed"; break;
    case follow::FailureEnd::recovered: text = "granted after all"; break;
    case follow::FailureEnd::gave_up: text = "failed for good"; break;
    case follow::FailureEnd::under_way: text = story.incomplete ? "end not recorded" : "under way"; break;
    case follow::FailureEnd::observed: text = "only observed"; break;
  }
  if (!story.hooks.empty()) text += ", hooks freed " + format_bytes(freed);
  return text;
}

void print_failures(std::ostream& out, follow::Model const& model) {
  auto const stories = model.failures(kFailures);
  if (stories.empty()) return;
  out << painted("last failures", Colour::bold) << '\n';
  Table table{{{"", left}, {"", right}, {"", left}, {"", left}, {"", left}}, "  "};
  for (auto i = stories.size(); i-- > 0;) {
    auto const& story = stories[i];
    auto const why = story.kind && story.layer
                         ? std::string{to_string(*story.kind)} + " by " + std::string{to_string(*story.layer)}
                         : std::string{"unknown"};
    table.add({format_utc(model.realtime_ns(story.ticks)).substr(11),
               format_bytes(story.requested),
               printable(story.tag),
               {why, Colour::red},
               outcome_of(story)});
  }
  table.print(out);
}

void print_hooks(std::ostream& out, follow::Model const& model) {
  auto hooks = model.source().hooks();
  std::erase_if(hooks, [](flight::HookSnapshot const& hook) {
    return hook.runs + hook.skips + hook.busy_skips == 0 && !hook.running_since_ticks;
  });
  if (hooks.empty()) return;
  std::ranges::stable_sort(hooks, std::ranges::greater{}, &flight::HookSnapshot::runs);
  out << painted("hooks", Colour::bold) << '\n';
  Table table{{{"HOOK", left},
               {"RUNS", right},
               {"SKIPPED", right},
               {"FAILED", right},
               {"FREED", right},
               {"REPORTED", right},
               {"NOW", left}},
              "  "};
  for (std::size_t i = 0; i < std::min(hooks.size(), kHooks); ++i) {
    auto const& hook = hooks[i];
    table.add({printable(hook.name),
               format_count(hook.runs),
               format_count(hook.skips + hook.busy_skips),
               {format_count(hook.errors), red_unless_zero(hook.errors)},
               format_bytes(hook.freed_bytes),
               format_bytes(hook.reported_bytes),
               hook.running_since_ticks ? "runs" : ""});
  }
  table.print(out);
}

void print_threads(std::ostream& out, follow::Model const& model) {
  auto const now = model.source().now_ticks();
  auto operations = model.source().in_flight();
  auto const age = [&](flight::InFlightOperation const& operation) {
    return now > operation.since_ticks ? model.duration_ns(now - operation.since_ticks) : 0;
  };
  auto const is_living = model.source().liveness() == flight::Liveness::living;
  std::erase_if(operations, [&](flight::InFlightOperation const& operation) { return is_living && age(operation) < kLongNs; });
  if (operations.empty()) return;
  std::ranges::stable_sort(operations, {}, &flight::InFlightOperation::since_ticks);
  out << painted(is_living ? "at work for long" : "at work when it ended", Colour::bold) << '\n';
  for (std::size_t i = 0; i < std::min(operations.size(), kThreads); ++i) {
    auto const& operation = operations[i];
    out << "  thread " << operation.thread << ' ' << printable(operation.thread_name) << ": " << word_of(operation.operation)
        << ' ' << format_bytes(operation.bytes);
    if (is_living) {
      out << " for " << format_seconds(static_cast<double>(age(operation)) * 1e-9);
    } else {
      out << " since " << format_utc(model.realtime_ns(operation.since_ticks)).substr(11);
    }
    out << '\n';
  }
}

void print_losses(std::ostream& out, follow::Model const& model) {
  auto const losses = model.losses();
  out << painted("events", Colour::bold) << "  " << format_count(losses.events_read) << " read, "
      << painted(format_count(losses.events_lost) + " lost", red_unless_zero(losses.events_lost)) << ", "
      << painted(format_count(losses.events_refused) + " refused", red_unless_zero(losses.events_refused)) << '\n';
}

[[nodiscard]] std::uint64_t now_realtime_ns() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// What is left of the screen after everything else, shared by the managers.
[[nodiscard]] std::size_t tags_for(std::size_t rows, std::size_t managers) {
  constexpr std::size_t kOtherLines = 16;
  constexpr std::size_t kLeast = 4;
  auto const left_over = rows > kOtherLines ? rows - kOtherLines : 0;
  return std::max(kLeast, left_over / std::max<std::size_t>(managers, 1));
}

}  // namespace

std::string top_frame(TopProcesses& processes, TopOptions const& options) {
  std::ostringstream out;
  constexpr std::string_view kSortWords[] = {"tag", "size", "allocations"};
  out << painted("headroom top", Colour::bold) << "  " << format_utc(now_realtime_ns()) << "  process "
      << (processes.count() == 0 ? 0 : processes.selected() + 1) << " of " << processes.count() << "  by "
      << kSortWords[static_cast<std::size_t>(options.sort)];
  if (options.is_paused) out << "  " << painted("paused", Colour::yellow);
  out << '\n';
  if (processes.count() == 0) {
    out << "no flight files: start a program that uses headroom, or look elsewhere with --dir DIR\n";
  } else {
    print_processes(out, processes);
  }
  if (auto const* const model = processes.model(); model != nullptr) {
    std::vector<flight::LedgerSnapshot const*> managers;
    auto const is_dead = model->source().liveness() == flight::Liveness::dead;
    for (auto const& ledger : model->ledgers()) {
      auto const is_over = ledger.state == flight::LedgerState::closed && ledger.claimed == 0 && !is_dead;
      if (!ledger.is_device_account && !is_over) managers.push_back(&ledger);
    }
    auto const most_tags = tags_for(options.rows, managers.size());
    for (auto const* const manager : managers) print_manager(out, *manager, options.sort, most_tags);
    print_failures(out, *model);
    print_hooks(out, *model);
    print_threads(out, *model);
    print_losses(out, *model);
  }
  if (options.shows_keys)
    out << painted("q quit  space pause  < > process  t s a sort by tag, size, allocations", Colour::dim) << '\n';
  return out.str();
}

}  // namespace headroom::command
