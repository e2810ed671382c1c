// headroom: the figures that `replay` and `summary` give, and their JSON.
//
// One list of fields for both, so that a replay, a killed process and a history compare line by line. What is unknown or has no
// meaning for a source is null, never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace headroom::command {

struct Figures {
  std::optional<std::uint64_t> allocations;      ///< granted
  std::optional<std::uint64_t> frees;            ///< of what was granted: unmatched ones are counted apart
  std::optional<std::uint64_t> trace_failures;   ///< `allocate failure` records of a history
  std::optional<std::uint64_t> refused;          ///< requests that failed
  std::optional<std::uint64_t> unmatched_frees;  ///< frees of an address with nothing live there
  std::optional<std::uint64_t> peak_bytes, live_bytes, live_allocations;
  std::optional<std::uint64_t> budget_bytes;  ///< null: unlimited, or none known
  std::optional<std::uint64_t> claimed_bytes;
  std::optional<double> elapsed_seconds;
  std::optional<std::uint64_t> events_recorded, events_read, events_lost;  ///< read + lost = recorded
  std::optional<std::uint64_t> loop_frees;
};

/// One device of a PyTorch snapshot. What the program requested, by the history; and what its caching allocator made of that when the
/// snapshot was taken, rounded, which is null where no segments are recorded.
struct DeviceFigures {
  std::uint64_t device = 0;
  std::uint64_t peak_bytes = 0, live_bytes = 0, live_allocations = 0;
  std::uint64_t from_before_allocations = 0, from_before_bytes = 0;
  std::optional<std::uint64_t> segments{}, reserved_bytes{}, allocated_bytes{}, active_bytes{}, active_blocks{},
      inactive_blocks{}, largest_inactive_bytes{};
  std::optional<double> fragmentation{};  ///< null where nothing is inactive, too
};

/// One JSON object, indented, its keys always in the same order. With `devices`, an array of them comes last.
[[nodiscard]] std::string to_json(Figures const& figures, std::span<DeviceFigures const> devices = {});

/// Prints it and a line end on stdout, at once: whoever reads it need not wait for the process to end.
void print_json_line(std::string const& json);

}  // namespace headroom::command
