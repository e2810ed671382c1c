// headroom: device memory with an owner.
// Layer: manager
//
// TrackedBuffer<T> comes from alloc<T>, RuntimeAllocBlock from alloc_raw: of a manager or of a reservation. Both give their memory
// back when they are destroyed, the way it came: to the resource that handed it out and to the books that it stands in.
//
// Ownership: move-only; a buffer needs no manager to stay alive, and may be freed after the last handle of its manager is gone. The last
// one to go then takes the manager's device, runtime and stack along: their destructors run in that free, under no lock.
// Thread safety: any thread may free; one buffer belongs to one thread at a time.
// Cost: 64 bytes; a free costs about half of what the manager adds to a pair (`./run bench`).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>

#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/tag.hpp>

namespace headroom {

/// Types that may live in device memory: plain bytes, copied by memcpy.
template <class T>
concept DeviceRepr = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && !std::is_const_v<T>;

namespace manager {
class Route;
struct Token;

/// What a buffer owns: a block, its place in the live table and the route that it came by and goes back by. One cache line: it is
/// moved and cleared on every allocation.
struct Allocation {
  Route* route;  ///< null: empty, or given back
  void* pointer;
  std::uint64_t bytes;
  std::uint64_t stream;
  std::uint64_t generation;       ///< the resource's
  std::uint64_t slot_generation;  ///< the live table's
  std::uint32_t slot;             ///< only while slot_generation is not 0: else the live table was full
  std::uint32_t site;             ///< directory id
  std::uint16_t tag;              ///< as the resource got it
  std::uint16_t tag_entry;        ///< directory id
  std::uint16_t tag_cell;
  std::uint8_t alignment_log2;

  Allocation() noexcept : Allocation(Unset{}) { clear(); }
  /// Empty, with everything else left for allocate() to fill: clearing it first costs a tenth of an allocation.
  struct Unset {};
  explicit Allocation(Unset /*unused*/) noexcept : route(nullptr) {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
  void clear() noexcept {
    route = nullptr;
    pointer = nullptr;
    bytes = stream = generation = slot_generation = 0;
    slot = site = 0;
    tag = tag_entry = tag_cell = 0;
    alignment_log2 = 0;
  }
};
static_assert(sizeof(Allocation) == 64);

struct AllocArguments {
  std::uint64_t count = 0;
  std::uint64_t element_bytes = 1;
  std::uint64_t alignment = kMinimumAlignment;
  StreamId stream{};
  AllocTag tag{};
  bool typed = true;           ///< counted as alloc_count counts; false: a raw request
  bool needs_runtime = false;  ///< alloc_raw: without one there is no other way
  /// A later try of a request that was refused: it was counted and its refusal booked, so neither is done again.
  bool again = false;
  bool guarded = false;  ///< a guard asks: what fails here may still be mended, so nobody is told that it failed for good
};
/// Fills `allocation` where it will stay, all of it, unless there is an error: copies would cost more than the books.
[[nodiscard]] std::optional<Error> allocate(Route& route, AllocArguments const& arguments, std::source_location const& site,
                                            Allocation& allocation);
/// The same, out of bytes that a reservation holds.
[[nodiscard]] std::optional<Error> allocate(Token& token, AllocArguments const& arguments, std::source_location const& site,
                                            Allocation& allocation);
[[nodiscard]] Result<void> release(Allocation& allocation);
/// The same, but a free that the device refused leaves the block live and its owner's: it is counted and not put in quarantine.
[[nodiscard]] Result<void> release_or_keep(Allocation& allocation);
void release_or_count(Allocation& allocation) noexcept;  ///< a destructor's release: failures are counted in the books
[[nodiscard]] bool host_accessible(Allocation const& allocation) noexcept;

/// What managers, reservations and launches see of a buffer.
struct AllocationAccess {
  template <class Owner>
  [[nodiscard]] static auto& of(Owner& owner) noexcept {
    return owner.allocation_;
  }
};
/// An owner whose allocation is written in place, out of a route's budget or of a token. Inlined by force: one more call costs a
/// twentieth of an allocation.
template <class Owner, class Source>
[[nodiscard, gnu::always_inline]] inline Result<Owner> make_owner(Source& source, AllocArguments const& arguments,
                                                                  std::source_location const& site) {
  Result<Owner> owner{tl::in_place, Allocation::Unset{}};
  std::optional<Error> error = allocate(source, arguments, site, AllocationAccess::of(*owner));
  if (error) [[unlikely]] {
    AllocationAccess::of(*owner).clear();
    owner = tl::unexpected(std::move(*error));
  }
  return owner;
}
}  // namespace manager

/// How to allocate, where the defaults don't fit.
struct AllocOptions {
  AllocTag tag{};
  StreamId stream{};
  std::uint64_t alignment = kMinimumAlignment;  ///< bytes, a power of two; below 256 is raised to 256
};

namespace manager {
template <DeviceRepr T>
[[nodiscard]] AllocArguments typed_arguments(std::size_t count, AllocOptions const& options) noexcept {
  // What is no power of two stays as it is, to be refused with its own number.
  const bool is_too_small = options.alignment < alignof(T) && std::has_single_bit(options.alignment);
  return {.count = count,
          .element_bytes = sizeof(T),
          .alignment = is_too_small ? alignof(T) : options.alignment,
          .stream = options.stream,
          .tag = options.tag};
}
[[nodiscard]] inline AllocArguments raw_arguments(std::size_t bytes, AllocOptions const& options) noexcept {
  return {.count = bytes,
          .alignment = options.alignment,
          .stream = options.stream,
          .tag = options.tag,
          .typed = false,
          .needs_runtime = true};
}
}  // namespace manager

/// Device memory for size() elements of T, given back when it is destroyed. Move-only.
/// A destructor's failed free keeps its bytes charged and is counted (deallocation_failure_count); call release() to see the error.
template <DeviceRepr T>
class TrackedBuffer {
public:
  TrackedBuffer() noexcept {}  // NOLINT(modernize-use-equals-default): defaulted, `TrackedBuffer{}` would be cleared twice
  /// For make_owner, which fills it.
  explicit TrackedBuffer(manager::Allocation::Unset unset) noexcept : allocation_(unset) {}
  TrackedBuffer(TrackedBuffer&& other) noexcept : allocation_(std::exchange(other.allocation_, {})) {}
  TrackedBuffer& operator=(TrackedBuffer&& other) noexcept {
    if (this != &other) {
      manager::release_or_count(allocation_);
      allocation_ = std::exchange(other.allocation_, {});
    }
    return *this;
  }
  TrackedBuffer(TrackedBuffer const&) = delete;
  TrackedBuffer& operator=(TrackedBuffer const&) = delete;
  ~TrackedBuffer() { manager::release_or_count(allocation_); }

