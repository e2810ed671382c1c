// headroom: the budget-enforcing memory manager.
// Layer: manager
//
// Use a GpuMemoryManager wherever a program would call cudaMalloc: it keeps the program inside a budget, knows who holds what, and
// publishes every outcome in the flight file. Claim first, admit after, release last: bytes are claimed before the driver is
// asked, counted once it delivered, and come back to the budget only when the free was accepted.
//
// Ownership: a manager is a cheap handle; copies share one core, which lives as long as the process. Buffers keep what they need.
// Thread safety: every member may be called from any thread. No lock is held over a call into the device or into your code.
// Cost: about 100 ns for an allocation and its free beyond the device's own (`./run bench`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <headroom/budget.hpp>
#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/pressure.hpp>
#include <headroom/tag.hpp>

namespace headroom {

/// Types that may live in device memory: plain bytes, copied by memcpy.
template <class T>
concept DeviceRepr = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && !std::is_const_v<T>;

class GpuMemoryManager;

namespace manager {
class Core;

/// What a buffer owns: a block, its place in the live table and the core whose books it stands in. One cache line: it is moved and
/// cleared on every allocation.
struct Allocation {
  Core* core;
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
  /// Leaves everything for allocate() to fill: clearing it first costs a tenth of an allocation.
  struct Unset {};
  explicit Allocation(Unset /*unused*/) noexcept {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
  void clear() noexcept {
    core = nullptr;
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
  bool typed = true;
};
/// Fills `allocation` where it will stay, all of it, unless there is an error: copies would cost more than the books.
[[nodiscard]] std::optional<Error> allocate(Core& core, AllocArguments const& arguments, std::source_location const& site,
                                            Allocation& allocation);
[[nodiscard]] Result<void> release(Allocation& allocation);
void release_or_count(Allocation& allocation) noexcept;  ///< a destructor's release: failures are counted in the books
[[nodiscard]] bool host_accessible(Allocation const& allocation) noexcept;
}  // namespace manager

/// How to allocate, where the defaults don't fit.
struct AllocOptions {
  AllocTag tag{};
  StreamId stream{};
  std::uint64_t alignment = kMinimumAlignment;  ///< bytes, a power of two; below 256 is raised to 256
};

/// Device memory for size() elements of T, given back when it is destroyed. Move-only.
/// A destructor's failed free keeps its bytes charged and is counted (deallocation_failure_count); call release() to see the error.
template <DeviceRepr T>
class TrackedBuffer {
public:
  TrackedBuffer() noexcept {}  // NOLINT(modernize-use-equals-default): defaulted, `TrackedBuffer{}` would be cleared twice
  /// For GpuMemoryManager::alloc, which fills it.
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
  friend class GpuMemoryManager;
  manager::Allocation allocation_;
};

/// The result of recomputing the books from the live table.
struct AuditReport {
  std::uint64_t claimed = 0, allocated = 0, peak = 0, unspent = 0;
  std::uint64_t live_bytes = 0;        ///< slots live, freeing and failed, and untracked bytes
  std::uint64_t live_allocations = 0;  ///< … how many
  std::uint64_t failed_free_bytes = 0;
  std::uint64_t tag_bytes = 0;        ///< sum over all tags
  std::vector<std::string> problems;  ///< one sentence each; empty when the books balance
  /// True when live = allocated = claimed − unspent = Σ tags and peak ≥ allocated. Exact when no other thread is at work.
  [[nodiscard]] bool clean() const noexcept { return problems.empty(); }
  [[nodiscard]] std::string to_string() const;
};

/// One consistent reading of the ledger's words, and the counters.
struct ManagerStats {
  std::uint64_t claimed = 0, allocated = 0, peak = 0;
  std::optional<std::uint64_t> limit;
  std::uint64_t live_allocations = 0;
  std::uint64_t allocations = 0, frees = 0, allocation_bytes = 0, deallocation_bytes = 0;
  std::uint64_t refusals = 0;           ///< requests that failed, all kinds and layers
  std::uint64_t observed_refusals = 0;  ///< what an observing budget would have refused
  std::uint64_t pressure_transitions = 0;
};

class GpuMemoryManager {
public:
  /// A manager of `device` with a ledger of its own. `name` is its label in every output; empty = "manager-N".
  /// A limit above the device's total works as that total. Errors: unsupported (in a forked child of a process that used headroom).
  [[nodiscard]] static Result<GpuMemoryManager> create(Device device, MemoryBudget budget, std::string_view name = {});

