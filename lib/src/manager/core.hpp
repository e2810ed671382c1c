// What all handles of one manager share: its device, its ledger and the blocks whose free failed. Cores live as long as the process,
// so buffers may hold plain pointers to them; a closed and quiet one is opened again, under a new generation of its ledger.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <headroom/manager.hpp>

#include "ledger/ledger.hpp"

namespace headroom::manager {

class Core {
public:
  /// Opens a core: a quiet closed one if there is one, else a new one. Errors: unsupported (forked child), io (no memory for books).
  [[nodiscard]] static Result<Core*> open(Device device, MemoryBudget budget, std::string_view name);

  void add_handle() noexcept { handles_.fetch_add(1, std::memory_order_relaxed); }
  /// The last one closes the ledger: its series vanish once nothing is live.
  void drop_handle() noexcept;

  [[nodiscard]] ledger::Ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] Device const& device() const noexcept { return *device_; }
  /// device().resource() and ordinal(), one load away.
  [[nodiscard]] DeviceResource& resource() const noexcept { return *resource_; }
  [[nodiscard]] std::int32_t ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }

  // ── blocks whose free failed ──
  /// Never fails the caller: without memory for the list the block only stays charged.
  void quarantine(Allocation const& allocation) noexcept;
  [[nodiscard]] std::vector<Allocation> take_quarantine();

private:
  Core() = default;
  void reopen(Device device, MemoryBudget budget, std::string_view name, std::uint32_t cell);

  std::atomic<std::uint32_t> handles_{0};  // relaxed up, acq_rel down: the last one sees all that the others did
  std::optional<Device> device_;
  DeviceResource* resource_ = nullptr;
  std::int32_t ordinal_ = 0;
  std::string name_;
  ledger::Ledger ledger_;
  std::mutex quarantine_mutex_;  // held over the list only, never over a call
  std::vector<Allocation> quarantine_;
};

}  // namespace headroom::manager
