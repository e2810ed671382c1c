// Guards for tests: over a host device that one keeps a hand on, with hooks that hold memory of the guard itself.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>

#include "manager/route_access.hpp"
#include "managers.hpp"

namespace headroom::test {

struct HostGuard {
  std::shared_ptr<HostResource> resource;
  MemoryGuard guard;
};

inline HostGuard host_guard(std::uint64_t budget, OomPolicy policy = OomPolicy::fail(),
                            HostOptions const& options = {.touch_memory = false}) {
  auto resource = HostResource::create(options).value();
  return {resource,
          MemoryGuardBuilder(host_device_over(resource).value()).budget_bytes(budget).oom_policy(policy).build().value()};
}

using Bytes = TrackedBuffer<std::byte>;

inline Bytes take(MemoryGuard const& guard, std::uint64_t bytes) { return guard.safe_alloc<std::byte>(bytes).value(); }

/// Buffers that a hook gives up one at a time, oldest first. Only for hooks that one thread runs at a time, as hooks do.
struct Cache {
  std::deque<Bytes> blocks;
  std::uint64_t calls = 0;

  /// Frees one block through the guard and reports its size; nothing when it has none.
  std::uint64_t free_one(MemoryGuard const& guard) {
    ++calls;
    if (blocks.empty()) return 0;
    const std::uint64_t bytes = blocks.front().size_bytes();
    EXPECT_TRUE(guard.free(std::move(blocks.front())));
    blocks.pop_front();
    return bytes;
  }
};

/// How many requests wait for room in the guard's ledger.
inline std::uint64_t waiters(MemoryGuard const& guard) {
  return manager::RouteAccess::of(guard.manager()).ledger().cell().waiters.load(std::memory_order_seq_cst);
}

template <class Condition>
void wait_until(Condition&& condition) {
  while (!condition()) std::this_thread::yield();
}

/// How many changes a listener hears when one byte at a boundary (699 of 1,000 is none, 700 is low) is given and taken so often.
/// Without a margin: the builder's own, 1 % of the budget.
inline std::uint64_t changes_at_a_boundary(std::optional<std::uint64_t> margin, std::uint64_t times) {
  auto builder = MemoryGuardBuilder(host_device({.touch_memory = false}).value());
  builder.budget_bytes(1000);
  if (margin) builder.hysteresis_margin_bytes(*margin);
  auto guard = builder.build().value();
  const auto held = take(guard, 699);
  std::uint64_t heard = 0;
  EXPECT_TRUE(guard.add_pressure_listener([&](PressureChange const&) { ++heard; }));
  for (std::uint64_t i = 0; i < times; ++i) static_cast<void>(take(guard, 1));
  EXPECT_EQ(guard.manager().stats().pressure_transitions, heard);
  return heard;
}

inline void expect_clean(MemoryGuard const& guard) {
  const auto audit = guard.manager().audit();
  EXPECT_TRUE(audit.clean()) << audit.to_string();
}

}  // namespace headroom::test
