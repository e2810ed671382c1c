// HostResource: writing to blocks, streams, the virtual clock, and reaping.
#include <cstring>
#include <new>
#include <string>

#include "base/thrown_error.hpp"
#include "device/host_state.hpp"
#include "device/request_checks.hpp"
#include "device/returned_bytes.hpp"

namespace headroom {

Result<void> HostResource::State::check_write(FaultOperation operation, Block const& block, std::uint64_t offset,
                                              std::uint64_t bytes, StreamId stream) {
  if (!within(block, offset, bytes)) return wrong_range(block, offset, bytes);
  std::unique_lock lock(mutex);
  if (!streams.valid(stream)) {
    lock.unlock();
    return unknown_stream(stream);
  }
  if (block.pointer == nullptr && block.bytes == 0) return success();
  if (auto found = find(block); found.entry == nullptr) {
    lock.unlock();
    if (found.misuse == ErrorKind::double_free) found.misuse = ErrorKind::use_after_free;
    return misused(block, found);
  }
  if (bytes == 0) return success();
  if (auto fault = faults.next(operation, bytes, block.tag)) return tl::make_unexpected(*std::move(fault));
  return success();
}

Result<void> HostResource::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  auto allowed = state_->check_write(FaultOperation::fill, block, offset, bytes, stream);
  if (allowed && bytes != 0 && state_->options.touch_memory)
    std::memset(static_cast<std::byte*>(block.pointer) + offset, 0, bytes);
  return allowed;
}

Result<void> HostResource::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source, StreamId stream) {
  auto allowed = state_->check_write(FaultOperation::copy, block, offset, source.size(), stream);
  if (allowed && !source.empty() && state_->options.touch_memory) {
    std::memcpy(static_cast<std::byte*>(block.pointer) + offset, source.data(), source.size());
  }
  return allowed;
}

Result<std::uint64_t> HostResource::reap_pending(ReapMode mode) {
  auto& state = *state_;
  std::uint64_t reaped = 0;
  bool may_wait = mode != ReapMode::query;
  bool out_of_memory = false;
  ReturnedBytes returned;
  do {
    returned.clear();
    {
      std::lock_guard const lock(state.mutex);
      while (auto const* const next = state.streams.next_pending()) {
        if (may_wait) state.streams.advance_to(next->ready);
        if (next->ready > state.streams.now()) break;
        try {
          state.pool.make_room(next->range);
        } catch (std::bad_alloc const&) {
          out_of_memory = true;  // what came back until here did, and the rest stays pending
          break;
        }
        if (!returned.add(next->returns_to, next->bytes)) break;
        if (mode == ReapMode::synchronize_next) may_wait = false;
        state.pool.give(next->range);
        reaped += next->bytes;
        state.pending_bytes -= next->bytes;
        state.streams.pop_pending();
      }
      state.publish();
    }
    returned.report();
  } while (returned.was_full());
  if (out_of_memory) {
    return fail(ErrorKind::io, Layer::resource,
                words([] { return std::string{"the system has no memory for another hole of the host device"}; }));
  }
  return reaped;
}

bool HostResource::reports_returns() const noexcept { return true; }

Result<StreamId> HostResource::create_stream() {
  std::unique_lock lock(state_->mutex);
  if (auto const stream = state_->streams.create()) return *stream;
  lock.unlock();
  return fail(ErrorKind::stream_misuse, Layer::resource, "the host device has its 65535 streams already");
}

Result<void> HostResource::destroy_stream(StreamId stream) {
  // Blocks that were allocated on it may still be used and freed on others, which then come after its work.
  if (auto noted = state_->uses.stream_ends(stream); !noted) return noted;
  std::unique_lock lock(state_->mutex);
  if (state_->streams.destroy(stream)) return success();
  lock.unlock();
  if (stream == StreamId{}) return fail(ErrorKind::stream_misuse, Layer::resource, "the default stream 0 cannot be destroyed");
  return State::unknown_stream(stream);
}

Result<void> HostResource::enqueue_work(StreamId stream, std::chrono::nanoseconds duration) {
  std::unique_lock lock(state_->mutex);
  if (state_->streams.valid(stream)) {
    state_->streams.enqueue(stream, duration);
    return success();
  }
  lock.unlock();
  return State::unknown_stream(stream);
}

Result<void> HostResource::synchronize_stream(StreamId stream) {
  std::unique_lock lock(state_->mutex);
  if (state_->streams.valid(stream)) {
    state_->streams.advance_to(state_->streams.busy_until(stream));
    return success();
  }
  lock.unlock();
  return State::unknown_stream(stream);
}

Result<bool> HostResource::stream_idle(StreamId stream) const {
  std::unique_lock lock(state_->mutex);
  if (state_->streams.valid(stream)) return state_->streams.busy_until(stream) <= state_->streams.now();
  lock.unlock();
  return State::unknown_stream(stream);
}

void HostResource::advance(std::chrono::nanoseconds duration) {
  std::lock_guard const lock(state_->mutex);
  state_->streams.advance_by(duration);
}

std::chrono::nanoseconds HostResource::now() const {
  std::lock_guard const lock(state_->mutex);
  return state_->streams.now();
}

}  // namespace headroom
