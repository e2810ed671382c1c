// headroom: who holds how much, in the form in which `headroom diff` compares it: of the books of a process (a flight file or a
// post-mortem), and of recorded histories, each in a file of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <headroom/error.hpp>
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
  bool at_peak = false;                ///< else what is live: now, or when it ended
  ReplayTags tags = ReplayTags::size;  ///< a history records no tags: what its allocations are told apart by
};

/// Errors: io, parse, unsupported, overflow.
[[nodiscard]] Result<Holdings> holdings_of_books(Source& source, HoldingsOptions const& options);
[[nodiscard]] Result<Holdings> holdings_of_history(Source& source, HoldingsOptions const& options);

}  // namespace headroom::command
