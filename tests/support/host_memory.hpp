// Host memory that runs out on purpose: what the library asks for with `new (std::nothrow) T[n]`, on this thread, while one of these
// lives. The operator that asks it is in unit/manager/host_memory.cpp.
#pragma once

namespace headroom::test {

inline thread_local bool no_host_memory = false;

class NoHostMemory {
public:
  NoHostMemory() noexcept { no_host_memory = true; }
  ~NoHostMemory() { no_host_memory = false; }
  NoHostMemory(NoHostMemory const&) = delete;
  NoHostMemory& operator=(NoHostMemory const&) = delete;
};

}  // namespace headroom::test
