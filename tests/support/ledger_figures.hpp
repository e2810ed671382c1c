// The figures that every event of a manager moves or leaves alone, compared all at once.
#pragma once

#include <cstdint>
#include <ostream>

#include <headroom/manager.hpp>

namespace headroom::test {

struct LedgerFigures {
  std::uint64_t claimed = 0, allocated = 0, peak = 0, requests = 0, failed_frees = 0, failed_bytes = 0;
  friend bool operator==(LedgerFigures const&, LedgerFigures const&) = default;
};

inline std::ostream& operator<<(std::ostream& out, LedgerFigures const& figures) {
  return out << "claimed " << figures.claimed << ", allocated " << figures.allocated << ", peak " << figures.peak << ", requests "
             << figures.requests << ", failed frees " << figures.failed_frees << " of " << figures.failed_bytes << " bytes";
}

inline LedgerFigures figures_of(GpuMemoryManager const& manager) {
  return {.claimed = manager.claimed_bytes(),
          .allocated = manager.allocated_bytes(),
          .peak = manager.peak_bytes(),
          .requests = manager.alloc_count(),
          .failed_frees = manager.deallocation_failure_count(),
          .failed_bytes = manager.deallocation_failure_bytes()};
}

}  // namespace headroom::test
