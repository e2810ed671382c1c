// headroom: what was recorded, in the formats of others.
// Layer: dump
//
// convert() plays everything that a source recorded (a flight file, a post-mortem, a recorded history) into one of five formats:
//
//   chrome   Trace Event JSON: opens in Perfetto, chrome://tracing and Tracy's importer. Counters of every manager and tag, hooks and
//            waits as slices, failures, pressure, budgets and marks as instants
//   torch    the pickle that pytorch.org/memory_viz reads
//   csv      RMM's log, as TraceReader reads it. Times are of day; from the first one on that could not be told so (after a pause of a day,
//            or with the next device of a history) they are microseconds since the midnight before the first line
//   folded   one line for each stack, for flame graphs: who holds what at the end, or held it at the peak
//   json     of a history: its events (lib/schema/history.schema.json). Of a flight file or post-mortem there is write_post_mortem()
//
// What no record tells is told as what it is: operations that are missing are instants (chrome) and counts (ConvertReport), bytes in
// blocks that nobody saw are `unattributed`. What is live at the end is what the books say, whatever is missing.
//
// Ownership: the source is used up. Thread safety: calls are independent; `progress` may be read by any thread meanwhile. Cost: about
// a microsecond for an event; memory goes with what is live in a history, and with what the rings hold in a flight file.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/follow_source.hpp>

namespace headroom {

enum class ConvertFormat : std::uint8_t { chrome, torch, csv, folded, json };
inline constexpr std::size_t kConvertFormatCount = 5;

[[nodiscard]] std::string_view to_string(ConvertFormat format) noexcept;
/// Errors: invalid_argument, with the five names.
[[nodiscard]] Result<ConvertFormat> parse_convert_format(std::string_view text);

struct ConvertOptions {
  /// Only managers of this name.
  std::optional<std::string> manager{};
  /// Only managers on this device: its number, UUID or name.
  std::optional<std::string> device{};
  /// Of `folded`: false = what is live at the end, true = what was live at each manager's peak.
  bool at_peak = false;
  /// Counts events as they are played. Written by convert(), read by whoever draws progress; relaxed: only a figure.
  std::atomic<std::uint64_t>* progress = nullptr;
};

struct ConvertReport {
  std::uint64_t events = 0;              ///< that were played: operations, and what else happened
  std::uint64_t written = 0;             ///< events, lines or stacks of the format
  std::uint64_t blocks_before = 0;       ///< live before the record begins
  std::uint64_t events_lost = 0;         ///< overwritten before they could be read
  std::uint64_t gaps = 0;                ///< places where operations are missing
  std::uint64_t operations_missing = 0;  ///< … how many, where that is known (each modulo 2^20)
  std::uint64_t operations_assumed = 0;  ///< allocations and frees put into gaps, so that what is live after them is right
  std::uint64_t unknown_frees = 0;       ///< of blocks that were never seen
  std::uint64_t unattributed_bytes = 0;  ///< live at the end, in blocks that were never seen
};

/// Takes all of `bytes`, or says why not.
using ConvertSink = std::function<Result<void>(std::string_view bytes)>;

/// Errors: those of the source; io (a write failed, with the system's reason); invalid_argument (no such manager or device;
/// managers that this format cannot keep apart; a peak that lies before the record); unsupported (json of something that is no
/// history). What was written before an error stays written.
[[nodiscard]] Result<ConvertReport> convert(std::unique_ptr<follow::Source> source, ConvertFormat format, ConvertSink const& sink,
                                            ConvertOptions const& options = {});
/// To an open descriptor, which stays open.
[[nodiscard]] Result<ConvertReport> convert(std::unique_ptr<follow::Source> source, ConvertFormat format, int descriptor,
                                            ConvertOptions const& options = {});

}  // namespace headroom
