// The memo entries that will be fetched again, each until its last fetch.
//
// A table in three levels by the entry's number: chunks of pages of slots, made where an entry is and freed with their last one. So
// nothing but a pointer for 1024 numbers stays behind of what was fetched for the last time, and no choice of numbers makes it slow, as
// it could a hash table. An entry far from all others costs about 1 KiB, which counts as retained.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "trace/pickle/fetch_counts.hpp"
#include "trace/pickle/store.hpp"
#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

class Memo {
public:
  /// `fetches`: of this entry in the whole pickle, not 0. An entry that is there gets another value, and the fetches that it still has.
  /// False: more than the store's limit.
  [[nodiscard]] bool put(std::uint64_t entry, Value const& value, std::uint8_t fetches, Store& store) {
    auto const at = Place::of(entry);
    if (at.chunk >= chunks_.size()) chunks_.resize(at.chunk + 1);
    auto& chunk = chunks_[at.chunk];
    if (chunk == nullptr && !make(chunk, store)) return false;
    auto& page = chunk->parts[at.page];
    if (page == nullptr) {
      if (!make(page, store)) return false;
      ++chunk->used;
    }
    auto& slot = page->parts[at.slot];
    if (slot.left == 0) {
      slot.left = fetches;
      ++page->used;
    }
    slot.value = value;
    return true;
  }

  [[nodiscard]] bool has(std::uint64_t entry) const noexcept {
    auto const at = Place::of(entry);
    if (at.chunk >= chunks_.size() || chunks_[at.chunk] == nullptr) return false;
    auto const& page = chunks_[at.chunk]->parts[at.page];
    return page != nullptr && page->parts[at.slot].left != 0;
  }

  /// One fetch of an entry that has() said is there; the last one takes it away.
  [[nodiscard]] Value fetch(std::uint64_t entry, Store& store) noexcept {
    auto const at = Place::of(entry);
    auto& chunk = chunks_[at.chunk];
    auto& page = chunk->parts[at.page];
    auto& slot = page->parts[at.slot];
    if (slot.left == FetchCounts::kMany || --slot.left != 0) return slot.value;
    auto value = std::move(slot.value);
    if (--page->used == 0) {
      end(page, store);
      if (--chunk->used == 0) end(chunk, store);
    }
    return value;
  }

  void clear(Store& store) noexcept {
    for (auto& chunk : chunks_) {
      if (chunk == nullptr) continue;
      for (auto& page : chunk->parts) {
        if (page != nullptr) end(page, store);
      }
      end(chunk, store);
    }
    chunks_.clear();
  }

private:
  static constexpr std::size_t kPageSlots = 16;
  static constexpr std::size_t kChunkPages = 64;

  struct Slot {
    Value value;
    std::uint8_t left = 0;  // fetches to come; 0: nothing was put, or all are over
  };
  template <class Part, std::size_t Count>
  struct Table {
    std::array<Part, Count> parts;
    std::uint32_t used = 0;
  };
  using Page = Table<Slot, kPageSlots>;
  using Chunk = Table<std::unique_ptr<Page>, kChunkPages>;

  struct Place {
    std::size_t chunk;
    std::size_t page;
    std::size_t slot;
    [[nodiscard]] static Place of(std::uint64_t entry) noexcept {
      auto const page = entry / kPageSlots;
      return {.chunk = page / kChunkPages, .page = page % kChunkPages, .slot = entry % kPageSlots};
    }
  };

  template <class Of>
  [[nodiscard]] static bool make(std::unique_ptr<Of>& table, Store& store) {
    if (!store.charge(sizeof(Of))) return false;
    table = std::make_unique<Of>();
    return true;
  }
  template <class Of>
  static void end(std::unique_ptr<Of>& table, Store& store) noexcept {
    table.reset();
    store.discharge(sizeof(Of));
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace headroom::trace::pickle
