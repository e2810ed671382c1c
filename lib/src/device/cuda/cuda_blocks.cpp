#include "device/cuda/cuda_blocks.hpp"

namespace headroom::device {
namespace {

constexpr unsigned kChecksumBits = 16;

// Written and read by whoever makes a resource; relaxed, only distinctness matters.
std::atomic<std::uint64_t> next_salt{1};

}  // namespace

CudaBlocks::CudaBlocks() noexcept : salt_(next_salt.fetch_add(1, std::memory_order_relaxed)) {}

std::uint64_t CudaBlocks::sign(std::uint64_t serial, std::uint64_t granule) const noexcept {
  auto const number = serial & (UINT64_MAX >> kChecksumBits);
  auto mixed = (number * 0x9E3779B97F4A7C15U) ^ (granule * 0xC2B2AE3D27D4EB4FU) ^ (salt_ * 0x165667B19E3779F9U);
  mixed = (mixed ^ (mixed >> 32U)) * 0xD6E8FEB86659FD93U;
  return (number << kChecksumBits) | (mixed >> (64U - kChecksumBits));
}

CudaBlocks::Added CudaBlocks::add(Memory const& memory, StreamId stream) {
  auto const granule = granule_of(memory.pointer);
  auto& shard = shard_of(granule);
  std::lock_guard const lock(shard.lock);
  Added added;
  if (auto const* const stale = shard.blocks.find(granule); stale != nullptr) [[unlikely]] {
    // CUDA gives this address out, so what we hold for live there was freed by somebody else.
    added.replaced_bytes = stale->bytes;
    shard.blocks.erase(stale);
    shard.bases.erase(granule);
  }
  shard.blocks.reserve_one();
  if (memory.base != memory.pointer) [[unlikely]]
    shard.bases.emplace(granule, memory.base);
  added.generation = sign(++shard.serial, granule);
  shard.blocks.insert({granule, memory.bytes, added.generation, stream});
  return added;
}

HostBlocks::Entry const* CudaBlocks::look(Shard& shard, Block const& block, Lookup& found) const noexcept {
  auto const granule = granule_of(block.pointer);
  auto const starts = std::bit_cast<std::uint64_t>(block.pointer) == granule << kGranuleShift;
  auto const* const entry = starts ? shard.blocks.find(granule) : nullptr;
  if (entry == nullptr) {
    auto const number = block.generation >> kChecksumBits;
    auto const from_here = starts && number != 0 && number <= shard.serial && sign(number, granule) == block.generation;
    found.misuse = from_here ? ErrorKind::double_free : ErrorKind::unknown_pointer;
    return nullptr;
  }
  if (entry->generation != block.generation) {
    found.misuse = ErrorKind::use_after_free;
    return nullptr;
  }
  if (entry->bytes != block.bytes) {
    found.misuse = ErrorKind::wrong_size;
    found.recorded_bytes = entry->bytes;
    return nullptr;
  }
  found.found = true;
  return entry;
}

void CudaBlocks::fill(Shard& shard, HostBlocks::Entry const& entry, Live& live) noexcept {
  auto* const pointer = std::bit_cast<void*>(entry.granule << kGranuleShift);
  live = {.memory = {.pointer = pointer, .base = pointer, .bytes = entry.bytes},
          .generation = entry.generation,
          .stream = entry.stream};
  if (shard.bases.empty()) [[likely]]
    return;
  if (auto const base = shard.bases.find(entry.granule); base != shard.bases.end()) live.memory.base = base->second;
}

template <class Condition>
CudaBlocks::Lookup CudaBlocks::take_if(Block const& block, Condition const& condition) noexcept {
  auto& shard = shard_of(granule_of(block.pointer));
  Lookup found;
  std::lock_guard const lock(shard.lock);
  auto const* const entry = look(shard, block, found);
  if (entry == nullptr) return found;
  fill(shard, *entry, found.live);
  if (!condition(*entry)) return found;
  found.taken = true;
  if (!shard.bases.empty()) [[unlikely]]
    shard.bases.erase(entry->granule);
  shard.blocks.erase(entry);
  return found;
}

CudaBlocks::Lookup CudaBlocks::take(Block const& block) noexcept {
  return take_if(block, [](auto const&) { return true; });
}

CudaBlocks::Lookup CudaBlocks::take_on_own_stream(Block const& block) noexcept {
  return take_if(block, [&](auto const& entry) { return entry.stream == block.stream; });
}

CudaBlocks::Lookup CudaBlocks::find(Block const& block) noexcept {
  auto& shard = shard_of(granule_of(block.pointer));
  Lookup found;
  std::lock_guard const lock(shard.lock);
  if (auto const* const entry = look(shard, block, found); entry != nullptr) fill(shard, *entry, found.live);
  return found;
}

void CudaBlocks::put_back(Live const& live) {
  auto const granule = granule_of(live.memory.pointer);
  auto& shard = shard_of(granule);
  std::lock_guard const lock(shard.lock);
  shard.blocks.reserve_one();
  if (live.memory.base != live.memory.pointer) shard.bases.emplace(granule, live.memory.base);
  shard.blocks.insert({granule, live.memory.bytes, live.generation, live.stream});
}

bool CudaBlocks::is_live(void const* pointer, std::uint64_t generation) noexcept {
  auto const granule = granule_of(pointer);
  auto& shard = shard_of(granule);
  std::lock_guard const lock(shard.lock);
  auto const* const entry = shard.blocks.find(granule);
  return entry != nullptr && entry->generation == generation;
}

std::vector<CudaBlocks::Live> CudaBlocks::take_all() {
  std::vector<Live> all;
  for (auto& shard : shards_) {
    std::lock_guard const lock(shard.lock);
    shard.blocks.for_each([&](HostBlocks::Entry const& entry) { fill(shard, entry, all.emplace_back()); });
    shard.blocks = HostBlocks{64};
    shard.bases.clear();
  }
  return all;
}

}  // namespace headroom::device
