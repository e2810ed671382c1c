// headroom: who holds how much, in the form in which `headroom diff` compares it: of the books of a process (a flight file or a
// post-mortem), and of recorded histories, each in a file of its own.
#pragma once

#include <cstdint>
#include <optional>

#include <headroom/error.hpp>
#include <headroom/holdings.hpp>
#include <headroom/replay.hpp>

#include "command/source.hpp"

namespace headroom::command {

struct HoldingsOptions {
  bool at_peak = false;              ///< else what is live: now, or when it ended
  std::optional<ReplayTags> tags{};  ///< what a history's allocations are told apart by; absent: what it recorded, else size
  std::optional<std::uint32_t> trace_device{};  ///< of a history: which one
};

/// Errors: io, parse, unsupported, overflow.
[[nodiscard]] Result<follow::Holdings> holdings_of_books(Source& source, HoldingsOptions const& options);
/// Of a snapshot that is live at the end: by the tags and sites that it recorded, unless asked for others; all others by tag alone.
[[nodiscard]] Result<follow::Holdings> holdings_of_history(Source& source, HoldingsOptions const& options);

}  // namespace headroom::command
