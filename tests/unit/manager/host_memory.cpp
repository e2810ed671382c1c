#include "host_memory.hpp"

#include <new>

// Goes on to the throwing operator, so that whatever frees the memory finds what it expects, sanitizers included.
void* operator new[](std::size_t bytes, std::nothrow_t const& /*tag*/) noexcept {
  if (headroom::test::no_host_memory) return nullptr;
  try {
    return ::operator new[](bytes);
  } catch (...) {
    return nullptr;
  }
}
