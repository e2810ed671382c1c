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

inline void expect_clean(MemoryGuard const& guard) {
  const auto audit = guard.manager().audit();
  EXPECT_TRUE(audit.clean()) << audit.to_string();
}

}  // namespace headroom::test
