#include "flight/first_failure.hpp"

#include "flight/failure_key.hpp"
#include "flight/recorder.hpp"

namespace headroom::flight {

void note_failure(ErrorKind kind, Layer layer, FailureFigures const& figures) noexcept {
  const std::uint64_t key = pack_failure_key(figures.tag, kind, layer);
  const std::uint32_t cells = recorder.geometry[Region::first_failures].count;
  const auto start = static_cast<std::uint32_t>((key * 0x9E3779B97F4A7C15ULL) >> 40);
  for (std::uint32_t i = 0; i < cells; ++i) {
    FirstFailure& cell = recorder.first_failures[(start + i) % cells];
    std::uint64_t present = cell.key.load(std::memory_order_relaxed);
    if (present == 0 && cell.key.compare_exchange_strong(present, key, std::memory_order_relaxed)) {
      cell.first_ticks.store(figures.ticks, std::memory_order_relaxed);
      cell.requested.store(figures.requested, std::memory_order_relaxed);
      cell.claimed.store(figures.claimed, std::memory_order_relaxed);
      cell.limit.store(figures.limit_word, std::memory_order_relaxed);
      cell.peak.store(figures.peak_word, std::memory_order_relaxed);
      cell.device_free.store(figures.device_free_plus_one, std::memory_order_relaxed);
      cell.site.store(figures.site, std::memory_order_relaxed);
      cell.ledger.store(figures.ledger, std::memory_order_relaxed);
      cell.thread.store(figures.thread, std::memory_order_relaxed);
      cell.ready.store(1, std::memory_order_release);  // readers take the figures only after this
      present = key;
    }
    if (present != key) continue;
    cell.count.fetch_add(1, std::memory_order_relaxed);
    cell.last_ticks.store(figures.ticks, std::memory_order_relaxed);
    return;
  }
}

}  // namespace headroom::flight
