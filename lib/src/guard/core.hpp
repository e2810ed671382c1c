// What all handles of one guard share.
//
// Nothing in here is held over a call: the policy is one word, the hooks and listeners have lists of their own, the callback a slot.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <headroom/guard.hpp>

#include "guard/checkpoint.hpp"
#include "guard/emergency_reserve.hpp"
#include "guard/hook_registry.hpp"
#include "guard/pressure_listeners.hpp"
#include "guard/sentinel.hpp"
#include "ledger/ledger.hpp"
#include "manager/route_access.hpp"

namespace headroom::guard {

class Core : public std::enable_shared_from_this<Core> {
public:
  struct Options {
    OomPolicy policy = OomPolicy::fail();
    bool releases_on_oom = false;
    std::chrono::nanoseconds callback_limit = std::chrono::seconds{1};
    std::uint32_t hook_rounds = 1;
  };
  Core(GpuMemoryManager manager, Options const& options);
  ~Core();
  Core(Core const&) = delete;
  Core& operator=(Core const&) = delete;

  [[nodiscard]] GpuMemoryManager const& manager() const noexcept { return manager_; }
  [[nodiscard]] manager::Route& route() const noexcept { return route_; }
  [[nodiscard]] ledger::Ledger& ledger() const noexcept { return route_.ledger(); }
  [[nodiscard]] Options const& options() const noexcept { return options_; }
  [[nodiscard]] HookRegistry& hooks() noexcept { return hooks_; }
  [[nodiscard]] Checkpoint& checkpoint() noexcept { return checkpoint_; }
  [[nodiscard]] Sentinel& sentinel() noexcept { return sentinel_; }
  [[nodiscard]] EmergencyReserve& reserve() noexcept { return reserve_; }
  void refill_reserve() noexcept { reserve_.refill(manager_); }

  [[nodiscard]] OomPolicy policy() const noexcept { return OomPolicy::from_word(policy_.load(std::memory_order_seq_cst)); }
  void set_policy(OomPolicy policy) noexcept;
  void set_budget(std::uint64_t bytes);
  /// Moved whenever budget or policy change: what requests sleep on for which no free can wake them.
  [[nodiscard]] flight::Word& changes() noexcept { return changes_; }

  [[nodiscard]] Result<ListenerId> add_listener(PressureListener listener);
  bool remove_listener(ListenerId id);

private:
  void tell_of_change() noexcept;

  GpuMemoryManager manager_;
  manager::Route& route_;
  Options const options_;
  // Written by set_policy, read by requests that met a shortage; seq_cst with the waiters' count: see ledger/waiting.hpp.
  std::atomic<std::uint64_t> policy_;
  flight::Word changes_{0};  // fetch_add seq_cst after a change, read before the policy is
  HookRegistry hooks_;
  Checkpoint checkpoint_;
  std::mutex listeners_mutex_;           // held over the list only
  std::vector<ListenerId> listeners_{};  // of this guard, among those of its ledger
  std::size_t adding_ = 0;  // under the mutex too: listeners for which there is room, and that are not in the list yet
  // Last: they go first, while the manager is there.
  EmergencyReserve reserve_;
  Sentinel sentinel_;
};

}  // namespace headroom::guard
