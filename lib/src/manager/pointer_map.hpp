// From pointer to block: what a raw door knows of the memory that it gave out.
//
//   PointerMap ─▶ 64 shards, by a hash of the pointer, each under a short lock of its own
//                   keys     [p · · p p · p ·]     open addressing, linear probing, no tombstones: one or two cache lines a search
//                   entries  [e · · e e · e ·]     at the same index: what deallocate needs
//                   recent   [16 frees]            who freed what last: tells a double free from an unknown pointer
//
// The same pointer may stand in it more than once, when a resource gave a live address out again: each entry is a block of the books,
// and none of them may be forgotten.
//
// Thread safety: every member, from any thread. Locks are held for a search, and for moving a shard's entries to a larger table;
// memory is taken and given back outside them.
// Memory: 96 bytes an entry; tables are between 53 % and 80 % full while they grow (at most 180 bytes for each block) and shrink when
// three quarters are empty. 40 KiB of recent frees in all, and tables of at least 8 places for each shard in use.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <headroom/manager.hpp>

#include "base/short_lock.hpp"

namespace headroom::manager {

struct MapEntry {
  Allocation allocation;
  std::uint64_t generation = 0;    ///< of this pointer in this map, from 1; grows with every insert
  std::uint64_t ticks = 0;         ///< of an allocation that the live table has no slot for; else the slot knows
  std::uint32_t thread = 0;        ///< that allocated it
  std::uint32_t failed_frees = 0;  ///< times that the resource refused to take it back

  MapEntry() noexcept = default;
  /// With an allocation that somebody else is going to fill.
  struct Unset {};
  explicit MapEntry(Unset /*unused*/) noexcept : allocation(Allocation::Unset{}) {}
};
static_assert(sizeof(MapEntry) == 88);

/// Who frees.
struct Freeing {
  std::uint32_t thread = 0;
  std::uint32_t site = 0;  ///< directory id
};

struct RecentFree {
  void* pointer = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t generation = 0;
  Freeing by{};
  Freeing allocated_by{};
};

/// The blocks that a free may mean.
struct Wanted {
  void* pointer = nullptr;
  std::optional<std::uint64_t> bytes{};  ///< absent: any size
  std::uint64_t generation = 0;          ///< 0: any
};

/// True when the manager has settled a block whose free failed, by a retry or a write-off of its own: the entry is over.
[[nodiscard]] bool is_settled(MapEntry const& entry) noexcept;

class PointerMap {
public:
  PointerMap() = default;
  PointerMap(PointerMap const&) = delete;
  PointerMap& operator=(PointerMap const&) = delete;

  enum class Inserted : std::uint8_t { done, address_twice, no_memory };
  /// Gives the entry its generation. `address_twice`: done, beside a live block of the same address, which is copied to `other`.
  [[nodiscard]] Inserted insert(MapEntry& entry, MapEntry& other) noexcept;

  enum class Taken : std::uint8_t { taken, absent, wrong_size, stale };
  /// Takes the wanted block out, copies it to `entry` and remembers the free. `wrong_size`, `stale`: stays in, is copied to `entry`.
  [[nodiscard]] Taken take(Wanted const& wanted, Freeing const& by, MapEntry& entry) noexcept;

  enum class PutBack : std::uint8_t { done, settled, no_memory };
  /// Puts back what take() gave out, generation and all, with a failed free counted. May use the room that insert leaves empty, so it hardly ever needs memory.
  [[nodiscard]] PutBack put_back(MapEntry const& entry) noexcept;

  /// The newest block of exactly this pointer.
  [[nodiscard]] std::optional<MapEntry> find(void const* pointer) const noexcept;
  /// The block that holds the address: the one that begins nearest before it. Looks at every entry.
  [[nodiscard]] std::optional<MapEntry> find_around(void const* address) const noexcept;
  /// The last free of exactly this pointer, if it is remembered; of that generation unless it is 0.
  [[nodiscard]] std::optional<RecentFree> find_recent(void const* pointer, std::uint64_t generation) const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept;
  [[nodiscard]] std::uint64_t heap_bytes() const noexcept;
  [[nodiscard]] std::vector<MapEntry> entries() const;
  /// Takes out what is_settled().
  void drop_settled() noexcept;
  /// Gives the memory of an empty map back and forgets recent frees, at the end of a life. Nobody may insert meanwhile.
  void start_over() noexcept;

private:
  static constexpr std::uint32_t kShards = 64;
  static constexpr std::uint32_t kRecent = 16;

  struct Table {
    std::unique_ptr<void*[]> keys;  // null = empty place
    std::unique_ptr<MapEntry[]> entries;
    std::uint32_t capacity = 0;
    [[nodiscard]] static Table make(std::uint32_t capacity) noexcept;  ///< capacity 0: no memory
    [[nodiscard]] std::uint32_t home(std::uint64_t hash) const noexcept {
      return static_cast<std::uint32_t>(((hash & 0xFFFFFFFFU) * capacity) >> 32);
    }
    [[nodiscard]] std::uint32_t next(std::uint32_t place) const noexcept { return place + 1 == capacity ? 0 : place + 1; }
    void place(std::uint64_t hash, MapEntry const& entry) noexcept;
    void erase(std::uint32_t gap) noexcept;
  };

  // All but `count` under `lock`.
  struct alignas(64) Shard {
    mutable ShortLock lock;
    // Written under the lock, read by size() without it; relaxed, since a sum over shards is a moment of none of them anyway.
    std::atomic<std::uint32_t> count{0};
    std::uint32_t limit = 0;   // entries that fit before the table grows
    std::uint32_t twice = 0;   // entries beside an older one of the same pointer
    std::uint32_t failed = 0;  // entries whose free failed
    std::uint32_t next_recent = 0;
    std::uint64_t generation = 0;
    Table table;
    std::array<RecentFree, kRecent> recent{};
  };

  // Neighbours share a shard, so that a thread that works on them finds it in its nearest cache; what lies 16 KiB apart does not.
  [[nodiscard]] static std::size_t shard_index(void const* pointer) noexcept {
    return ((std::bit_cast<std::uint64_t>(pointer) >> 14) * 0x9E3779B97F4A7C15U) >> 58;
  }
  static_assert(kShards == 1U << (64 - 58));
  // Addresses are multiples of at least 256 and often of much more: a place needs bits from all over.
  [[nodiscard]] static std::uint64_t hash_of(void const* pointer) noexcept {
    auto const hash = std::bit_cast<std::uint64_t>(pointer) * 0x9E3779B97F4A7C15U;
    return hash ^ (hash >> 32);
  }
  [[nodiscard]] Shard& shard_of(void const* pointer) noexcept { return shards_[shard_index(pointer)]; }
  [[nodiscard]] Shard const& shard_of(void const* pointer) const noexcept { return shards_[shard_index(pointer)]; }

  static void add_at(Shard& shard, std::uint32_t place, MapEntry const& entry) noexcept;
  static void remove(Shard& shard, std::uint64_t hash, std::uint32_t place) noexcept;
  static void drop_settled(Shard& shard) noexcept;
  enum class Reason : std::uint8_t { at_limit, full, sparse };
  /// Without the lock: moves the shard's entries to a table of that capacity, if the reason still holds. False: no memory.
  [[nodiscard]] static bool resize(Shard& shard, std::uint32_t capacity, Reason reason) noexcept;

  std::array<Shard, kShards> shards_{};
};

}  // namespace headroom::manager
