// What all handles of one manager share: its device, its ledger, its routes and the blocks whose free failed. Cores live as long as
// the process, so that buffers may hold plain pointers to their routes; a closed and quiet one is opened again, under a new generation
// of its ledger.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <headroom/manager.hpp>

#include "ledger/ledger.hpp"
#include "manager/route.hpp"

namespace headroom::manager {

class Core {
public:
  /// Opens a core, a quiet closed one if there is one, and returns its first route with one handle.
  /// Errors: unsupported (forked child), io (no memory for books).
  [[nodiscard]] static Result<Route*> open(Device device, MemoryBudget budget, std::string_view name,
                                           std::optional<DeviceRuntime> runtime);
  /// The route through a runtime that was checked already, with one handle more. The caller holds a handle.
  [[nodiscard]] Route& overlay(DeviceRuntime runtime);

  [[nodiscard]] ledger::Ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] Device const& device() const noexcept { return *device_; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }

  // ── for routes ──
  void add_route_in_use() noexcept { routes_in_use_.fetch_add(1, std::memory_order_relaxed); }
  /// A route's last handle went.
  void leave(Route& route) noexcept;
  /// A block that came by `route` is gone, and the operation that took it away has ended: nobody may need the route or the core any more.
  void note_freed(Route& route) noexcept {
    if (route.is_unneeded_overlay()) [[unlikely]]
      let_go_of(route);
    // seq_cst: either this sees the core closed, or whoever closes it sees the bytes gone from the claim.
    if (ledger_.is_closed()) [[unlikely]]
      let_go_if_quiet();
  }

  // ── blocks whose free failed ──
  /// Never fails the caller: without memory for the list the block only stays charged.
  void quarantine(Allocation const& allocation) noexcept;
  [[nodiscard]] std::vector<Allocation> take_quarantine();
  /// Takes this one out again, if it is in the list.
  void leave_quarantine(Allocation const& allocation) noexcept;
  /// The block in the list becomes this copy of it, which differs in what a retry needs (the stream).
  void correct_quarantine(Allocation const& allocation) noexcept;

private:
  Core() = default;
  // The first two only while nobody else can reach this core: it is neither listed as closed nor has it handles. So device and
  // first route need no lock. Overlays do: a thread that freed the last block of one may be looking at it still.
  void reopen(Device device, MemoryBudget budget, std::string name, std::uint32_t cell, std::optional<DeviceRuntime> runtime);
  void let_go() noexcept;
  /// Of a runtime whose overlay has neither handles nor live blocks.
  void let_go_of(Route& overlay) noexcept;
  /// Of device and runtimes, once nothing of a closed core is left. Their destructors are a user's: no lock is held.
  void let_go_if_quiet() noexcept;
  // The account that this core's device has, if any of its ways goes through one. Under overlays_mutex_, or as the two above.
  void name_parent() noexcept;

  // Routes with handles. relaxed up, acq_rel down: the last one sees all that the others did.
  std::atomic<std::uint32_t> routes_in_use_{0};
  std::optional<Device> device_;  // absent: closed, and let go of
  std::string name_;
  ledger::Ledger ledger_;
  Route first_{*this, ledger_, Route::Kind::first};
  std::mutex overlays_mutex_;  // held over the list only, never over a call
  std::vector<std::unique_ptr<Route>> overlays_;
  std::mutex quarantine_mutex_;  // held over the list only, never over a call
  std::vector<Allocation> quarantine_;
};

}  // namespace headroom::manager
