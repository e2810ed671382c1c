// The summary of a recorded history.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <headroom/byte_size.hpp>
#include <headroom/torch_snapshot.hpp>
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

/// Opening a snapshot reads it twice.
[[nodiscard]] Result<TraceReader> open_with_progress(Source& source) {
  Progress const progress{[&source] { return reading_line(source); }};
  return source.history();
}

[[nodiscard]] Result<TraceSummary> summarize_with_progress(Source const& source, TraceReader& reader) {
  Progress const progress{[&source] { return reading_line(source); }};
  return summarize_trace(reader);
}

/// By device: those with records, and those of which the snapshot has segments alone.
[[nodiscard]] std::vector<DeviceFigures> device_figures(TraceSummary const& summary, TorchSnapshot const& snapshot) {
  std::map<std::uint64_t, DeviceFigures> devices;
  for (auto const& sum : summary.devices) {
    devices[sum.device] = {.device = sum.device,
                           .peak_bytes = sum.peak_bytes,
                           .live_bytes = sum.live_bytes,
                           .live_allocations = sum.live_allocations,
                           .from_before_allocations = sum.from_before_allocations,
                           .from_before_bytes = sum.from_before_bytes};
  }
  for (auto const& cache : cache_figures(snapshot)) {
    auto& device = devices[cache.device];
    device.device = cache.device;
    device.segments = cache.segments;
    device.reserved_bytes = cache.reserved_bytes;
    device.allocated_bytes = cache.allocated_bytes;
    device.active_bytes = cache.active_bytes;
    device.active_blocks = cache.active_blocks;
    device.inactive_blocks = cache.inactive_blocks;
    device.largest_inactive_bytes = cache.largest_inactive_bytes;
    device.fragmentation = cache.fragmentation;
  }
  std::vector<DeviceFigures> figures;
  figures.reserve(devices.size());
  for (auto const& [number, device] : devices) figures.push_back(device);
  return figures;
}

void print_device(DeviceFigures const& device, bool is_one_of_several) {
  if (is_one_of_several) {
    std::cout << painted("device " + std::to_string(device.device), Colour::bold) << ": peak "
              << format_bytes_exact(device.peak_bytes) << ", never freed " << format_bytes_exact(device.live_bytes) << " in "
              << counted(device.live_allocations, "allocation") << '\n';
  }
  if (!device.segments) return;
  std::cout << "cached by PyTorch at the end" << (is_one_of_several ? "" : ", on device " + std::to_string(device.device))
            << ":\n";
  Table table{{{"", Table::Align::left}, {"", Table::Align::left}}, "  "};
  table.add({"allocated",
             format_bytes_exact(*device.allocated_bytes) + ", rounded up, in " + counted(*device.active_blocks, "active block")});
  if (device.active_bytes != device.allocated_bytes) {
    table.add({"freed, still in use", format_bytes_exact(*device.active_bytes - *device.allocated_bytes)});
  }
  table.add({"reserved", format_bytes_exact(*device.reserved_bytes) + " in " + counted(*device.segments, "segment")});
  if (device.fragmentation) {
    table.add({"inactive", counted(*device.inactive_blocks, "block") + ", the largest " +
                               format_bytes_exact(*device.largest_inactive_bytes) + "; fragmentation " +
                               std::to_string(std::lround(*device.fragmentation * 100.0)) + " % (1 - largest / all)"});
  }
  table.print(std::cout);
}

/// What the figures above could not take in.
void print_doubts(TorchSnapshot const& snapshot) {
  if (snapshot.rounded_blocks != 0) {
    std::cout << counted(snapshot.rounded_blocks, "block")
              << " from before with the rounded size, for what was requested is not recorded\n";
  }
  if (snapshot.unexplained_blocks != 0) {
    std::cout << counted(snapshot.unexplained_blocks, "block")
              << " active where the history has freed, and not allocated again: left out of it\n";
  }
  if (snapshot.unknown_actions != 0) {
    std::cout << counted(snapshot.unknown_actions, "entry", "entries") << " of a kind that is not known, passed over\n";
  }
}

/// "a recorded history of 4,143 events from 1 thread", or what a snapshot is.
[[nodiscard]] std::string what_it_is(TraceReader const& reader, TraceSummary const& summary) {
  if (auto const* const snapshot = reader.snapshot()) {
    return "a memory snapshot of PyTorch with a history of " + counted(snapshot->entries, "entry", "entries") + " on " +
           counted(summary.devices.size(), "device");
  }
  return "a recorded history of " + counted(summary.events, "event") + " from " + counted(summary.threads, "thread");
}

void print_for_people(TraceReader const& reader, TraceSummary const& summary) {
  std::cout << printable(reader.name()) << ": " << what_it_is(reader, summary);
  // The oldest snapshots record no times.
  if (summary.last_time_us != 0) std::cout << " over " << format_seconds(duration_seconds(summary));
  std::cout << '\n';
  Table table{{{"", Table::Align::left}, {"", Table::Align::left}}, "  "};
  if (summary.from_before_allocations != 0) {
    table.add({"live before it begins",
               counted(summary.from_before_allocations, "allocation") + ", " + format_bytes_exact(summary.from_before_bytes)});
  }
  table.add({"allocations", format_count(summary.allocations)});
  table.add({"frees", format_count(summary.frees - summary.unmatched_frees)});
  table.add(
      {"failed allocations", {format_count(summary.trace_failures), summary.trace_failures == 0 ? Colour::plain : Colour::red}});
  table.add({"peak", format_bytes_exact(summary.peak_bytes)});
  auto const live = counted(summary.live_allocations, "allocation") + ", " + format_bytes_exact(summary.live_bytes);
  table.add({"never freed",
             {summary.live_allocations == 0 ? "nothing" : live, summary.live_allocations == 0 ? Colour::plain : Colour::yellow}});
  if (summary.unmatched_frees != 0) table.add({"frees without allocation", format_count(summary.unmatched_frees)});
  if (summary.duplicate_allocations != 0)
    table.add({"allocations at a live address", format_count(summary.duplicate_allocations)});
  if (summary.size_mismatches != 0) table.add({"frees with another size", format_count(summary.size_mismatches)});
  table.print(std::cout);
  if (auto const* const snapshot = reader.snapshot()) {
    auto const devices = device_figures(summary, *snapshot);
    for (auto const& device : devices) print_device(device, devices.size() > 1);
    print_doubts(*snapshot);
  }
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
  auto reader = open_with_progress(source);
  if (!reader) {
    // What it could be beside a history; what is wrong within one is the history's own fault.
    if (reader.error().message.find("no known kind") != std::string::npos)
      reader.error().message += "; or a flight file, which begins with HRFLGHT1; or a post-mortem, which begins with {";
    return tl::unexpected{std::move(reader.error())};
  }
  auto const summary = summarize_with_progress(source, *reader);
  if (!summary) return tl::unexpected{summary.error()};
  if (options.json) {
    auto const* const snapshot = reader->snapshot();
    auto const devices = snapshot != nullptr ? device_figures(*summary, *snapshot) : std::vector<DeviceFigures>{};
    print_json_line(to_json(to_figures(*summary), devices));
    return summary->peak_bytes;
  }
  print_for_people(*reader, *summary);
  return summary->peak_bytes;
}

}  // namespace headroom::command
