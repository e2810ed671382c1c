// headroom: the raw door, for adapters that know only pointers.
// Layer: manager
//
// Use a RawDoor where an ecosystem hands out bare pointers and frees them by pointer (PyTorch's pluggable allocator, RMM, pmr, C).
// It allocates through a manager, books and budget included, and keeps a map from pointer to block. Prefer
// GpuMemoryManager::alloc<T> wherever an owner of its own can hold the memory: it needs no map.
//
// What a pointer cannot say: if a block was freed, its address given out again and the old pointer freed once more, the new block
// goes. Only the size, when it differs, and a RawBlock's generation tell the two apart; prefer deallocate(RawBlock) where you can
// keep one.
//
// Misuse (double free, unknown or interior pointer, wrong size, another door's block, a stale RawBlock) never reaches the driver
// and leaves the books as they were. It comes back as an error, is counted by kind in the manager's ledger with one event each,
// and the first ten of the process are kept in full (misuse_reports) and told on stderr, unless HEADROOM_QUIET=1.
//
// Ownership: a door is a cheap handle; copies share one map. Blocks do not end with the door: those left when the last handle goes
// stay charged and can still be found (find_raw_block), until the process ends, but no longer be freed by pointer.
// Thread safety: every member may be called from any thread. No lock is held over a call into the device. Not from signal
// handlers. A forked child is refused.
// Cost: about 40 ns for a pair beyond the manager's own, more once the map has outgrown the caches (`./run bench`). Memory: 40 KiB
// for a door and up to 48 KiB for its first tables, then at most 200 bytes for a live block. Misuse and interior pointers are looked
// for by a scan of all live blocks: microseconds to milliseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/manager.hpp>
#include <headroom/tag.hpp>

namespace headroom {

namespace manager {
class DoorCore;
}  // namespace manager

/// "I do not know how many bytes it had": deallocate then takes the recorded size.
inline constexpr std::uint64_t kUnknownBytes = UINT64_MAX;

/// What to do with a free whose size is not the block's.
enum class WrongSize : std::uint8_t {
  refuse,       ///< the block stays allocated
  free_anyway,  ///< reported and counted all the same; the books use the recorded size
};

struct RawDoorOptions {
  WrongSize wrong_size = WrongSize::refuse;
};

/// A pointer with its place in time: `generation` tells a reused address from the block it once was.
struct RawBlock {
  void* pointer = nullptr;       ///< null exactly for zero bytes
  std::uint64_t bytes = 0;       ///< as requested
  std::uint64_t generation = 0;  ///< of this pointer in this door; 0 only with a null pointer
};

/// What is known of the block around an address.
struct RawBlockInfo {
  void* base = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< of the address that was asked for, from base
  std::uint64_t generation = 0;
  StreamId stream{};
  std::string_view tag;  ///< lives as long as the process
  std::string site;      ///< where it was allocated; empty when too many sites are known
  std::uint32_t thread = 0;
  std::chrono::nanoseconds age{0};
  bool free_failed = false;  ///< the device refused to take it back; still charged
};

/// Two live blocks whose ranges share bytes: the resource below gave the same memory out twice.
struct RawOverlap {
  RawBlock first;
  RawBlock second;
};

/// One misuse, as it was met. Threads are the system's thread ids; sites read "folder/file.cpp:12 function", empty when unknown.
struct MisuseReport {
  ErrorKind kind{};  ///< `driver`: the resource handed out an address that was live already
  void const* pointer = nullptr;
  std::optional<std::uint64_t> bytes_given{};     ///< absent: the caller did not know
  std::optional<std::uint64_t> bytes_recorded{};  ///< of the block that the pointer is, was, or lies in
  std::string manager{};                          ///< of the door that was called
  std::uint32_t thread = 0;                       ///< who did it
  std::string site{};
  std::optional<std::uint32_t> allocation_thread{};  ///< of that block
  std::string allocation_site{};
  std::optional<std::uint32_t> first_free_thread{};  ///< double free: who freed it first
  std::string first_free_site{};
  std::string sentence{};
};

class RawDoor {
public:
  /// A door of its own on the manager: another door's blocks are not this one's.
  /// Errors: unsupported (in a forked child of a process that used headroom), io (no memory for the door).
  [[nodiscard]] static Result<RawDoor> create(GpuMemoryManager manager, RawDoorOptions options = {});

  RawDoor(RawDoor const& other) noexcept;
  RawDoor(RawDoor&& other) noexcept;
  RawDoor& operator=(RawDoor other) noexcept;
  ~RawDoor();

  /// Uninitialised memory. Zero bytes: a null pointer, nothing charged. `alignment` in bytes, a power of two; below 256 is raised.
  /// Errors: as GpuMemoryManager::alloc; driver (the resource delivered a null pointer), io (no host memory for the map: the block
  /// was freed again), unsupported (forked child).
  [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, AllocTag tag = {},
                                       std::source_location const& site = std::source_location::current());
  /// The same, for callers that can keep the generation.
  [[nodiscard]] Result<RawBlock> allocate_block(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, AllocTag tag = {},
                                                std::source_location const& site = std::source_location::current());

  /// Frees a block by its first byte, on any thread; on `stream`, or on the block's own. Null succeeds and does nothing.
  /// Errors: double_free, unknown_pointer (interior pointers too: the message names their block), wrong_size, wrong_owner (misuse:
  /// nothing happened); driver and whatever the resource says: the block is still allocated, charged and findable, and the call
  /// may be repeated; unsupported (forked child).
  [[nodiscard]] Result<void> deallocate(void* pointer, std::uint64_t bytes, std::optional<StreamId> stream = std::nullopt,
                                        std::source_location const& site = std::source_location::current());
  /// Likewise; use_after_free when the address is another block by now.
  [[nodiscard]] Result<void> deallocate(RawBlock const& block, std::optional<StreamId> stream = std::nullopt,
                                        std::source_location const& site = std::source_location::current());

  /// The block that holds the address, if it is this door's; also for addresses inside. Not while the block is being freed.
  [[nodiscard]] std::optional<RawBlockInfo> find(void const* address) const;
  /// Blocks handed out through this door and not freed; those whose free failed included.
  [[nodiscard]] std::uint64_t live_blocks() const noexcept;
  /// Misuses met by this door since it was created.
  [[nodiscard]] std::uint64_t misuse_count() const noexcept;
  /// Times that the resource handed out the address of a live block. Both stay known: frees take the one whose size fits, else the
  /// newest.
  [[nodiscard]] std::uint64_t addresses_twice() const noexcept;
  /// Neighbouring live blocks with bytes in common. A diagnosis: sorts all blocks, while other threads may change them.
  [[nodiscard]] std::vector<RawOverlap> overlaps() const;
  [[nodiscard]] GpuMemoryManager const& manager() const noexcept;

private:
  explicit RawDoor(manager::DoorCore& core) noexcept;
  manager::DoorCore* core_;
};

/// The block that holds the address, whichever door of the process gave it out; closed doors included.
[[nodiscard]] std::optional<RawBlockInfo> find_raw_block(void const* address);

/// The first ten misuses of the process, in order.
[[nodiscard]] std::vector<MisuseReport> misuse_reports();
/// How many there were, through all doors.
[[nodiscard]] std::uint64_t misuse_count() noexcept;

}  // namespace headroom
