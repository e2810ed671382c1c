// HostResource: uses on other streams. What waits for what is decided by the tracker; here an event is a virtual time.
#include <bit>

#include "device/host_state.hpp"

namespace headroom {
namespace {

std::chrono::nanoseconds time_of(device::UseEvents::Event event) noexcept {
  return std::chrono::nanoseconds{std::bit_cast<std::int64_t>(event)};
}

}  // namespace

Result<std::optional<device::UseEvents::Event>> HostResource::State::record(StreamId stream) {
  std::lock_guard const lock(mutex);
  if (!streams.valid(stream)) return std::nullopt;
  if (auto fault = faults.next(FaultOperation::event, 0, 0)) return tl::make_unexpected(*std::move(fault));
  return std::bit_cast<Event>(static_cast<std::int64_t>(std::max(streams.busy_until(stream), streams.now()).count()));
}

Result<void> HostResource::State::wait(StreamId stream, Event event) {
  std::unique_lock lock(mutex);
  if (!streams.valid(stream)) {
    lock.unlock();
    return unknown_stream(stream);
  }
  if (auto fault = faults.next(FaultOperation::event, 0, 0)) return tl::make_unexpected(*std::move(fault));
  streams.wait_until(stream, time_of(event));
  return success();
}

bool HostResource::State::done(Event event) noexcept {
  std::lock_guard const lock(mutex);
  return time_of(event) <= streams.now();
}

void HostResource::State::give_back(Event) noexcept {}

bool HostResource::State::is_live(void const* pointer, std::uint64_t generation) noexcept {
  std::lock_guard const lock(mutex);
  auto const* const entry = blocks.find(std::bit_cast<std::uint64_t>(pointer) >> granule_shift);
  return entry != nullptr && entry->generation == generation;
}

Result<std::optional<device::UsedBlock>> HostResource::State::check_use(Block const& block, StreamId stream) {
  std::unique_lock lock(mutex);
  if (!streams.valid(stream)) {
    lock.unlock();
    return unknown_stream(stream);
  }
  if (block.pointer == nullptr && block.bytes == 0) return std::nullopt;
  auto found = find(block);
  if (found.entry != nullptr) return used(block, *found.entry);
  lock.unlock();
  if (found.misuse == ErrorKind::double_free) found.misuse = ErrorKind::use_after_free;
  return misused(block, found);
}

bool HostResource::tracks_uses() const noexcept { return true; }

Result<void> HostResource::prepare_use(Block const& block, StreamId stream, UseKind kind) {
  auto used = state_->check_use(block, stream);
  if (!used) return tl::make_unexpected(std::move(used.error()));
  return *used ? state_->uses.prepare(**used, stream, kind) : success();
}

Result<void> HostResource::finish_use(Block const& block, StreamId stream, UseKind kind) {
  auto used = state_->check_use(block, stream);
  if (!used) return tl::make_unexpected(std::move(used.error()));
  return *used ? state_->uses.finish(**used, stream, kind) : success();
}

// The tracker takes out only what it ordered itself, so a use that it did not order needs nothing else.
Result<void> HostResource::record_use(Block const& block, StreamId stream, UseKind kind) {
  return finish_use(block, stream, kind);
}

}  // namespace headroom
