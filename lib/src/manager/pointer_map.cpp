#include "manager/pointer_map.hpp"

#include <bit>
#include <mutex>
#include <new>
#include <utility>

#include "flight/live_table.hpp"

namespace headroom::manager {
namespace {

constexpr std::uint32_t kSmallestTable = 8;
constexpr std::uint32_t kNoPlace = UINT32_MAX;

// Four fifths, and always at least one empty place: a search ends there.
constexpr std::uint32_t limit_of(std::uint32_t capacity) noexcept { return static_cast<std::uint32_t>(capacity * 4ULL / 5); }

constexpr std::uint32_t grown(std::uint32_t capacity) noexcept {
  const std::uint32_t more = capacity / 2;
  return capacity + (more < kSmallestTable ? kSmallestTable : more);
}

// A retry of the manager's own has taken the block up, or is through with it: its address may be anybody's by now. (Should that retry
// fail, the block stays in quarantine, charged, without its pointer.)
bool is_given_up(MapEntry const& entry) noexcept {
  if (entry.failed_frees == 0 || entry.allocation.slot_generation == 0) return false;
  const std::uint64_t word = flight::slot_word(entry.allocation.slot);
  return flight::slot_generation(word) != entry.allocation.slot_generation ||
         flight::slot_state(word) != flight::SlotState::failed;
}

std::uint64_t distance(void const* from, void const* to) noexcept {
  return std::bit_cast<std::uint64_t>(to) - std::bit_cast<std::uint64_t>(from);
}

}  // namespace

bool is_settled(MapEntry const& entry) noexcept {
  // An untracked block is in no list of the manager: only the door can free it again.
  if (entry.failed_frees == 0 || entry.allocation.slot_generation == 0) return false;
  const std::uint64_t word = flight::slot_word(entry.allocation.slot);
  return flight::slot_generation(word) != entry.allocation.slot_generation || flight::slot_state(word) == flight::SlotState::free;
}

// ── one table ──

PointerMap::Table PointerMap::Table::make(std::uint32_t capacity) noexcept {
  Table table;
  table.keys.reset(new (std::nothrow) void*[capacity]());
  table.entries.reset(new (std::nothrow) MapEntry[capacity]);
  table.capacity = table.keys != nullptr && table.entries != nullptr ? capacity : 0;
  return table;
}

void PointerMap::Table::place(std::uint64_t hash, MapEntry const& entry) noexcept {
  auto place = home(hash);
  while (keys[place] != nullptr) place = next(place);
  keys[place] = entry.allocation.pointer;
  entries[place] = entry;
}

// Closes the gap by moving later entries back, so that no tombstones pile up. Entries of one pointer keep their order.
void PointerMap::Table::erase(std::uint32_t gap) noexcept {
  const auto steps = [this](std::uint32_t from, std::uint32_t to) { return to >= from ? to - from : to + capacity - from; };
  for (auto place = next(gap); keys[place] != nullptr; place = next(place)) {
    // An entry may move into the gap unless its home lies behind the gap, cyclically.
    if (steps(home(hash_of(keys[place])), place) < steps(gap, place)) continue;
    keys[gap] = keys[place];
    entries[gap] = entries[place];
    gap = place;
  }
  keys[gap] = nullptr;
}

// ── one shard, its lock held ──

void PointerMap::add_at(Shard& shard, std::uint32_t place, MapEntry const& entry) noexcept {
  shard.table.keys[place] = entry.allocation.pointer;
  shard.table.entries[place] = entry;
  shard.count.store(shard.count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void PointerMap::remove(Shard& shard, std::uint64_t hash, std::uint32_t place) noexcept {
  Table& table = shard.table;
  if (table.entries[place].failed_frees != 0) --shard.failed;
  if (shard.twice != 0) [[unlikely]] {
    for (auto other = table.home(hash); table.keys[other] != nullptr; other = table.next(other)) {
      if (other == place || table.keys[other] != table.keys[place]) continue;
      --shard.twice;
      break;
    }
  }
  table.erase(place);
  shard.count.store(shard.count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

void PointerMap::drop_settled(Shard& shard) noexcept {
  // Closing a gap moves an entry that was not looked at yet to the place just looked at, so that one is looked at again. Around the
  // end of the table it moves one that was looked at, to a place that comes later: harmless.
  for (std::uint32_t place = 0; shard.failed != 0 && place < shard.table.capacity;) {
    if (shard.table.keys[place] != nullptr && is_settled(shard.table.entries[place])) {
      remove(shard, hash_of(shard.table.keys[place]), place);
    } else {
      ++place;
    }
  }
}

bool PointerMap::resize(Shard& shard, std::uint32_t capacity, Reason reason) noexcept {
  Table table = Table::make(capacity);
  if (table.capacity == 0) return false;
  const std::scoped_lock lock{shard.lock};
  drop_settled(shard);
  // Another thread may have been faster, or the shard may have changed meanwhile: then the new table goes away again.
  const std::uint32_t count = shard.count.load(std::memory_order_relaxed);
  const std::uint32_t present = shard.table.capacity;
  const bool wanted = reason == Reason::at_limit ? count >= shard.limit && present < capacity
                      : reason == Reason::full   ? count + 1 >= present && present < capacity
                                                 : count < capacity / 2 && present > capacity;
  if (!wanted) return true;
  for (std::uint32_t place = 0; place < shard.table.capacity; ++place) {
    if (shard.table.keys[place] != nullptr) table.place(hash_of(shard.table.keys[place]), shard.table.entries[place]);
  }
  std::swap(shard.table, table);
  shard.limit = limit_of(capacity);
  return true;
}

// ── the map ──

PointerMap::Inserted PointerMap::insert(MapEntry& entry, MapEntry& other) noexcept {
  void* const pointer = entry.allocation.pointer;
  const std::uint64_t hash = hash_of(pointer);
  Shard& shard = shard_of(pointer);
  for (;;) {
    std::uint32_t capacity = 0;
    {
      const std::scoped_lock lock{shard.lock};
      Table const& table = shard.table;
      if (shard.count.load(std::memory_order_relaxed) < shard.limit) [[likely]] {
        bool twice = false;
        auto place = table.home(hash);
        while (table.keys[place] != nullptr) {
          if (table.keys[place] != pointer) [[likely]] {
            place = table.next(place);
          } else if (is_given_up(table.entries[place])) {
            // The manager frees it behind the door's back, and the resource gave the address out again, as it may.
            remove(shard, hash, place);
            twice = false;
            place = table.home(hash);
          } else {
            other = table.entries[place];
            twice = true;
            place = table.next(place);
          }
        }
        add_at(shard, place, entry);
        table.entries[place].generation = entry.generation = ++shard.generation;
        if (!twice) [[likely]]
          return Inserted::done;
        ++shard.twice;
        return Inserted::address_twice;
      }
      capacity = grown(table.capacity);
    }
    if (!resize(shard, capacity, Reason::at_limit)) return Inserted::no_memory;
  }
}

PointerMap::Taken PointerMap::take(Wanted const& wanted, Freeing const& by, MapEntry& entry) noexcept {
  const std::uint64_t hash = hash_of(wanted.pointer);
  Shard& shard = shard_of(wanted.pointer);
  std::uint32_t smaller = 0;
  {
    const std::scoped_lock lock{shard.lock};
    Table const& table = shard.table;
    if (table.capacity == 0) return Taken::absent;
    std::uint32_t found = kNoPlace;
    std::uint32_t unfit = kNoPlace;
    for (auto place = table.home(hash); table.keys[place] != nullptr; place = table.next(place)) {
      if (table.keys[place] != wanted.pointer) continue;
      MapEntry const& here = table.entries[place];
      const bool fits = (wanted.generation == 0 || here.generation == wanted.generation) &&
                        (!wanted.bytes || here.allocation.bytes == *wanted.bytes);
      // A block that was put back may stand behind a newer one.
      std::uint32_t& best = fits ? found : unfit;
      if (best == kNoPlace || table.entries[best].generation < here.generation) best = place;
      if (shard.twice == 0) [[likely]]
        break;
    }
    if (found == kNoPlace) [[unlikely]] {
      if (unfit == kNoPlace) return Taken::absent;
      entry = table.entries[unfit];
      return wanted.generation != 0 && wanted.generation != entry.generation ? Taken::stale : Taken::wrong_size;
    }
    MapEntry const& taken = table.entries[found];
    RecentFree& recent = shard.recent[shard.next_recent++ % kRecent];
    recent.pointer = wanted.pointer;
    recent.bytes = taken.allocation.bytes;
    recent.generation = taken.generation;
    recent.by = by;
    recent.allocated_by = {.thread = taken.thread, .site = taken.allocation.site};
    entry = taken;
    remove(shard, hash, found);
    const std::uint32_t left = shard.count.load(std::memory_order_relaxed);
    if (table.capacity <= kSmallestTable * 8 || left >= table.capacity / 4) [[likely]]
      return Taken::taken;
    smaller = table.capacity / 2;
  }
  // Without memory for the smaller table the larger one stays: the next free tries again.
  static_cast<void>(resize(shard, smaller, Reason::sparse));
  return Taken::taken;
}

PointerMap::PutBack PointerMap::put_back(MapEntry const& entry) noexcept {
  const std::uint64_t hash = hash_of(entry.allocation.pointer);
  Shard& shard = shard_of(entry.allocation.pointer);
  for (;;) {
    std::uint32_t capacity = 0;
    {
      const std::scoped_lock lock{shard.lock};
      if (is_settled(entry)) return PutBack::settled;
      Table const& table = shard.table;
      // Beyond the limit, but never into the last empty place, where searches end.
      if (shard.count.load(std::memory_order_relaxed) + 1 < table.capacity) {
        auto place = table.home(hash);
        bool twice = false;
        for (; table.keys[place] != nullptr; place = table.next(place)) {
          twice = twice || table.keys[place] == entry.allocation.pointer;
        }
        add_at(shard, place, entry);
        ++shard.failed;
        if (twice) ++shard.twice;
        return PutBack::done;
      }
      capacity = grown(table.capacity);
    }
    if (!resize(shard, capacity, Reason::full)) return PutBack::no_memory;
  }
}

std::optional<MapEntry> PointerMap::find(void const* pointer) const noexcept {
  const std::uint64_t hash = hash_of(pointer);
  Shard const& shard = shard_of(pointer);
  std::optional<MapEntry> found;
  const std::scoped_lock lock{shard.lock};
  Table const& table = shard.table;
  if (table.capacity == 0) return found;
  for (auto place = table.home(hash); table.keys[place] != nullptr; place = table.next(place)) {
    if (table.keys[place] != pointer || is_settled(table.entries[place])) continue;
    if (!found || found->generation < table.entries[place].generation) found = table.entries[place];
  }
  return found;
}

std::optional<MapEntry> PointerMap::find_around(void const* address) const noexcept {
  std::optional<MapEntry> nearest;
  for (Shard const& shard : shards_) {
    const std::scoped_lock lock{shard.lock};
    Table const& table = shard.table;
    for (std::uint32_t place = 0; place < table.capacity; ++place) {
      if (table.keys[place] == nullptr) continue;
      // An address before the block is a huge distance away.
      const std::uint64_t offset = distance(table.keys[place], address);
      if (offset >= table.entries[place].allocation.bytes || is_settled(table.entries[place])) continue;
      if (!nearest || offset < distance(nearest->allocation.pointer, address)) nearest = table.entries[place];
    }
  }
  return nearest;
}

std::optional<RecentFree> PointerMap::find_recent(void const* pointer, std::uint64_t generation) const noexcept {
  Shard const& shard = shard_of(pointer);
  std::optional<RecentFree> found;
  const std::scoped_lock lock{shard.lock};
  for (RecentFree const& free : shard.recent) {
    if (free.pointer != pointer || (generation != 0 && free.generation != generation)) continue;
    if (!found || found->generation < free.generation) found = free;
  }
  return found;
}

std::uint64_t PointerMap::size() const noexcept {
  std::uint64_t size = 0;
  for (Shard const& shard : shards_) size += shard.count.load(std::memory_order_relaxed);
  return size;
}

std::uint64_t PointerMap::heap_bytes() const noexcept {
  std::uint64_t places = 0;
  for (Shard const& shard : shards_) {
    const std::scoped_lock lock{shard.lock};
    places += shard.table.capacity;
  }
  return places * (sizeof(void*) + sizeof(MapEntry));
}

std::vector<MapEntry> PointerMap::entries() const {
  // Room first: no lock is held over a call that may throw. Blocks that come meanwhile, beyond some to spare, are not seen.
  std::vector<MapEntry> all;
  const std::uint64_t now = size();
  all.reserve(now + now / 8 + kShards);
  for (Shard const& shard : shards_) {
    const std::scoped_lock lock{shard.lock};
    for (std::uint32_t place = 0; place < shard.table.capacity && all.size() < all.capacity(); ++place) {
      if (shard.table.keys[place] != nullptr && !is_settled(shard.table.entries[place]))
        all.push_back(shard.table.entries[place]);
    }
  }
  return all;
}

void PointerMap::drop_settled() noexcept {
  for (Shard& shard : shards_) {
    const std::scoped_lock lock{shard.lock};
    drop_settled(shard);
  }
}

void PointerMap::start_over() noexcept {
  for (Shard& shard : shards_) {
    Table table;  // ends after the lock
    const std::scoped_lock lock{shard.lock};
    if (shard.count.load(std::memory_order_relaxed) != 0) continue;
    std::swap(shard.table, table);
    shard.limit = 0;
    shard.recent = {};
  }
}

}  // namespace headroom::manager
