// The reservation of a guard: device memory that is held back from the start, so that it is there when it is needed.
//
// Outside the budget it is a block straight from the route's resource, known to no live table; under it, an allocation like any other.
// What the device refuses to take at the guard's end: under the budget, the manager keeps it for a retry, as it does for any buffer;
// outside of it nobody can, and after a second try it is the device's (counted as a failed free, and outstanding there).
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>

#include <headroom/buffer.hpp>
#include <headroom/device.hpp>
#include <headroom/error.hpp>

#include "manager/route.hpp"

namespace headroom::guard {

class Sentinel {
public:
  Sentinel() = default;
  ~Sentinel();
  Sentinel(Sentinel const&) = delete;
  Sentinel& operator=(Sentinel const&) = delete;

  /// Once, before anybody else knows of it. Errors: what the budget or the device says.
  [[nodiscard]] Result<void> take(manager::Route& route, std::uint64_t bytes, bool counted, std::source_location const& site);
  /// The bytes; 0 when there are none, or when the device refused (counted, and still held).
  std::uint64_t release() noexcept;
  /// Was anything ever held back?
  [[nodiscard]] bool existed() const noexcept { return route_ != nullptr; }
  /// Waits, for a second at most, for a release that is under way on another thread.
  void wait_for_release() noexcept;
  [[nodiscard]] std::uint64_t held() const noexcept { return held_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_counted() const noexcept { return counted_; }

private:
  [[nodiscard]] Result<void> take_outside(std::uint64_t bytes);
  [[nodiscard]] Result<void> give_back_outside() noexcept;

  manager::Route* route_ = nullptr;
  bool counted_ = false;
  // Who exchanges it for 0 owns the block; stored back when the device refused. acq_rel: the block's words go with it.
  std::atomic<std::uint64_t> held_{0};
  // Set by take, cleared by the release that the device took, after it took it: between the two, held_ alone may be 0 for a moment.
  // Release and acquire: who sees it cleared finds the memory given back.
  std::atomic<bool> owned_{false};
  flight::Word releases_ended_{0};  // fetch_add release after each one, whatever became of it; slept on by wait_for_release
  manager::Allocation allocation_;  // counted
  Block block_;                     // not counted
};

}  // namespace headroom::guard
