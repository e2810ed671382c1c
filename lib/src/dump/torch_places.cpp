#include "dump/torch_places.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/checked.hpp"

namespace headroom::dump {
namespace {

/// Wraps to 0 at the very end.
constexpr std::uint64_t round_up(std::uint64_t address) noexcept {
  return (address + TorchPlaces::kGranule - 1) / TorchPlaces::kGranule * TorchPlaces::kGranule;
}

}  // namespace

std::optional<std::uint64_t> TorchPlaces::overlapped_end(std::uint64_t place, std::uint64_t bytes) const {
  auto const next = blocks_.lower_bound(place);
  if (next != blocks_.end() && next->first - place < bytes) return next->first + next->second.bytes;
  if (next == blocks_.begin()) return std::nullopt;
  auto const& [before, block] = *std::prev(next);
  return before + block.bytes > place ? std::optional{before + block.bytes} : std::nullopt;
}

std::optional<std::uint64_t> TorchPlaces::add(TorchPlaced block) {
  if (!checked_add(block.address, block.bytes) || overlapped_end(block.address, block.bytes)) {
    auto const place = add_elsewhere(block);
    if (place) {
      ++moved_count_;
      moved_.emplace(block.address, *place);
    }
    return place;
  }
  block.age = ++age_;
  blocks_.emplace(block.address, block);
  return block.address;
}

// Upwards, so that places are not used again at once; from the beginning where the room ends, and beyond it if it must be.
std::optional<std::uint64_t> TorchPlaces::add_elsewhere(TorchPlaced block) {
  auto place = free_place(block.bytes, next_elsewhere_, kElsewhere * 2);
  if (!place) place = free_place(block.bytes, kElsewhere, kMaxUint64);
  if (!place) return std::nullopt;
  next_elsewhere_ = std::max(kElsewhere, round_up(*place + block.bytes));
  block.age = ++age_;
  blocks_.emplace(*place, block);
  return place;
}

std::optional<std::uint64_t> TorchPlaces::free_place(std::uint64_t bytes, std::uint64_t from, std::uint64_t end) const {
  for (auto place = from; place < end && bytes <= end - place;) {
    auto const occupied_to = overlapped_end(place, bytes);
    if (!occupied_to) return place;
    place = round_up(*occupied_to);
    if (place < *occupied_to) break;  // it wrapped
  }
  return std::nullopt;
}

std::optional<TorchPlaces::Taken> TorchPlaces::take(std::uint32_t ledger, std::uint64_t address, std::uint64_t bytes) {
  auto const is_it = [&](TorchPlaced const& block) {
    return block.address == address && block.bytes == bytes && block.ledger == ledger;
  };
  auto oldest = blocks_.find(address);
  if (oldest != blocks_.end() && !is_it(oldest->second)) oldest = blocks_.end();
  auto moved = moved_.end();
  auto const [begin, end] = moved_.empty() ? std::pair{moved_.end(), moved_.end()} : moved_.equal_range(address);
  for (auto candidate = begin; candidate != end; ++candidate) {
    auto const block = blocks_.find(candidate->second);
    if (block == blocks_.end() || !is_it(block->second)) continue;
    if (oldest != blocks_.end() && oldest->second.age < block->second.age) continue;
    oldest = block;
    moved = candidate;
  }
  if (oldest == blocks_.end()) return std::nullopt;
  Taken const taken{.place = oldest->first, .block = oldest->second};
  blocks_.erase(oldest);
  if (moved != moved_.end()) moved_.erase(moved);
  return taken;
}

std::optional<TorchPlaced> TorchPlaces::take_from(std::uint64_t place) {
  auto const found = blocks_.find(place);
  if (found == blocks_.end()) return std::nullopt;
  auto const block = found->second;
  blocks_.erase(found);
  return block;
}

}  // namespace headroom::dump
