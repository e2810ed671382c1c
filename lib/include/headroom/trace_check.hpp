// headroom: is a recorded history whole?
// Layer: trace
//
// check_trace() reads a history as summarize_trace() does, and names what cannot be matched, line by line: frees of addresses that are
// not live, allocations at addresses that are, frees with another size than their allocation. None of it stops a summary or a replay,
// but all of it makes their figures doubtful. What cannot be read at all is an error. That a history begins in the middle, and has blocks
// from before, is no finding.
//
// Thread safety: pure function over a reader, which belongs to one thread. Cost: that of summarize_trace(); findings are capped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/trace.hpp>

namespace headroom {

struct TraceFinding {
  enum class Kind : std::uint8_t { unmatched_free, duplicate_allocation, size_mismatch };

  Kind kind = Kind::unmatched_free;
  std::uint64_t line = 0;  ///< as TraceEvent::line
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;            ///< as this line says
  std::uint64_t allocated_bytes = 0;  ///< size_mismatch: as its allocation says
  std::uint64_t allocated_line = 0;   ///< … on that line; 0: of what was live before the first
  std::uint32_t device = 0;
  TraceFormat format = TraceFormat::rmm_csv;

  friend bool operator==(TraceFinding const&, TraceFinding const&) = default;
};

/// What was found and what was expected, in one sentence without the line; record_place() says where.
[[nodiscard]] std::string to_string(TraceFinding const& finding);

struct TraceCheck {
  TraceSummary summary;                ///< has the whole counts
  std::vector<TraceFinding> findings;  ///< the first ones, by line

  [[nodiscard]] std::uint64_t found() const noexcept {
    return summary.unmatched_frees + summary.duplicate_allocations + summary.size_mismatches;
  }
};

inline constexpr std::size_t kMostTraceFindings = 20;

/// Reads the rest of a history. Errors: those of summarize_trace().
[[nodiscard]] Result<TraceCheck> check_trace(TraceReader& reader, std::size_t most_findings = kMostTraceFindings);

}  // namespace headroom