  /// The device address; null for an empty buffer.
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(allocation_.pointer); }
  [[nodiscard]] std::size_t size() const noexcept { return allocation_.bytes / sizeof(T); }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return allocation_.bytes; }
  [[nodiscard]] StreamId stream() const noexcept { return {allocation_.stream}; }
  /// The elements, when the host can touch them (host device); empty otherwise.
  [[nodiscard]] std::span<T> host_span() const noexcept {
    return manager::host_accessible(allocation_) ? std::span<T>{data(), size()} : std::span<T>{};
  }
  /// Frees now and tells how it went. After an error the bytes stay charged and the manager keeps the block for
  /// retry_failed_deallocations(); the buffer is empty either way. Errors: driver and whatever the resource says.
  [[nodiscard]] Result<void> release() { return manager::release(allocation_); }

private:
  friend struct manager::AllocationAccess;
  manager::Allocation allocation_;
};

/// The same memory as bytes: the owner changes its type, books and device hear nothing. Its size is size_bytes() of the buffer.
template <DeviceRepr T>
[[nodiscard]] TrackedBuffer<std::byte> into_bytes(TrackedBuffer<T>&& buffer) noexcept {
  TrackedBuffer<T> source = std::move(buffer);
  TrackedBuffer<std::byte> bytes{manager::Allocation::Unset{}};
  manager::AllocationAccess::of(bytes) = std::exchange(manager::AllocationAccess::of(source), {});
  return bytes;
}

/// Raw device memory that came through a runtime. Move-only. A destructor's failed free is treated as a TrackedBuffer's.
class RuntimeAllocBlock {
public:
  RuntimeAllocBlock() noexcept {}  // NOLINT(modernize-use-equals-default): as TrackedBuffer
  /// For make_owner, which fills it.
  explicit RuntimeAllocBlock(manager::Allocation::Unset unset) noexcept : allocation_(unset) {}
  RuntimeAllocBlock(RuntimeAllocBlock&& other) noexcept : allocation_(std::exchange(other.allocation_, {})) {}
  RuntimeAllocBlock& operator=(RuntimeAllocBlock&& other) noexcept {
    if (this != &other) {
      manager::release_or_count(allocation_);
      allocation_ = std::exchange(other.allocation_, {});
    }
    return *this;
  }
  RuntimeAllocBlock(RuntimeAllocBlock const&) = delete;
  RuntimeAllocBlock& operator=(RuntimeAllocBlock const&) = delete;
  ~RuntimeAllocBlock() { manager::release_or_count(allocation_); }

  /// The device address; null for an empty block.
  [[nodiscard]] void* data() const noexcept { return allocation_.pointer; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return allocation_.bytes; }
  [[nodiscard]] StreamId stream() const noexcept { return {allocation_.stream}; }
  /// The bytes, when the host can touch them (host device); empty otherwise.
  [[nodiscard]] std::span<std::byte> host_span() const noexcept {
    return manager::host_accessible(allocation_) ? std::span{static_cast<std::byte*>(data()), allocation_.bytes}
                                                 : std::span<std::byte>{};
  }
  /// Frees now and tells how it went; as TrackedBuffer::release.
  [[nodiscard]] Result<void> release() { return manager::release(allocation_); }

private:
  friend struct manager::AllocationAccess;
  manager::Allocation allocation_;
};

}  // namespace headroom
