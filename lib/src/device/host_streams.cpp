#include "device/host_streams.hpp"

#include <algorithm>

namespace headroom {
namespace {

constexpr std::uint64_t kSlotBits = 16;
constexpr std::uint64_t kSlotMask = (std::uint64_t{1} << kSlotBits) - 1;

// For the heap functions of <algorithm>, which keep the largest in front.
bool ready_later(PendingFree const& a, PendingFree const& b) noexcept {
  return a.ready != b.ready ? a.ready > b.ready : a.order > b.order;
}

// Virtual time stops at its end instead of wrapping.
std::chrono::nanoseconds saturating_add(std::chrono::nanoseconds time, std::chrono::nanoseconds duration) noexcept {
  return time + std::clamp(duration, std::chrono::nanoseconds{0}, std::chrono::nanoseconds::max() - time);
}

}  // namespace

HostStreams::HostStreams() { slots_.push_back({.id = 0, .live = true}); }

std::optional<StreamId> HostStreams::create() {
  if (free_slots_.empty()) {
    if (slots_.size() > kSlotMask) return std::nullopt;
    slots_.push_back({.id = slots_.size(), .live = false});
    free_slots_.reserve(slots_.capacity());  // so that destroy never allocates
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
  }
  auto& slot = slots_[free_slots_.back()];
  free_slots_.pop_back();
  slot.live = true;
  slot.busy_until = now_;
  return StreamId{slot.id};
}

bool HostStreams::destroy(StreamId stream) {
  if (stream.value == 0 || !valid(stream)) return false;
  auto const slot = static_cast<std::uint32_t>(stream.value & kSlotMask);
  slots_[slot].live = false;
  slots_[slot].id += kSlotMask + 1;
  free_slots_.push_back(slot);
  return true;
}

bool HostStreams::valid(StreamId stream) const noexcept {
  auto const slot = stream.value & kSlotMask;
  return slot < slots_.size() && slots_[slot].live && slots_[slot].id == stream.value;
}

std::chrono::nanoseconds HostStreams::busy_until(StreamId stream) const noexcept {
  return slots_[stream.value & kSlotMask].busy_until;
}

std::chrono::nanoseconds HostStreams::enqueue(StreamId stream, std::chrono::nanoseconds duration) noexcept {
  auto& slot = slots_[stream.value & kSlotMask];
  slot.busy_until = saturating_add(std::max(slot.busy_until, now_), duration);
  return slot.busy_until;
}

void HostStreams::wait_until(StreamId stream, std::chrono::nanoseconds time) noexcept {
  auto& slot = slots_[stream.value & kSlotMask];
  slot.busy_until = std::max(slot.busy_until, time);
}

void HostStreams::advance_to(std::chrono::nanoseconds time) noexcept { now_ = std::max(now_, time); }

void HostStreams::advance_by(std::chrono::nanoseconds duration) noexcept { now_ = saturating_add(now_, duration); }

void HostStreams::reserve_pending() {
  if (pending_.size() == pending_.capacity()) pending_.reserve(std::max<std::size_t>(64, pending_.size() * 2));
}

void HostStreams::add_pending(StreamId stream, std::chrono::nanoseconds duration, FirstFit::Range range, std::uint64_t bytes,
                              ReturnSink* returns_to) noexcept {
  pending_.push_back({enqueue(stream, duration), next_order_++, range, bytes, returns_to});
  std::ranges::push_heap(pending_, ready_later);
}

PendingFree const* HostStreams::next_pending() const noexcept { return pending_.empty() ? nullptr : &pending_.front(); }

void HostStreams::pop_pending() noexcept {
  std::ranges::pop_heap(pending_, ready_later);
  pending_.pop_back();
}

}  // namespace headroom
