// The raw door: allocations enter the map after the manager delivered them, and leave it before the manager frees them.
//
// Why in this order:
//   * allocate: the map comes last. Nobody else knows the pointer yet, so nobody can miss it there.
//   * deallocate: the map comes first. Once the driver has the memory back, another thread may be given the same address, before this
//     thread's call returns: its entry must not meet ours. And of two threads that free the same pointer, one finds it gone.
//   * a free that failed: the block is still the caller's, so the pointer comes back, with its generation. No honest driver has given
//     the address out meanwhile; if one did, both blocks stand in the map, as they do in the books.
#include <headroom/raw_door.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/thrown_error.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"
#include "manager/core.hpp"
#include "manager/door_core.hpp"
#include "manager/errors.hpp"
#include "manager/release.hpp"

namespace headroom {
namespace manager {

// The block that cannot be handed out goes back, before any words: they need memory, of which there may be none. A free that fails here
// leaves it charged and in quarantine, as any other.
template <class Why>
Error DoorCore::undo(Allocation& allocation, ErrorKind kind, Layer layer, Why const& why) noexcept {
  const std::uint64_t bytes = allocation.bytes;
  const auto freed = release(allocation);
  Error error = make_error(kind, layer, words([&] {
                             std::string text = why();
                             if (!freed) text += "; giving the block back failed: " + freed.error().to_string();
                             return text;
                           }));
  error.requested = bytes;
  return error;
}

std::optional<Error> DoorCore::allocate(AllocArguments const& arguments, std::source_location const& site, MapEntry& entry) {
  std::optional<Error> error = manager::allocate(*route_, arguments, site, entry.allocation);
  if (error || arguments.count == 0) [[unlikely]]
    return error;
  if (entry.allocation.pointer == nullptr) [[unlikely]] {
    error = undo(entry.allocation, ErrorKind::driver, Layer::resource,
                 [&] { return "the resource delivered a null pointer for " + std::to_string(arguments.count) + " bytes"; });
    return error;
  }
  entry.thread = flight::this_thread().thread_id;
  if (entry.allocation.slot_generation == 0) [[unlikely]]
    entry.ticks = ticks_now();
  MapEntry other{MapEntry::Unset{}};
  const auto inserted = map_.insert(entry, other);
  if (inserted == PointerMap::Inserted::address_twice) [[unlikely]]
    report_twice(entry, other);
  if (inserted == PointerMap::Inserted::no_memory) [[unlikely]] {
    error = undo(entry.allocation, ErrorKind::io, Layer::manager,
                 [] { return std::string{"the system has no memory for one more pointer in the door's map"}; });
  }
  return error;
}

Result<void> DoorCore::deallocate(Wanted const& wanted, std::optional<StreamId> stream, std::source_location const& site) {
  if (wanted.pointer == nullptr) return success();
  if (flight::in_forked_child()) [[unlikely]]
    return tl::unexpected{forked_child_error()};
  const Freeing by{.thread = flight::this_thread().thread_id, .site = flight::intern_site(site)};
  MapEntry entry{MapEntry::Unset{}};
  if (const auto outcome = map_.take(wanted, by, entry); outcome != PointerMap::Taken::taken) [[unlikely]] {
    Error error = refuse(wanted, outcome, entry, by);
    if (outcome != PointerMap::Taken::wrong_size || options_.wrong_size == WrongSize::refuse)
      return tl::unexpected{std::move(error)};
    // That very block, whatever its size; another thread may have been faster.
    const Wanted same{.pointer = wanted.pointer, .generation = entry.generation};
    if (map_.take(same, by, entry) != PointerMap::Taken::taken) return tl::unexpected{std::move(error)};
  }
  return free_taken(wanted, entry, stream, by);
}

// One name for all ways out: a Result that is copied costs more than the map.
Result<void> DoorCore::free_taken(Wanted const& wanted, MapEntry& entry, std::optional<StreamId> stream, Freeing const& by) {
  Allocation block = entry.allocation;
  if (stream) block.stream = stream->value;
  Result<void> freed = entry.failed_frees != 0 ? retry_by_owner(block) : release(block);
  if (!freed) [[unlikely]]
    freed = keep(wanted, entry, stream.has_value(), by, std::move(freed));
  return freed;
}

// The free failed: the block is the caller's again.
Result<void> DoorCore::keep(Wanted const& wanted, MapEntry& entry, bool other_stream, Freeing const& by, Result<void> failure) {
  // A retry of the manager's own, or a write-off, was faster: the pointer stays away.
  if (is_settled(entry)) return tl::unexpected{refuse_settled(wanted, entry, by)};
  ++entry.failed_frees;
  // The manager retries on the block's own stream, not on one that may have been the reason.
  if (other_stream) route_->core().correct_quarantine(entry.allocation);
  switch (map_.put_back(entry)) {
    case PointerMap::PutBack::done: return failure;
    case PointerMap::PutBack::settled: return success();  // in the meantime a retry of the manager's freed it
    case PointerMap::PutBack::no_memory: break;
  }
  std::string& message = failure.error().message;
  if (auto full =
          words([&] { return message + "; the system has no memory to keep its pointer: only the manager can retry the free"; });
      !full.empty())
    message = std::move(full);
  return failure;
}

}  // namespace manager

using manager::DoorCore;
using manager::MapEntry;

Result<RawDoor> RawDoor::create(GpuMemoryManager manager, RawDoorOptions options) {
  auto core = DoorCore::open(std::move(manager), options);
  if (!core) return tl::unexpected{std::move(core.error())};
  return RawDoor{**core};
}

RawDoor::RawDoor(DoorCore& core) noexcept : core_(&core) {}
RawDoor::RawDoor(RawDoor const& other) noexcept : core_(other.core_) {
  if (core_ != nullptr) core_->add_handle();
}
RawDoor::RawDoor(RawDoor&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
RawDoor& RawDoor::operator=(RawDoor other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}
RawDoor::~RawDoor() {
  if (core_ != nullptr) core_->drop_handle();
}

Result<void*> RawDoor::allocate(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, AllocTag tag,
                                std::source_location const& site) {
  MapEntry entry{MapEntry::Unset{}};
  auto error =
      core_->allocate({.count = bytes, .alignment = alignment, .stream = stream, .tag = tag, .typed = false}, site, entry);
  if (error) [[unlikely]]
    return tl::unexpected{std::move(*error)};
  return entry.allocation.pointer;
}

Result<RawBlock> RawDoor::allocate_block(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, AllocTag tag,
                                         std::source_location const& site) {
  MapEntry entry{MapEntry::Unset{}};
  auto error =
      core_->allocate({.count = bytes, .alignment = alignment, .stream = stream, .tag = tag, .typed = false}, site, entry);
  if (error) [[unlikely]]
    return tl::unexpected{std::move(*error)};
  return RawBlock{entry.allocation.pointer, entry.allocation.bytes, entry.generation};
}

Result<void> RawDoor::deallocate(void* pointer, std::uint64_t bytes, std::optional<StreamId> stream,
                                 std::source_location const& site) {
  return core_->deallocate({.pointer = pointer, .bytes = bytes == kUnknownBytes ? std::nullopt : std::optional{bytes}}, stream,
                           site);
}

Result<void> RawDoor::deallocate(RawBlock const& block, std::optional<StreamId> stream, std::source_location const& site) {
  return core_->deallocate({.pointer = block.pointer, .bytes = block.bytes, .generation = block.generation}, stream, site);
}

std::optional<RawBlockInfo> RawDoor::find(void const* address) const {
  // A lock may have been held, at the fork, by a thread that the child does not have.
  if (flight::in_forked_child()) return std::nullopt;
  const auto entry = manager::look_up(core_->map(), address);
  return entry ? std::optional{manager::describe(*entry, address)} : std::nullopt;
}

std::uint64_t RawDoor::live_blocks() const noexcept {
  if (!flight::in_forked_child()) core_->map().drop_settled();
  return core_->map().size();
}

std::uint64_t RawDoor::misuse_count() const noexcept { return core_->misuse_count(); }
std::uint64_t RawDoor::addresses_twice() const noexcept { return core_->addresses_twice(); }
GpuMemoryManager const& RawDoor::manager() const noexcept { return core_->manager(); }

std::vector<RawOverlap> RawDoor::overlaps() const {
  if (flight::in_forked_child()) return {};
  auto entries = core_->map().entries();
  const auto begin_of = [](MapEntry const& entry) { return std::bit_cast<std::uint64_t>(entry.allocation.pointer); };
  std::ranges::sort(entries, {}, begin_of);
  const auto block_of = [](MapEntry const& entry) {
    return RawBlock{entry.allocation.pointer, entry.allocation.bytes, entry.generation};
  };
  std::vector<RawOverlap> overlaps;
  // Against the one that reaches farthest so far: a long block may cover several short ones.
  for (std::size_t i = 1, farthest = 0; i < entries.size(); ++i) {
    const std::uint64_t end = begin_of(entries[farthest]) + entries[farthest].allocation.bytes;
    if (begin_of(entries[i]) < end) overlaps.push_back({block_of(entries[farthest]), block_of(entries[i])});
    if (begin_of(entries[i]) + entries[i].allocation.bytes > end) farthest = i;
  }
  return overlaps;
}

std::optional<RawBlockInfo> find_raw_block(void const* address) {
  if (flight::in_forked_child()) return std::nullopt;
  for (DoorCore* door : DoorCore::all()) {
    if (const auto entry = door->map().find(address)) return manager::describe(*entry, address);
  }
  for (DoorCore* door : DoorCore::all()) {
    if (const auto entry = manager::look_up(door->map(), address)) return manager::describe(*entry, address);
  }
  return std::nullopt;
}

}  // namespace headroom
