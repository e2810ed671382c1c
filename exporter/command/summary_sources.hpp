// headroom: what `headroom summary` can sum up: flight files and recorded histories, each in a file of its own.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/error.hpp>

namespace headroom::command {

struct SummaryOptions {
  bool json = false;
};

/// True when the file begins like a flight file. False when it cannot be opened, too: reading it as a history says why.
[[nodiscard]] bool looks_like_flight(std::string const& path);

/// Each prints its summary on stdout and returns the peak in bytes. Errors: io, parse, unsupported, overflow.
[[nodiscard]] Result<std::uint64_t> summarize_flight(std::string const& path, SummaryOptions const& options);
[[nodiscard]] Result<std::uint64_t> summarize_history(std::string const& path, SummaryOptions const& options);

}  // namespace headroom::command
