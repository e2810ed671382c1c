// AsyncCudaResource: writes, streams, uses, and its pool's figures.
#include <array>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/cuda_resource.hpp>

#include "base/checked.hpp"
#include "device/cuda/async_cuda_state.hpp"
#include "device/cuda/cuda_errors.hpp"
#include "flight/recorder.hpp"

namespace headroom {

using device::CudaApi;
using device::CudaCode;
using device::CudaPoolFigure;

Result<PoolUsage> AsyncCudaResource::State::pool_usage() const {
  PoolUsage usage;
  std::array const wanted{std::pair{CudaPoolFigure::used, &usage.used}, std::pair{CudaPoolFigure::used_high, &usage.used_high},
                          std::pair{CudaPoolFigure::reserved, &usage.reserved},
                          std::pair{CudaPoolFigure::reserved_high, &usage.reserved_high}};
  for (auto const& [figure, bytes] : wanted) {
    auto const code = core.device.call([&](CudaApi& api) { return api.pool_figure(pool, figure, *bytes); });
    if (code != CudaCode::kSuccess) return tl::make_unexpected(cuda_error(core.device.api(), code, "asking the memory pool"));
  }
  return usage;
}

std::string AsyncCudaResource::State::pool_words() const {
  auto const usage = pool_usage();
  if (!usage) return {};
  return "; the pool uses " + format_bytes(usage->used) + " of " + format_bytes(usage->reserved) + " reserved";
}

Result<PoolUsage> AsyncCudaResource::pool_usage() const {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->pool_usage();
}

Result<void> AsyncCudaResource::reset_pool_high_water() {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  auto const& gpu = state_->core.device;
  for (auto const figure : {CudaPoolFigure::used_high, CudaPoolFigure::reserved_high}) {
    auto const code = gpu.call([&](CudaApi& api) { return api.pool_reset_high(state_->pool, figure); });
    if (code != CudaCode::kSuccess) return tl::make_unexpected(cuda_error(gpu.api(), code, "resetting the memory pool's marks"));
  }
  return success();
}

Result<std::uint64_t> AsyncCudaResource::trim(std::uint64_t bytes_to_keep) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  auto const& gpu = state_->core.device;
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  auto const code = gpu.call([&](CudaApi& api) {
    auto asked = api.pool_figure(state_->pool, CudaPoolFigure::reserved, before);
    if (asked == CudaCode::kSuccess) asked = api.pool_trim(state_->pool, bytes_to_keep);
    return asked == CudaCode::kSuccess ? api.pool_figure(state_->pool, CudaPoolFigure::reserved, after) : asked;
  });
  if (code != CudaCode::kSuccess) return tl::make_unexpected(cuda_error(gpu.api(), code, "trimming the memory pool"));
  return before > after ? before - after : 0;  // another thread may have made it grow meanwhile
}

Result<void> AsyncCudaResource::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.fill_zero(block, offset, bytes, stream);
}

Result<void> AsyncCudaResource::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                        StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.copy_in(block, offset, source, stream);
}

std::uint64_t AsyncCudaResource::bytes_outstanding() const noexcept {
  return state_->core.outstanding.load(std::memory_order_relaxed);
}

MemoryInfo AsyncCudaResource::memory_info() const noexcept {
  if (flight::in_forked_child()) return {.total = state_->core.device.total_bytes(), .free = std::nullopt};
  auto info = state_->core.memory_info();
  std::uint64_t reserved = 0;
  auto const code =
      state_->core.device.call([&](CudaApi& api) { return api.pool_figure(state_->pool, CudaPoolFigure::reserved, reserved); });
  if (code == CudaCode::kSuccess) info.slack = checked_sub(reserved, bytes_outstanding()).value_or(0);
  return info;
}

// Seen on an H200 with CUDA 13.0; tests/gpu compares it with what a pool really takes.
std::uint64_t AsyncCudaResource::footprint(std::uint64_t bytes) const noexcept {
  constexpr std::uint64_t kPoolGrowsBy = std::uint64_t{32} << 20;
  return checked_round_up(bytes, kPoolGrowsBy).value_or(UINT64_MAX);
}

Result<StreamId> AsyncCudaResource::create_stream() {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  auto stream = state_->core.create_stream();
  if (stream) state_->pending.add_lasting(*stream);
  return stream;
}

Result<void> AsyncCudaResource::destroy_stream(StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.destroy_stream(stream);
}

Result<void> AsyncCudaResource::synchronize_stream(StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.synchronize_stream(stream);
}

bool AsyncCudaResource::tracks_uses() const noexcept { return true; }

Result<void> AsyncCudaResource::prepare_use(Block const& block, StreamId stream, UseKind kind) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.prepare_use(block, stream, kind);
}

Result<void> AsyncCudaResource::finish_use(Block const& block, StreamId stream, UseKind kind) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.finish_use(block, stream, kind);
}

// The tracker takes out only what it ordered itself, so a use that it did not order needs nothing else.
Result<void> AsyncCudaResource::record_use(Block const& block, StreamId stream, UseKind kind) {
  return finish_use(block, stream, kind);
}

std::string_view AsyncCudaResource::name() const noexcept { return "cuda-async"; }
std::string_view AsyncCudaResource::device_uuid() const noexcept { return state_->core.device.uuid(); }
std::int32_t AsyncCudaResource::ordinal() const noexcept { return state_->core.device.ordinal(); }
std::string const& AsyncCudaResource::device_name() const noexcept { return state_->core.device.name(); }
std::string const& AsyncCudaResource::pci_bus_id() const noexcept { return state_->core.device.pci_bus_id(); }
AsyncCudaOptions const& AsyncCudaResource::options() const noexcept { return state_->options; }

}  // namespace headroom
