// The operators behind host_memory.hpp, for exactly one source file of a test program. All kinds are replaced together, so that whatever
// frees memory finds what it expects, under sanitizers too: they see malloc and free.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>

#include <malloc.h>

#include "host_memory.hpp"

// NOLINTBEGIN(cppcoreguidelines-no-malloc): what stands below every other way to allocate
namespace headroom::test {

inline bool may_allocate() noexcept {
  if (at_host_allocation != nullptr) at_host_allocation();
  if (host_allocations_left == kEnoughHostMemory) return true;
  if (host_allocations_left == 0) return false;
  --host_allocations_left;
  return true;
}

inline void* counted(void* memory) noexcept {
  if (memory == nullptr) return nullptr;
  host_blocks_held.fetch_add(1, std::memory_order_relaxed);
  host_bytes_held.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

inline void release(void* memory) noexcept {
  if (memory == nullptr) return;
  host_blocks_held.fetch_sub(1, std::memory_order_relaxed);
  host_bytes_held.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

inline void* allocate_or_null(std::size_t bytes) noexcept {
  return may_allocate() ? counted(std::malloc(std::max<std::size_t>(bytes, 1))) : nullptr;
}

inline void* allocate_or_null(std::size_t bytes, std::align_val_t alignment) noexcept {
  const auto align = std::max(static_cast<std::size_t>(alignment), sizeof(void*));
  if (!may_allocate()) return nullptr;
  return counted(std::aligned_alloc(align, (std::max<std::size_t>(bytes, 1) + align - 1) / align * align));
}

inline void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc{};
  return memory;
}

}  // namespace headroom::test

void* operator new(std::size_t bytes) { return headroom::test::or_throw(headroom::test::allocate_or_null(bytes)); }
void* operator new[](std::size_t bytes) { return headroom::test::or_throw(headroom::test::allocate_or_null(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return headroom::test::or_throw(headroom::test::allocate_or_null(bytes, alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return headroom::test::or_throw(headroom::test::allocate_or_null(bytes, alignment));
}
void* operator new(std::size_t bytes, std::nothrow_t const& /*tag*/) noexcept { return headroom::test::allocate_or_null(bytes); }
void* operator new[](std::size_t bytes, std::nothrow_t const& /*tag*/) noexcept {
  return headroom::test::no_host_memory ? nullptr : headroom::test::allocate_or_null(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, std::nothrow_t const& /*tag*/) noexcept {
  return headroom::test::allocate_or_null(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, std::nothrow_t const& /*tag*/) noexcept {
  return headroom::test::no_host_memory ? nullptr : headroom::test::allocate_or_null(bytes, alignment);
}
void operator delete(void* memory) noexcept { headroom::test::release(memory); }
void operator delete[](void* memory) noexcept { headroom::test::release(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { headroom::test::release(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { headroom::test::release(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { headroom::test::release(memory); }
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept { headroom::test::release(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  headroom::test::release(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  headroom::test::release(memory);
}
void operator delete(void* memory, std::nothrow_t const& /*tag*/) noexcept { headroom::test::release(memory); }
void operator delete[](void* memory, std::nothrow_t const& /*tag*/) noexcept { headroom::test::release(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)
