// The summary of a recorded history.
#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/trace.hpp>

#include "command/figures.hpp"
#include "command/output.hpp"
#include "command/progress.hpp"
#include "command/summary_sources.hpp"

namespace headroom::command {
namespace {

[[nodiscard]] double duration_seconds(TraceSummary const& summary) {
  return static_cast<double>(summary.last_time_us - summary.first_time_us) * 1e-6;
}

[[nodiscard]] Figures to_figures(TraceSummary const& summary) {
  return {.allocations = summary.allocations,
          .frees = summary.frees - summary.unmatched_frees,
          .trace_failures = summary.trace_failures,
          .refused = 0,
          .unmatched_frees = summary.unmatched_frees,
          .peak_bytes = summary.peak_bytes,
          .live_bytes = summary.live_bytes,
          .live_allocations = summary.live_allocations,
          .budget_bytes = {},   // a history says nothing of a budget
          .claimed_bytes = {},  // … nor of claims
          .elapsed_seconds = duration_seconds(summary),
          .events_recorded = summary.events,
          .events_read = summary.events,
          .events_lost = 0,
          .loop_frees = 0};
}

[[nodiscard]] Result<TraceSummary> summarize_with_progress(Source const& source, TraceReader& reader) {
  Progress const progress{[&source] { return reading_line(source); }};
  return summarize_trace(reader);
}

void print_for_people(std::string const& name, TraceSummary const& summary) {
  std::cout << printable(name) << ": a recorded history of " << format_count(summary.events) << " events from "
            << format_count(summary.threads) << (summary.threads == 1 ? " thread" : " threads") << " over "
            << format_seconds(duration_seconds(summary)) << '\n';
  Table table{{{"", Table::Align::left}, {"", Table::Align::left}}, "  "};
  table.add({"allocations", format_count(summary.allocations)});
  table.add({"frees", format_count(summary.frees - summary.unmatched_frees)});
  table.add(
      {"failed allocations", {format_count(summary.trace_failures), summary.trace_failures == 0 ? Colour::plain : Colour::red}});
  table.add({"peak", format_bytes_exact(summary.peak_bytes)});
  auto const live = format_count(summary.live_allocations) + " allocations, " + format_bytes_exact(summary.live_bytes);
  table.add({"never freed",
             {summary.live_allocations == 0 ? "nothing" : live, summary.live_allocations == 0 ? Colour::plain : Colour::yellow}});
  if (summary.unmatched_frees != 0) table.add({"frees without allocation", format_count(summary.unmatched_frees)});
  if (summary.duplicate_allocations != 0)
    table.add({"allocations at a live address", format_count(summary.duplicate_allocations)});
  if (summary.size_mismatches != 0) table.add({"frees with another size", format_count(summary.size_mismatches)});
  table.print(std::cout);
  if (summary.peak_bytes == 0) return;
  using enum Table::Align;
  std::cout << "held at the peak, by size:\n";
  Table held{{{"TAG", left}, {"BYTES", right}, {"ALLOCATIONS", right}, {"SHARE", left}}, "  "};
  std::array<std::size_t, kSizeClasses.size()> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return summary.at_peak[i].bytes; });
  for (auto const i : order) {
    auto const& sum = summary.at_peak[i];
    if (sum.bytes == 0) continue;
    held.add({std::string{kSizeClasses[i]}, format_bytes(sum.bytes), format_count(sum.allocations),
              bar(sum.bytes, summary.peak_bytes, 20)});
  }
  held.print(std::cout);
}

}  // namespace

Result<std::uint64_t> summarize_history(Source& source, SummaryOptions const& options) {
  auto reader = source.history();
  if (!reader) {
    // Opening judges what kind of file it is; a bad line further on is the history's own fault.
    if (reader.error().kind == ErrorKind::parse)
      reader.error().message += "; or a flight file, which begins with HRFLGHT1; or a post-mortem, which begins with {";
    return tl::unexpected{std::move(reader.error())};
  }
  auto const summary = summarize_with_progress(source, *reader);
  if (!summary) return tl::unexpected{summary.error()};
  if (options.json) {
    print_json_line(to_json(to_figures(*summary)));
    return summary->peak_bytes;
  }
  print_for_people(reader->name(), *summary);
  return summary->peak_bytes;
}

}  // namespace headroom::command
