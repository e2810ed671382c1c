#include "flight/hook_cells.hpp"

#include <mutex>
#include <string>
#include <vector>

#include "base/utf8.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"

namespace headroom::flight {
namespace {

/// What becomes of a cell. The sums of hooks of one name must not fall while one of them lives: the cell of one that ends is kept until
/// the last of them ends, and the next hook of that name goes on counting in it. A name has no more cells than it ever had hooks at once.
enum class Cell : std::uint8_t { free, live, ended };

std::mutex mutex;  // the two below, and the words of cells that nobody counts in
// By cell; the last one is `other` and never handed out. Never freed: exit order must not matter.
std::vector<Cell>* cells = nullptr;
std::uint32_t other_entry = 0;

std::uint32_t other_index() noexcept { return recorder.geometry[Region::hooks].count - 1; }

void publish(std::uint32_t index, std::uint32_t entry) noexcept {
  recorder.hooks[index].directory_id.store(entry, std::memory_order_release);
  std::uint64_t used = recorder.header->hooks_used.load(std::memory_order_relaxed);
  while (used < index + 1 && !recorder.header->hooks_used.compare_exchange_weak(used, index + 1, std::memory_order_relaxed)) {
  }
}

HookPlace fold() {
  if (other_entry == 0) {
    other_entry = add_entry(EntryKind::hook, 0, other_index(), 0, "other");
    if (other_entry != 0) publish(other_index(), other_entry);
  }
  recorder.header->hooks_folded.fetch_add(1, std::memory_order_relaxed);
  return {.entry = other_entry, .cell = &recorder.hooks[other_index()], .own = false};
}

void clear(HookCell& cell) noexcept {
  // The id is 0 already: a reader that began before sees another one at its end.
  auto* const words = reinterpret_cast<Word*>(&cell);
  for (std::size_t i = 0; i < sizeof(HookCell) / sizeof(Word); ++i) words[i].store(0, std::memory_order_release);
}

std::uint32_t entry_of(std::uint32_t cell) noexcept {
  return static_cast<std::uint32_t>(recorder.hooks[cell].directory_id.load(std::memory_order_relaxed));
}

/// Whether two names in the directory are the same hook's: of one ledger, and shown alike.
bool same_hook(DirectoryEntry const& a, DirectoryEntry const& b) noexcept {
  if (a.parent.load(std::memory_order_relaxed) != b.parent.load(std::memory_order_relaxed)) return false;
  for (std::size_t i = 0; i < kLabelBytes / 8; ++i) {
    if (a.label[i].load(std::memory_order_relaxed) != b.label[i].load(std::memory_order_relaxed)) return false;
  }
  return true;
}

bool is_named(DirectoryEntry const& entry, std::uint32_t ledger_entry, std::string_view clean) noexcept {
  if (entry.parent.load(std::memory_order_relaxed) != ledger_entry) return false;
  for (std::size_t i = 0; i < kLabelBytes; ++i) {
    const std::uint64_t word = entry.label[i / 8].load(std::memory_order_relaxed);
    const char shown = static_cast<char>((word >> (8 * (i % 8))) & 0xFF);
    if (shown != (i < clean.size() ? clean[i] : char{})) return false;
  }
  return true;
}

void free_cell(std::uint32_t cell) noexcept {
  const std::uint32_t entry = entry_of(cell);
  recorder.hooks[cell].directory_id.store(0, std::memory_order_release);
  close_entry(entry);
  (*cells)[cell] = Cell::free;
}

}  // namespace

HookPlace take_hook_cell(std::uint32_t ledger_entry, std::string_view name, std::int32_t priority) {
  const std::string clean = valid_utf8(name, kLabelBytes - 1);
  const std::scoped_lock lock{mutex};
  if (cells == nullptr) cells = new std::vector<Cell>(other_index());
  const auto stored_priority = static_cast<std::uint64_t>(std::int64_t{priority});
  for (std::uint32_t cell = 0; cell < cells->size(); ++cell) {
    if ((*cells)[cell] != Cell::ended) continue;
    const std::uint32_t entry = entry_of(cell);
    if (!is_named(recorder.directory[entry], ledger_entry, clean)) continue;
    recorder.directory[entry].payload.store(stored_priority, std::memory_order_release);
    recorder.hooks[cell].ended.store(0, std::memory_order_release);
    (*cells)[cell] = Cell::live;
    return {.entry = entry, .cell = &recorder.hooks[cell], .own = true};
  }
  std::uint32_t index = 0;
  while (index < cells->size() && (*cells)[index] != Cell::free) ++index;
  if (index == cells->size()) return fold();
  const std::uint32_t entry = add_entry(EntryKind::hook, ledger_entry, index, stored_priority, name);
  if (entry == 0) return fold();
  (*cells)[index] = Cell::live;
  clear(recorder.hooks[index]);
  publish(index, entry);
  return {.entry = entry, .cell = &recorder.hooks[index], .own = true};
}

void give_hook_cell_back(HookPlace const& place) noexcept {
  // The mutex may have been held, at the fork, by a thread that the child does not have.
  if (!place.own || in_forked_child()) return;
  const std::scoped_lock lock{mutex};
  const auto own = static_cast<std::uint32_t>(place.cell - recorder.hooks);
  const auto is_namesake = [&](std::uint32_t cell) {
    return (*cells)[cell] != Cell::free && same_hook(recorder.directory[entry_of(cell)], recorder.directory[place.entry]);
  };
  // First, so that readers who add up show no part of the sum once nobody of the name lives.
  place.cell->ended.store(1, std::memory_order_release);
  (*cells)[own] = Cell::ended;
  for (std::uint32_t cell = 0; cell < cells->size(); ++cell) {
    if ((*cells)[cell] == Cell::live && is_namesake(cell)) return;
  }
  for (std::uint32_t cell = 0; cell < cells->size(); ++cell) {
    if (cell != own && is_namesake(cell)) free_cell(cell);
  }
  free_cell(own);
}

}  // namespace headroom::flight
