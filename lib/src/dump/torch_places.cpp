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
      block.age = age_;
      moved_.insert(moved(block, *place));
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
  if (auto const moved = moved_.lower_bound({ledger, address, bytes, 0, 0}); moved != moved_.end()) {
    auto const block = blocks_.find(std::get<4>(*moved));
    if (block != blocks_.end() && is_it(block->second) && (oldest == blocks_.end() || block->second.age < oldest->second.age)) {
      oldest = block;
    }
  }
  if (oldest == blocks_.end()) return std::nullopt;
  Taken const taken{.place = oldest->first, .block = oldest->second};
  static_cast<void>(take_from(taken.place));
  return taken;
}

std::optional<TorchPlaced> TorchPlaces::take_from(std::uint64_t place) {
  auto const found = blocks_.find(place);
  if (found == blocks_.end()) return std::nullopt;
  auto const block = found->second;
  blocks_.erase(found);
  moved_.erase(moved(block, place));
  return block;
}

}  // namespace headroom::dump
