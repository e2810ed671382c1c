#include "device/cuda/cuda_core.hpp"

#include <string>
#include <utility>

#include <headroom/byte_size.hpp>

#include "device/cuda/cuda_errors.hpp"

namespace headroom::device {

std::optional<Error> CudaCore::wrong_stream(StreamId stream) const {
  if (stream == kPerThreadStream) [[unlikely]] {
    return make_error(ErrorKind::stream_misuse, Layer::resource,
                      "cudaStreamPerThread means another stream on each thread: expected a stream of create_stream or "
                      "cudaStreamCreate, or the default stream");
  }
  if (streams.is_ended(stream)) [[unlikely]] {
    return make_error(ErrorKind::stream_misuse, Layer::resource, cuda_stream(stream) + " was destroyed before");
  }
  return std::nullopt;
}

Result<Block> CudaCore::empty_block(AllocRequest const& request) const {
  return Block{.pointer = nullptr,
               .bytes = request.bytes,
               .alignment = raised_alignment(request.alignment),
               .stream = request.stream,
               .generation = 0,
               .device = device.ordinal(),
               .tag = request.tag};
}

Error CudaCore::not_served(AllocRequest const& request, int code, std::string_view call, std::string const& details) const {
  if (code != CudaCode::kOutOfMemory) {
    auto error = cuda_error(device.api(), code,
                            std::string{call} + " of " + format_bytes(request.bytes) + " on " + cuda_stream(request.stream));
    error.requested = request.bytes;
    return error;
  }
  auto const memory = memory_info();
  auto message = "no room for " + format_bytes(request.bytes) + " on " + device.name();
  if (request.alignment > kMinimumAlignment) message += " at alignment " + format_bytes(request.alignment);
  if (memory.free) message += ": " + format_bytes(*memory.free) + " free of " + format_bytes(device.total_bytes());
  auto error = make_error(ErrorKind::device_out_of_memory, Layer::driver, message + details);
  error.device_code = code;
  error.requested = request.bytes;
  error.device_free = memory.free;
  return error;
}

Error CudaCore::misused(Block const& block, CudaBlocks::Lookup const& found) {
  return misused_block(block, {.misuse = found.misuse, .recorded_bytes = found.recorded_bytes, .resource = "this resource"});
}

Error CudaCore::use_of_misused(Block const& block, CudaBlocks::Lookup found) {
  if (found.misuse == ErrorKind::double_free) found.misuse = ErrorKind::use_after_free;
  return misused(block, found);
}

Result<void> CudaCore::check_write(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  if (!within(block, offset, bytes)) return wrong_range(block, offset, bytes);
  if (auto wrong = wrong_stream(stream)) return tl::make_unexpected(*std::move(wrong));
  if (block.pointer == nullptr && block.bytes == 0) return success();
  if (auto const found = blocks.find(block); !found.found) return tl::make_unexpected(use_of_misused(block, found));
  return success();
}

Result<void> CudaCore::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  auto allowed = check_write(block, offset, bytes, stream);
  if (!allowed || bytes == 0) return allowed;
  auto* const to = static_cast<std::byte*>(block.pointer) + offset;
  auto const code = device.call([&](CudaApi& api) { return api.memset_async(to, 0, bytes, stream.value); });
  if (code == CudaCode::kSuccess) return success();
  return tl::make_unexpected(
      cuda_error(device.api(), code, "filling " + format_bytes(bytes) + " with zeros on " + cuda_stream(stream)));
}

Result<void> CudaCore::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source, StreamId stream) {
  auto allowed = check_write(block, offset, source.size(), stream);
  if (!allowed || source.empty()) return allowed;
  auto* const to = static_cast<std::byte*>(block.pointer) + offset;
  // CUDA promises to be done with the source at return only for pageable memory that it stages, and nothing cheap tells whether this
  // is such.
  auto const code = device.call([&](CudaApi& api) {
    auto const copied = api.copy_to_device_async(to, source.data(), source.size(), stream.value);
    return copied == CudaCode::kSuccess ? api.stream_synchronize(stream.value) : copied;
  });
  if (code == CudaCode::kSuccess) return success();
  return tl::make_unexpected(
      cuda_error(device.api(), code, "copying " + format_bytes(source.size()) + " in on " + cuda_stream(stream)));
}

