// The first figures of each (kind, layer, tag): what a storm of refusals cannot wash away.
#pragma once

#include <cstdint>

#include <headroom/error.hpp>

namespace headroom::flight {

struct FailureFigures {
  std::uint64_t ticks = 0;
  std::uint64_t requested = 0;
  std::uint64_t claimed = 0;
  std::uint64_t limit_word = 0;
  std::uint64_t peak_word = 0;
  std::uint64_t device_free_plus_one = 0;
  std::uint32_t tag = 0;
  std::uint32_t site = 0;
  std::uint32_t ledger = 0;
  std::uint32_t thread = 0;
};

/// Counts a failure in its cell, and stores its figures if it is the first there. Wait-free; a full table counts nothing more.
void note_failure(ErrorKind kind, Layer layer, FailureFigures const& figures) noexcept;

}  // namespace headroom::flight