  GpuMemoryManager(GpuMemoryManager const& other) noexcept;
  GpuMemoryManager(GpuMemoryManager&& other) noexcept;
  GpuMemoryManager& operator=(GpuMemoryManager other) noexcept;
  ~GpuMemoryManager();

  /// Uninitialised device memory for `count` elements. Zero elements succeed, hold no memory and charge nothing.
  /// Errors: over_budget (figures and holders), device_out_of_memory, overflow, invalid_argument, driver.
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocTag tag = {},
                                               std::source_location const& site = std::source_location::current()) {
    return alloc<T>(count, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocOptions const& options,
                                               std::source_location const& site = std::source_location::current()) {
    Result<TrackedBuffer<T>> buffer{tl::in_place, manager::Allocation::Unset{}};
    auto error = manager::allocate(*core_,
                                   {.count = count,
                                    .element_bytes = sizeof(T),
                                    .alignment = options.alignment < alignof(T) ? alignof(T) : options.alignment,
                                    .stream = options.stream,
                                    .tag = options.tag},
                                   site, buffer->allocation_);
    if (error) [[unlikely]] {
      buffer->allocation_.clear();
      buffer = tl::unexpected(std::move(*error));
    }
    return buffer;
  }

  /// Would `bytes` more exceed the budget now? Looks only; takes no claim. Errors: over_budget, overflow.
  [[nodiscard]] Result<void> check_budget(std::uint64_t bytes) const;

  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;  ///< delivered and not yet freed
  [[nodiscard]] std::uint64_t claimed_bytes() const noexcept;    ///< all claims, unspent reservations included
  [[nodiscard]] std::optional<std::uint64_t> remaining_bytes()
      const noexcept;                                       ///< limit − claimed, never below 0; absent: unlimited
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept;  ///< of allocated, since creation or reset_peak
  [[nodiscard]] std::uint64_t live_allocations() const noexcept;
  [[nodiscard]] std::uint64_t alloc_count() const noexcept;  ///< typed requests, also those that failed or were empty
  void reset_alloc_count() noexcept;
  /// Sets the peak to what is allocated now; never leaves it below.
  void reset_peak() noexcept;
  [[nodiscard]] std::uint64_t deallocation_failure_count() const noexcept;  ///< frees that the device refused
  [[nodiscard]] std::uint64_t deallocation_failure_bytes() const noexcept;  ///< bytes now kept charged by them
  /// Frees again what failed. Returns how many blocks came back; the others stay charged.
  std::size_t retry_failed_deallocations();
  /// Gives the bytes of failed frees back to the budget without asking the device. Returns the bytes.
  std::uint64_t write_off_failed_deallocations();

  /// Changes the budget for everyone who shares this ledger. Below what is claimed nothing is taken away and nothing granted.
  void set_budget(MemoryBudget budget);
  [[nodiscard]] MemoryBudget budget() const noexcept;
  /// The pure level of claimed bytes under the budget; none without one.
  [[nodiscard]] PressureLevel pressure_level() const noexcept;

  [[nodiscard]] ManagerStats stats() const;
  [[nodiscard]] AuditReport audit() const;
  [[nodiscard]] Device const& device() const noexcept;
  [[nodiscard]] std::string const& name() const noexcept;
  /// Index of this manager's cell in the flight file; absent when the file had none left.
  [[nodiscard]] std::optional<std::uint32_t> ledger_cell() const noexcept;

private:
  explicit GpuMemoryManager(manager::Core& core) noexcept;
  manager::Core* core_;
};

}  // namespace headroom
