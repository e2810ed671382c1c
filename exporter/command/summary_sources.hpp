// headroom: what `headroom summary` can sum up: the books of a process (a flight file or a post-mortem) and recorded histories, each in
// a file of its own.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/error.hpp>

#include "command/source.hpp"

namespace headroom::command {

struct SummaryOptions {
  bool json = false;
};

/// Each prints its summary on stdout and returns the peak in bytes. Errors: io, parse, unsupported, overflow.
[[nodiscard]] Result<std::uint64_t> summarize_books(Source& source, SummaryOptions const& options);
[[nodiscard]] Result<std::uint64_t> summarize_history(Source& source, SummaryOptions const& options);

}  // namespace headroom::command
