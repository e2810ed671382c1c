#include "flight/live_table.hpp"

#include <bit>

namespace headroom::flight {
namespace {

constexpr std::uint32_t kWordsPerShare = kSlotsPerShare / 64;

std::uint32_t share_count() noexcept { return recorder.geometry[Region::live_shares].count; }

// One pass over a share; the bitmap word where the last slot was found comes first. kNoSlot when every bit was set.
std::uint32_t take_from(std::uint32_t index) noexcept {
  LiveShare& share = recorder.shares[index];
  const auto hint = static_cast<std::uint32_t>(share.hint.load(std::memory_order_relaxed));
  for (std::uint32_t i = 0; i < kWordsPerShare; ++i) {
    const std::uint32_t at = (hint + i) % kWordsPerShare;
    std::uint64_t taken = share.bitmap[at].load(std::memory_order_relaxed);
    while (taken != ~std::uint64_t{0}) {
      const auto bit = static_cast<std::uint32_t>(std::countr_one(taken));
      if (SlotSteps::take(share.bitmap[at], std::uint64_t{1} << bit, taken)) {
        if (at != hint) share.hint.store(at, std::memory_order_relaxed);
        return index * kSlotsPerShare + at * 64 + bit;
      }
    }
  }
  return kNoSlot;
}

}  // namespace

std::uint32_t take_slot_from_shares(ThreadState& thread) noexcept {
  const std::uint32_t shares = share_count();
  for (std::uint32_t i = 0; i < shares; ++i) {
    const std::uint32_t index = (thread.share_hint + i) % shares;
    LiveShare& share = recorder.shares[index];
    if (share.full.load(std::memory_order_relaxed) != 0) continue;
    const std::uint32_t slot = take_from(index);
    if (slot != kNoSlot) {
      thread.share_hint = index;
      return slot;
    }
    // A give-back between the scan and this store leaves the flag set beside a free bit: harmless, the next give-back clears it.
    share.full.store(1, std::memory_order_relaxed);
  }
  return kNoSlot;
}

std::uint64_t publish_slot(std::uint32_t slot, LiveEntry const& entry) noexcept {
  LiveSlot& words = recorder.slots[slot];
  return SlotSteps::publish(words.state, [&]() noexcept {
    SlotSteps::put(words.address, entry.address);
    SlotSteps::put(words.bytes, entry.bytes);
    SlotSteps::put(words.tag_ledger,
                   (std::uint64_t{entry.tag} & 0xFFFFU) | ((std::uint64_t{entry.ledger} & 0xFFFU) << 16) |
                       (static_cast<std::uint64_t>(std::countr_zero(entry.alignment | (std::uint64_t{1} << 63))) << 28));
    SlotSteps::put(words.site_thread, (std::uint64_t{entry.site} << 32) | entry.thread);
    SlotSteps::put(words.stream, entry.stream);
    SlotSteps::put(words.ticks, entry.ticks);
    SlotSteps::put(words.operation, entry.operation);
  });
}

bool move_slot(std::uint32_t slot, std::uint64_t generation, SlotState from, SlotState to) noexcept {
  return SlotSteps::move(recorder.slots[slot].state, generation, from, to);
}

void return_slot_to_share(std::uint32_t slot) noexcept {
  LiveShare& share = recorder.shares[slot / kSlotsPerShare];
  const std::uint32_t within = slot % kSlotsPerShare;
  SlotSteps::give(share.bitmap[within / 64], std::uint64_t{1} << (within % 64));
  if (share.full.load(std::memory_order_relaxed) != 0) {
    share.hint.store(within / 64, std::memory_order_relaxed);
    share.full.store(0, std::memory_order_relaxed);
  }
}

void flush_slot_cache(ThreadState& thread) noexcept {
  while (thread.cached_slots != 0) return_slot_to_share(thread.slot_cache[--thread.cached_slots]);
}

std::uint64_t slot_word(std::uint32_t slot) noexcept { return recorder.slots[slot].state.load(std::memory_order_acquire); }

bool read_slot(std::uint32_t slot, std::uint64_t& word, LiveEntry& entry) noexcept {
  LiveSlot const& words = recorder.slots[slot];
  const GuardedRead outcome = SlotSteps::read(words.state, [&](std::uint64_t state) noexcept {
    word = state;
    entry.address = SlotSteps::get(words.address);
    entry.bytes = SlotSteps::get(words.bytes);
    const std::uint64_t tag_ledger = SlotSteps::get(words.tag_ledger);
    entry.tag = static_cast<std::uint32_t>(tag_ledger & 0xFFFFU);
    entry.ledger = static_cast<std::uint32_t>((tag_ledger >> 16) & 0xFFFU);
    entry.alignment = std::uint64_t{1} << ((tag_ledger >> 28) & 0x3FU);
    const std::uint64_t site_thread = SlotSteps::get(words.site_thread);
    entry.site = static_cast<std::uint32_t>(site_thread >> 32);
    entry.thread = static_cast<std::uint32_t>(site_thread);
    entry.stream = SlotSteps::get(words.stream);
    entry.ticks = SlotSteps::get(words.ticks);
    entry.operation = SlotSteps::get(words.operation);
  });
  return outcome == GuardedRead::whole;
}

}  // namespace headroom::flight
