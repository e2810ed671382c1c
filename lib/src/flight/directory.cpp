#include "flight/directory.hpp"

#include <bitset>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/utf8.hpp"
#include "flight/recorder.hpp"

namespace headroom::flight {
namespace {

// Sites may use three quarters of the directory, so that a program with thousands of call sites still names its managers.
constexpr std::uint32_t kSiteShare = 4;

std::mutex mutex;
// A signal handler that interrupts the holder must not wait for it: it finds this set and does without a name.
thread_local constinit std::atomic<bool> holding{false};

class [[nodiscard]] DirectoryLock {
public:
  DirectoryLock() {
    // Before the lock: a handler between the two would find the mutex taken by its own thread.
    holding.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    mutex.lock();
  }
  ~DirectoryLock() {
    mutex.unlock();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    holding.store(false, std::memory_order_relaxed);
  }
  DirectoryLock(DirectoryLock const&) = delete;
  DirectoryLock& operator=(DirectoryLock const&) = delete;
};

/// Entries that may be used again, oldest first. It has room for every entry from the first one on that can be closed: closing, which
/// destructors do, needs no memory. Not made for sites, whose names a signal handler may add while it interrupts malloc.
class ClosedEntries {
public:
  void make_room() {
    if (!next_) next_ = std::make_unique<std::uint32_t[]>(recorder.geometry[Region::directory].count);
  }
  void put(std::uint32_t id) noexcept {
    next_[id] = 0;
    (last_ != 0 ? next_[last_] : first_) = id;
    last_ = id;
  }
  /// 0 when there is none: entry 0 is never used.
  [[nodiscard]] std::uint32_t take() noexcept {
    const std::uint32_t id = first_;
    if (id == 0) return 0;
    first_ = next_[id];
    if (first_ == 0) last_ = 0;
    return id;
  }

private:
  std::unique_ptr<std::uint32_t[]> next_;  // by entry: the one that was closed after it
  std::uint32_t first_ = 0, last_ = 0;
};

ClosedEntries* closed_entries = nullptr;  // never freed: exit order must not matter
std::map<std::string, std::uint32_t, std::less<>>* marks = nullptr;
std::map<std::pair<std::uint32_t, std::string>, TagPlace>* tags = nullptr;  // of open ledgers
std::uint32_t sites_used = 0;
std::bitset<kTagCells> tag_cells;
std::uint32_t named_cells = 0;  // of them: all but those of an `other`

// Names from outside come through valid_utf8 first. A site's is the compiler's text, in whatever encoding the source has: readers mend
// that.
void store_label(DirectoryEntry& entry, std::string_view clean) noexcept {
  char text[kLabelBytes] = {};
  clean.copy(text, kLabelBytes - 1);
  for (std::size_t i = 0; i < kLabelBytes / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, text + 8 * i, 8);
    entry.label[i].store(word, std::memory_order_release);
  }
}

std::uint32_t add_locked(EntryKind kind, std::uint32_t parent, std::uint64_t number, std::uint64_t payload,
                         std::string_view label) {
  std::uint32_t id = 0;
  const auto used = static_cast<std::uint32_t>(recorder.header->directory_used.load(std::memory_order_relaxed));
  // Fresh entries first: old events keep their names as long as possible.
  if (used < recorder.geometry[Region::directory].count) {
    id = used;
  } else if (closed_entries != nullptr) {
    id = closed_entries->take();
  }
  if (id == 0) return 0;  // entry 0 means none
  DirectoryEntry& entry = recorder.directory[id];
  const auto generation = static_cast<std::uint32_t>(entry.state.load(std::memory_order_relaxed) >> 32) + 1;
  entry.state.store(pack_entry(generation, kind, EntryState::writing), std::memory_order_release);
  entry.parent.store(parent, std::memory_order_release);
  entry.number.store(number, std::memory_order_release);
  entry.payload.store(payload, std::memory_order_release);
  store_label(entry, label);
  entry.state.store(pack_entry(generation, kind, EntryState::open), std::memory_order_release);
  if (id == used) recorder.header->directory_used.store(used + 1, std::memory_order_release);
  return id;
}

// Before an entry is added that will be closed.
void make_room_to_close() {
  if (closed_entries == nullptr) closed_entries = new ClosedEntries;
  closed_entries->make_room();
}

void close_locked(std::uint32_t id) noexcept {
  DirectoryEntry& entry = recorder.directory[id];
  const std::uint64_t state = entry.state.load(std::memory_order_relaxed);
  entry.state.store((state & ~std::uint64_t{0xFF}) | static_cast<std::uint8_t>(EntryState::closed), std::memory_order_release);
  closed_entries->put(id);
}

// Open addressing from (file pointer, line) to directory id. Written under the mutex, id first and key last (release); read without
// it (acquire on the key). Entries are never removed: source locations live as long as the process.
struct SiteSlot {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint32_t> id{0};
};
constexpr std::size_t kSiteSlots = 8192;
constinit SiteSlot site_slots[kSiteSlots];

// User-space pointers have 47 bits; lines above 131,071 of one file share a site with an earlier line.
std::uint64_t site_key(std::source_location const& site) noexcept {
  return (reinterpret_cast<std::uintptr_t>(site.file_name()) & ((std::uint64_t{1} << 47) - 1)) |
         (std::uint64_t{site.line()} << 47);
}
std::size_t site_start(std::uint64_t key) noexcept { return (key * 0x9E3779B97F4A7C15ULL) >> 51; }
static_assert((std::size_t{1} << (64 - 51)) == kSiteSlots);

// "folder/file.cpp:12 function", from the right end of the path, as much of it as a label holds. On the stack: a signal handler that
// allocates at a new site may have interrupted malloc.
struct SiteLabel {
  explicit SiteLabel(std::source_location const& site) noexcept {
    std::string_view file = site.file_name();
    if (const auto last = file.rfind('/'); last != std::string_view::npos && last != 0) {
      if (const auto before = file.rfind('/', last - 1); before != std::string_view::npos) file.remove_prefix(before + 1);
    }
    char line[12];
    auto* const end = std::to_chars(std::begin(line), std::end(line), site.line()).ptr;
    for (const std::string_view part : {file, std::string_view{":"}, std::string_view{line, end}, std::string_view{" "},
                                        std::string_view{site.function_name()}}) {
      used += part.copy(text + used, kLabelBytes - 1 - used);
    }
    if (used == kLabelBytes - 1) drop_half_character();
  }
  [[nodiscard]] std::string_view view() const noexcept { return {text, used}; }
  // Where the label ends, a character of more than one byte may be cut.
  void drop_half_character() noexcept {
    std::size_t start = used - 1;
    while (start != 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    if (utf8_character_length({text + start, used - start}) == 0) used = start;
  }
  char text[kLabelBytes] = {};
  std::size_t used = 0;
};

std::uint32_t add_site(std::source_location const& site, std::uint64_t key, std::size_t start) {
  if (holding.load(std::memory_order_relaxed)) return 0;
  const DirectoryLock lock;
  for (std::size_t i = 0; i < kSiteSlots; ++i) {
    SiteSlot& slot = site_slots[(start + i) % kSiteSlots];
    const std::uint64_t present = slot.key.load(std::memory_order_relaxed);
    if (present == key) return slot.id.load(std::memory_order_relaxed);
    if (present != 0) continue;
    std::uint32_t id = 0;
    const std::uint32_t share = recorder.geometry[Region::directory].count / kSiteShare * (kSiteShare - 1);
    if (sites_used < share) {
      ++sites_used;
      id = add_locked(EntryKind::site, 0, site.line(), key, SiteLabel{site}.view());
    }
    if (id == 0) {
      recorder.header->sites_folded.fetch_add(1, std::memory_order_relaxed);
      if (std::size_t{sites_used} * 2 > kSiteSlots)
        return 0;  // keep the table sparse: folded sites are not remembered past half of it
    }
    slot.id.store(id, std::memory_order_relaxed);
    slot.key.store(key, std::memory_order_release);
    return id;
  }
  return 0;
}

}  // namespace

std::uint32_t add_entry(EntryKind kind, std::uint32_t parent, std::uint64_t number, std::uint64_t payload,
                        std::string_view label) {
  const std::string clean = valid_utf8(label, kLabelBytes - 1);
  const DirectoryLock lock;
  make_room_to_close();
  return add_locked(kind, parent, number, payload, clean);
}

void close_entry(std::uint32_t id) noexcept {
  if (id == 0) return;
  const DirectoryLock lock;
  close_locked(id);
}

std::uint32_t intern_site(std::source_location const& site) noexcept {
  const std::uint64_t key = site_key(site);
  if (key == 0) return 0;
  const std::size_t start = site_start(key);
  for (std::size_t i = 0; i < kSiteSlots; ++i) {
    SiteSlot const& slot = site_slots[(start + i) % kSiteSlots];
    const std::uint64_t present = slot.key.load(std::memory_order_acquire);
    if (present == key) return slot.id.load(std::memory_order_relaxed);
    if (present == 0) break;
  }
  return add_site(site, key, start);
}

std::uint32_t intern_mark(std::string_view label) {
  if (holding.load(std::memory_order_relaxed)) return 0;
  const DirectoryLock lock;
  if (marks == nullptr) marks = new std::map<std::string, std::uint32_t, std::less<>>;
  if (const auto known = marks->find(label); known != marks->end()) return known->second;
  const std::uint32_t id = add_locked(EntryKind::mark, 0, 0, 0, valid_utf8(label, kLabelBytes - 1));
  marks->emplace(label, id);
  return id;
}

TagPlace add_tag(std::uint32_t ledger_entry, std::string_view label) noexcept {
  // A ledger that the directory had no room for has no name to keep its tags apart from those of others.
  if (ledger_entry == 0 || holding.load(std::memory_order_relaxed)) return {};
  try {
    std::string text{label};
    const bool is_other = text == kOtherTag;
    const std::string clean = valid_utf8(label, kLabelBytes - 1);
    const DirectoryLock lock;
    if (tags == nullptr) tags = new std::map<std::pair<std::uint32_t, std::string>, TagPlace>;
    // All that may throw comes first.
    make_room_to_close();
    const auto [known, added] = tags->try_emplace(std::pair{ledger_entry, std::move(text)});
    if (!added) return known->second;
    std::size_t cell = 0;
    while (cell < kTagCells && tag_cells[cell]) ++cell;
    const bool has_room = is_other ? cell < kTagCells : named_cells < kNamedTagCells;
    const std::uint32_t id = has_room ? add_locked(EntryKind::tag, ledger_entry, cell, 0, clean) : 0;
    if (id == 0) {
      tags->erase(known);
      return {};
    }
    tag_cells.set(cell);
    if (!is_other) ++named_cells;
    const std::uint64_t used = recorder.header->tag_cells_used.load(std::memory_order_relaxed);
    if (used < cell + 1) recorder.header->tag_cells_used.store(cell + 1, std::memory_order_relaxed);
    known->second = {static_cast<std::uint16_t>(id), static_cast<std::uint16_t>(cell)};
    return known->second;
  } catch (std::bad_alloc const&) {
    return {};
  }
}

void close_tags_of(std::uint32_t ledger_entry) noexcept {
  if (ledger_entry == 0) return;
  const DirectoryLock lock;
  if (tags != nullptr) {
    std::erase_if(*tags, [&](auto const& tag) {
      if (tag.first.first != ledger_entry) return false;
      if (tag.first.second != kOtherTag) --named_cells;
      return true;
    });
  }
  const auto used = static_cast<std::uint32_t>(recorder.header->directory_used.load(std::memory_order_relaxed));
  for (std::uint32_t id = 1; id < used; ++id) {
    DirectoryEntry& entry = recorder.directory[id];
    const std::uint64_t state = entry.state.load(std::memory_order_relaxed);
    const auto kind = static_cast<EntryKind>((state >> 8) & 0xFF);
    if (kind != EntryKind::tag || static_cast<EntryState>(state & 0xFF) != EntryState::open) continue;
    if (entry.parent.load(std::memory_order_relaxed) != ledger_entry) continue;
    const auto cell = static_cast<std::uint32_t>(entry.number.load(std::memory_order_relaxed));
    std::uint64_t allocations = recorder.overflow->tags[cell].allocations.load(std::memory_order_relaxed);
    std::uint64_t bytes = recorder.overflow->tags[cell].bytes.load(std::memory_order_relaxed);
    for (std::uint32_t lane = 0; lane < kOwnedLanes; ++lane) {
      allocations += recorder.lane(lane).tags[cell].allocations.load(std::memory_order_relaxed);
      bytes += recorder.lane(lane).tags[cell].bytes.load(std::memory_order_relaxed);
    }
    recorder.tag_bases[cell].allocations.store(allocations, std::memory_order_release);
    recorder.tag_bases[cell].bytes.store(bytes, std::memory_order_release);
    tag_cells.reset(cell);
    close_locked(id);
  }
}

void lock_directory() noexcept { mutex.lock(); }
void unlock_directory() noexcept { mutex.unlock(); }

}  // namespace headroom::flight