MemoryInfo CudaCore::memory_info() const noexcept {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  auto const code = device.call([&](CudaApi& api) { return api.memory_info(free_bytes, total_bytes); });
  MemoryInfo info{.total = device.total_bytes(), .free = std::nullopt};
  if (code == CudaCode::kSuccess) info.free = free_bytes;
  return info;
}

Result<StreamId> CudaCore::create_stream() {
  auto made = streams.create();
  if (!made) return tl::make_unexpected(std::move(made.error()));
  if (made->had_a_life) {
    if (auto ordered = uses.stream_made(made->stream); !ordered) {
      static_cast<void>(streams.end(made->stream));
      return tl::make_unexpected(std::move(ordered.error()));
    }
  }
  return made->stream;
}

Result<void> CudaCore::destroy_stream(StreamId stream) {
  if (!streams.is_live(stream)) {
    return fail(ErrorKind::stream_misuse, Layer::resource, cuda_stream(stream) + " is not a live stream of create_stream");
  }
  // Blocks that were allocated on it may still be used and freed on others, which then come after its work.
  if (auto noted = uses.stream_ends(stream); !noted) return noted;
  if (streams.end(stream)) return success();
  return fail(ErrorKind::stream_misuse, Layer::resource, cuda_stream(stream) + " was destroyed by another thread just now");
}

Result<void> CudaCore::synchronize_stream(StreamId stream) {
  if (auto wrong = wrong_stream(stream)) return tl::make_unexpected(*std::move(wrong));
  auto const code = device.call([&](CudaApi& api) { return api.stream_synchronize(stream.value); });
  if (code == CudaCode::kSuccess) return success();
  return tl::make_unexpected(cuda_error(device.api(), code, "waiting for " + cuda_stream(stream)));
}

Result<std::optional<UsedBlock>> CudaCore::check_use(Block const& block, StreamId stream) {
  if (auto wrong = wrong_stream(stream)) return tl::make_unexpected(*std::move(wrong));
  if (block.pointer == nullptr && block.bytes == 0) return std::nullopt;
  auto const found = blocks.find(block);
  if (!found.found) return tl::make_unexpected(use_of_misused(block, found));
  return used(found.live);
}

Result<void> CudaCore::prepare_use(Block const& block, StreamId stream, UseKind kind) {
  auto checked = check_use(block, stream);
  if (!checked) return tl::make_unexpected(std::move(checked.error()));
  return *checked ? uses.prepare(**checked, stream, kind) : success();
}

Result<void> CudaCore::finish_use(Block const& block, StreamId stream, UseKind kind) {
  auto checked = check_use(block, stream);
  if (!checked) return tl::make_unexpected(std::move(checked.error()));
  return *checked ? uses.finish(**checked, stream, kind) : success();
}

Result<std::optional<UseEvents::Event>> CudaCore::record(StreamId stream) {
  if (streams.is_ended(stream)) return std::nullopt;
  return events.record(stream).map([](CudaApi::Event event) { return std::optional<Event>{event}; });
}

Result<void> CudaCore::wait(StreamId stream, Event event) {
  if (auto wrong = wrong_stream(stream)) return tl::make_unexpected(*std::move(wrong));
  auto const code = device.call([&](CudaApi& api) { return api.stream_wait(stream.value, event); });
  if (code == CudaCode::kSuccess) return success();
  return tl::make_unexpected(cuda_error(device.api(), code, "letting " + cuda_stream(stream) + " wait for an event"));
}

bool CudaCore::done(Event event) noexcept {
  return device.quiet([&](CudaApi& api) { return api.event_query(event); }) == CudaCode::kSuccess;
}

}  // namespace headroom::device
