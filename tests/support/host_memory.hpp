// Host memory that runs out on purpose, on this thread, while one of these lives, and how much of it the program holds. The operators
// that ask and count are in host_memory_operators.hpp: exactly one source file of a test program includes it.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::test {

inline thread_local bool no_host_memory = false;

/// What the library asks for with `new (std::nothrow) T[n]` is refused.
class NoHostMemory {
public:
  NoHostMemory() noexcept { no_host_memory = true; }
  ~NoHostMemory() { no_host_memory = false; }
  NoHostMemory(NoHostMemory const&) = delete;
  NoHostMemory& operator=(NoHostMemory const&) = delete;
};

inline constexpr std::uint64_t kEnoughHostMemory = ~std::uint64_t{0};
inline thread_local std::uint64_t host_allocations_left = kEnoughHostMemory;

/// Every `new` is refused, whatever its kind, after so many more of them. What a test does with the result comes after its end.
class HostMemoryEnds {
public:
  explicit HostMemoryEnds(std::uint64_t after = 0) noexcept { host_allocations_left = after; }
  ~HostMemoryEnds() { host_allocations_left = kEnoughHostMemory; }
  HostMemoryEnds(HostMemoryEnds const&) = delete;
  HostMemoryEnds& operator=(HostMemoryEnds const&) = delete;
};

/// Called by every `new` of this thread, before anything else, while it is set. It must not allocate.
inline thread_local void (*at_host_allocation)() noexcept = nullptr;

/// What all threads got from `new` and have not given back. Written by every `new` and `delete`, read by tests; relaxed: counts that stand
/// for themselves.
inline std::atomic<std::int64_t> host_blocks_held{0};
inline std::atomic<std::int64_t> host_bytes_held{0};

}  // namespace headroom::test
