// HostResource: handing memory out and taking it back, and telling every kind of misuse apart.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <string>
#include <thread>

#include <headroom/byte_size.hpp>

#include "device/host_state.hpp"
#include "device/request_checks.hpp"

namespace headroom {
namespace {

// A sleep takes about 50 µs longer than asked; what is shorter than a few of those is spent spinning, to be a latency at all.
constexpr std::chrono::microseconds kShortestSleep{200};

void pause(std::chrono::nanoseconds latency) {
  if (latency.count() == 0) [[likely]]
    return;
  if (latency >= kShortestSleep) {
    std::this_thread::sleep_for(latency);
    return;
  }
  auto const end = std::chrono::steady_clock::now() + latency;
  while (std::chrono::steady_clock::now() < end) {
  }
}

constexpr unsigned kChecksumBits = 16;

}  // namespace

std::uint64_t HostResource::State::sign(std::uint64_t block_serial, std::uint64_t granule) const noexcept {
  auto const number = block_serial & (UINT64_MAX >> kChecksumBits);
  auto mixed = (number * 0x9E3779B97F4A7C15U) ^ (granule * 0xC2B2AE3D27D4EB4FU) ^ (salt * 0x165667B19E3779F9U);
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93U;
  return (number << kChecksumBits) | (mixed >> (64 - kChecksumBits));
}

HostResource::State::Lookup HostResource::State::find(Block const& block) const noexcept {
  auto const address = std::bit_cast<std::uint64_t>(block.pointer);
  auto const granule = address >> granule_shift;
  if (address != granule << granule_shift) return {};
  auto const* const entry = blocks.find(granule);
  if (entry == nullptr) {
    auto const number = block.generation >> kChecksumBits;
    auto const from_here = number != 0 && number <= serial && sign(number, granule) == block.generation;
    return {.misuse = from_here ? ErrorKind::double_free : ErrorKind::unknown_pointer};
  }
  if (entry->generation != block.generation) return {.misuse = ErrorKind::use_after_free};
  if (entry->bytes != block.bytes) return {.misuse = ErrorKind::wrong_size, .recorded_bytes = entry->bytes};
  return {.entry = entry};
}

Result<Block> HostResource::allocate(AllocRequest const& request) {
  if (!acceptable(request)) [[unlikely]]
    return wrong_request(request);
  auto& state = *state_;
  if (request.bytes != 0) pause(state.options.allocate_latency);
  Block block{.pointer = nullptr,
              .bytes = request.bytes,
              .alignment = raised_alignment(request.alignment),
              .stream = request.stream,
              .generation = 0,
              .device = state.options.ordinal,
              .tag = request.tag};
  auto const length = state.granules(request.bytes);
  auto const alignment = std::max<std::uint64_t>(block.alignment >> state.granule_shift, 1);

  std::unique_lock lock(state.mutex);
  if (!state.streams.valid(request.stream)) {
    lock.unlock();
    return State::unknown_stream(request.stream);
  }
  if (request.bytes == 0) return block;
  if (auto fault = state.faults.next(FaultOperation::allocate, request.bytes, request.tag)) {
    fault->device_free = state.pool.holes().total() << state.granule_shift;
    return tl::make_unexpected(*std::move(fault));
  }
  state.blocks.reserve_one();
  auto const granule = state.pool.take(length, alignment);
  if (!granule) [[unlikely]] {
    auto const usage = state.usage();
    lock.unlock();
    return state.no_room(request, usage);
  }
  block.pointer = std::bit_cast<void*>(*granule << state.granule_shift);
  block.generation = state.sign(++state.serial, *granule);
  state.blocks.insert({*granule, request.bytes, block.generation, request.stream});
  state.live_bytes += request.bytes;
  state.publish();
  return block;
}

Result<void> HostResource::deallocate(Block const& block) {
  if (block.pointer == nullptr && block.bytes == 0) return success();
  auto& state = *state_;
  device::UsedBlock used;
  {
    std::unique_lock lock(state.mutex);
    auto found = state.find(block);
    bool elsewhere = false;
    if (found.entry != nullptr && state.streams.valid(block.stream) && state.has_uses_elsewhere(*found.entry, block.stream)) {
      used = State::used(block, *found.entry);
      lock.unlock();
      auto ordered = state.uses.prepare_free(used, block.stream);
      if (!ordered) return tl::make_unexpected(std::move(ordered.error()));
      elsewhere = *ordered;
      lock.lock();
      found = state.find(block);  // another thread may have freed it meanwhile
    }
    if (found.entry == nullptr) {
      lock.unlock();
      return State::misused(block, found);
    }
    if (!state.streams.valid(block.stream)) {
      lock.unlock();
      return State::unknown_stream(block.stream);
    }
    if (auto fault = state.faults.next(FaultOperation::deallocate, block.bytes, block.tag)) {
      return tl::make_unexpected(*std::move(fault));
    }
    FirstFit::Range const range{found.entry->granule, state.granules(block.bytes)};
    // What may throw comes first, so that an exception leaves the block live.
    if (state.options.stream_ordered) {
      state.streams.reserve_pending();
      state.streams.add_pending(block.stream, state.options.free_delay, range, block.bytes, block.returns_to);
      state.pending_bytes += block.bytes;
    } else {
      state.pool.give(range);
      // Memory that is the device's at once must be out of use: the host waits, as it does in cudaFree.
      if (elsewhere) state.streams.advance_to(state.streams.busy_until(block.stream));
    }
    used = State::used(block, *found.entry);
    state.blocks.erase(found.entry);
    state.live_bytes -= block.bytes;
    state.publish();
  }
  if (state.uses.any()) state.uses.forget(used);
  if (!state.options.stream_ordered && block.returns_to != nullptr) block.returns_to->returned(block.bytes);
  // After the memory went back: another thread may get this address before this call returns, as with a real driver. Managers
  // that keep a map of addresses must live with that, so the stand-in makes it likely.
  pause(state.options.free_latency);
  return success();
}

tl::unexpected<Error> HostResource::State::unknown_stream(StreamId stream) {
  return fail(ErrorKind::stream_misuse, Layer::resource, "the host device has no stream " + std::to_string(stream.value));
}

tl::unexpected<Error> HostResource::State::misused(Block const& block, Lookup const& found) {
  return tl::make_unexpected(
      misused_block(block, {.misuse = found.misuse, .recorded_bytes = found.recorded_bytes, .resource = "the host device"}));
}

tl::unexpected<Error> HostResource::State::no_room(AllocRequest const& request, HostUsage const& usage) const {
  auto message = "no free range of " + format_bytes(request.bytes) + ": largest hole " + format_bytes(usage.largest_hole) +
                 " of " + format_bytes(usage.free_on_device) + " free in " + std::to_string(usage.holes) +
                 " holes, fragmentation " + std::to_string(std::lround(usage.fragmentation() * 100.0)) +
                 " % (1 - largest / free)";
  if (usage.cached != 0) message += ", " + format_bytes(usage.cached) + " cached";
  if (usage.pending != 0) {
    message += ", " + format_bytes(usage.pending) + " in " + std::to_string(usage.pending_frees) + " pending frees";
  }
  auto error = make_error(ErrorKind::device_out_of_memory, Layer::driver, std::move(message));
  error.device_code = 2;  // cudaErrorMemoryAllocation, so that tests see what a GPU would say
  error.requested = request.bytes;
  error.device_free = usage.free_on_device;
  return tl::make_unexpected(std::move(error));
}

}  // namespace headroom
