// headroom: who holds how much, in the form in which `headroom diff` compares it: of the books of a process (a flight file or a
// post-mortem), and of recorded histories, each in a file of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <headroom/error.hpp>
#include <headroom/follow_source.hpp>
#include <headroom/replay.hpp>

#include "command/source.hpp"

namespace headroom::command {

/// Who holds memory: a tag, and the place in the program that asked for it, empty where nobody noted it.
struct Holder {
  std::string tag, site;
  friend auto operator<=>(Holder const&, Holder const&) = default;
};

using Holdings = std::map<Holder, std::uint64_t>;  ///< bytes, never 0

struct HoldingsOptions {
  bool at_peak = false;              ///< else what is live: now, or when it ended
  std::optional<ReplayTags> tags{};  ///< what a history's allocations are told apart by; absent: what it recorded, else size
  std::optional<std::uint32_t> trace_device{};  ///< of a history: which one
};

/// Errors: io, parse, unsupported, overflow.
[[nodiscard]] Result<Holdings> holdings_of_books(Source& source, HoldingsOptions const& options);
/// Of a snapshot that is live at the end: by the tags and sites that it recorded, unless asked for others; all others by tag alone.
[[nodiscard]] Result<Holdings> holdings_of_history(Source& source, HoldingsOptions const& options);

/// What the live table of `records` holds, by tag and site.
[[nodiscard]] Holdings live_holdings(follow::Source const& records);

}  // namespace headroom::command
