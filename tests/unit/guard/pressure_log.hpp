// A manager of 1,000 bytes and who listens to its pressure.
#pragma once

#include <utility>
#include <vector>

#include "guard/pressure_listeners.hpp"
#include "ledgers.hpp"
#include "managers.hpp"

namespace headroom::test {

using Bytes = TrackedBuffer<std::byte>;

class Listeners : public ::testing::Test {
protected:
  ~Listeners() override {
    // The ledger lives on, and will be another test's.
    for (const auto id : added) listeners.remove(id);
    ledger.set_pressure_margin(std::nullopt);
  }

  Bytes take(std::uint64_t bytes) { return manager.alloc<std::byte>(bytes).value(); }
  ListenerId add(PressureListener listener) {
    const auto id = listeners.add(std::move(listener)).value();
    added.push_back(id);
    return id;
  }
  /// Writes into `heard`.
  ListenerId listen() {
    return add([this](PressureChange const& change) { heard.push_back(change); });
  }
  /// Two changes: to critical, and down again.
  void up_and_down() { const auto all_there_is = take(1000 - manager.claimed_bytes()); }
  /// Since this test began: the ledger may have had other lives.
  [[nodiscard]] guard::PressureListeners::Totals totals() const {
    const auto now = listeners.totals();
    return {now.calls - before.calls, now.failures - before.failures, now.dropped - before.dropped};
  }
  [[nodiscard]] std::vector<PressureLevel> levels() const {
    std::vector<PressureLevel> levels;
    for (auto const& change : heard) levels.push_back(change.to);
    return levels;
  }

  HostManager host{host_manager(MemoryBudget::with_limit(1000))};
  GpuMemoryManager& manager{host.manager};
  ledger::Ledger& ledger{ledger_of(manager)};
  guard::PressureListeners& listeners{*guard::PressureListeners::of(ledger).value()};
  guard::PressureListeners::Totals before{listeners.totals()};
  std::vector<PressureChange> heard;
  std::vector<ListenerId> added;
};

}  // namespace headroom::test
