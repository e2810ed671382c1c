// What all handles of one raw door share: its manager, its map and its counts. Door cores live as long as the process, since blocks may
// outlive every handle; a closed and empty one is opened again.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <headroom/raw_door.hpp>

#include "flight/thread_state.hpp"
#include "manager/pointer_map.hpp"

namespace headroom::manager {

class DoorCore {
public:
  [[nodiscard]] static Result<DoorCore*> open(GpuMemoryManager manager, RawDoorOptions options);
  void add_handle() noexcept { handles_.fetch_add(1, std::memory_order_relaxed); }
  void drop_handle() noexcept;

  /// Fills the entry as the map has it; null and nothing else for zero bytes.
  [[nodiscard]] std::optional<Error> allocate(AllocArguments const& arguments, std::source_location const& site, MapEntry& entry);
  [[nodiscard]] Result<void> deallocate(Wanted const& wanted, std::optional<StreamId> stream, std::source_location const& site);

  [[nodiscard]] PointerMap& map() noexcept { return map_; }
  [[nodiscard]] GpuMemoryManager const& manager() const noexcept { return *manager_; }
  [[nodiscard]] std::uint64_t misuse_count() const noexcept { return misuses_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t addresses_twice() const noexcept { return twice_.load(std::memory_order_relaxed); }

  /// All doors that the process ever had, closed ones too. They stay valid.
  [[nodiscard]] static std::vector<DoorCore*> all();
  /// The name of this door's manager, for messages of other doors.
  [[nodiscard]] std::string manager_name() const;

private:
  DoorCore() = default;

  // A free that was refused: what is known of the block, and of who freed it first.
  struct Misuse {
    ErrorKind kind{};
    std::string sentence{};
    std::optional<MapEntry> block{};
    std::optional<RecentFree> first{};
  };
  [[nodiscard]] static Misuse examine(Wanted const& wanted, PointerMap::Taken outcome, MapEntry const& entry);
  [[nodiscard]] Misuse examine_absent(Wanted const& wanted);
  [[nodiscard]] Error refuse(Wanted const& wanted, PointerMap::Taken outcome, MapEntry const& entry, Freeing const& by) noexcept;
  [[nodiscard]] Error refuse_settled(Wanted const& wanted, MapEntry const& entry, Freeing const& by) noexcept;
  template <class Examine>
  [[nodiscard]] Error refuse_as(Wanted const& wanted, ErrorKind kind, Freeing const& by, Examine&& examine) noexcept;
  void book(Wanted const& wanted, Misuse const& misuse, Freeing const& by) noexcept;
  void report(Wanted const& wanted, Misuse const& misuse, Freeing const& by);
  void report_twice(MapEntry const& entry, MapEntry const& other) noexcept;
  template <class Why>
  [[nodiscard]] static Error undo(Allocation& allocation, ErrorKind kind, Layer layer, Why const& why) noexcept;
  [[nodiscard]] Result<void> free_taken(Wanted const& wanted, MapEntry& entry, std::optional<StreamId> stream, Freeing const& by);
  [[nodiscard]] Result<void> keep(Wanted const& wanted, MapEntry& entry, bool other_stream, Freeing const& by,
                                  Result<void> failure);

  std::atomic<std::uint32_t> handles_{0};  // relaxed up, acq_rel down: the last one sees all that the others did
  // Counted by whoever meets one, read by anyone; relaxed, nothing else depends on them.
  std::atomic<std::uint64_t> misuses_{0};
  std::atomic<std::uint64_t> twice_{0};
  std::optional<GpuMemoryManager> manager_;  // while open
  Route* route_ = nullptr;                   // its way: where requests go and misuse is booked
  RawDoorOptions options_;
  std::string manager_name_;  // under the registry's mutex
  PointerMap map_;
};

/// Everything that find() tells of a block.
[[nodiscard]] RawBlockInfo describe(MapEntry const& entry, void const* address);
/// "folder/file.cpp:12 function" of a site; empty when it is unknown.
[[nodiscard]] std::string site_text(std::uint32_t site);
/// The block that holds the address: by its first byte, or by looking at all.
[[nodiscard]] std::optional<MapEntry> look_up(PointerMap const& map, void const* address);

}  // namespace headroom::manager
