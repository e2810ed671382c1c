// DirectCudaResource: cudaMalloc and cudaFree.
#include <string>
#include <utility>

#include <headroom/cuda_resource.hpp>

#include "base/checked.hpp"
#include "device/cuda/cuda_access.hpp"
#include "device/cuda/cuda_core.hpp"
#include "device/cuda/cuda_errors.hpp"
#include "device/request_checks.hpp"
#include "flight/recorder.hpp"

namespace headroom {

using device::CudaApi;
using device::CudaBlocks;
using device::CudaCode;
using device::CudaCore;
using device::CudaDevice;

struct DirectCudaResource::State {
  explicit State(CudaDevice opened) noexcept : core(std::move(opened)) {}
  CudaCore core;

  // cudaFree "may" wait for the device, says its documentation; memory that comes back must be out of use, so this waits.
  [[nodiscard]] int free(void* base) const noexcept {
    return core.device.call([&](CudaApi& api) {
      auto const waited = api.device_synchronize();
      return waited == CudaCode::kSuccess ? api.free(base) : waited;
    });
  }
};

Result<std::shared_ptr<DirectCudaResource>> device::CudaAccess::direct(CudaApi* api, std::int32_t ordinal) {
  auto opened = CudaDevice::open(api, ordinal, CudaDevice::Pools::not_needed);
  if (!opened) return tl::make_unexpected(std::move(opened.error()));
  // The constructor is private, so make_shared cannot call it.
  return std::shared_ptr<DirectCudaResource>(
      new DirectCudaResource(std::make_unique<DirectCudaResource::State>(*std::move(opened))));
}

Result<std::shared_ptr<DirectCudaResource>> DirectCudaResource::create(std::int32_t ordinal) {
  return device::CudaAccess::direct(device::cuda_runtime_api(), ordinal);
}

DirectCudaResource::DirectCudaResource(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

DirectCudaResource::~DirectCudaResource() {
  if (flight::in_forked_child()) {
    // GPU and locks are the parent's.
    [[maybe_unused]] auto const* const kept = state_.release();
    return;
  }
  for (auto const& left : state_->core.blocks.take_all()) static_cast<void>(state_->free(left.memory.base));
}

Result<Block> DirectCudaResource::allocate(AllocRequest const& request) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  if (!acceptable(request)) [[unlikely]]
    return wrong_request(request);
  auto& core = state_->core;
  if (auto wrong = core.wrong_stream(request.stream)) return tl::make_unexpected(*std::move(wrong));
  if (request.bytes == 0) return core.empty_block(request);
  CudaBlocks::Memory memory{.bytes = request.bytes};
  auto const take = [&](void*& pointer, std::uint64_t bytes) {
    return core.device.call([&](CudaApi& api) { return api.malloc(pointer, bytes); });
  };
  auto const give = [&](void* pointer) {  // nobody has used it: nothing to wait for
    return core.device.call([&](CudaApi& api) { return api.free(pointer); });
  };
  if (auto const code = CudaCore::take_aligned(memory, raised_alignment(request.alignment), take, give);
      code != CudaCode::kSuccess) {
    return tl::make_unexpected(core.not_served(request, code, "cudaMalloc", {}));
  }
  return core.note(request, memory, [&] { static_cast<void>(give(memory.base)); });
}

Result<void> DirectCudaResource::deallocate(Block const& block) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  auto& core = state_->core;
  if (block.pointer == nullptr && block.bytes == 0) return success();
  if (auto wrong = core.wrong_stream(block.stream)) return tl::make_unexpected(*std::move(wrong));
  auto const taken = core.blocks.take(block);
  if (!taken.found) return tl::make_unexpected(device::CudaCore::misused(block, taken));
  if (auto const code = state_->free(taken.live.memory.base); code != CudaCode::kSuccess && !device::is_gone(code)) {
    core.blocks.put_back(taken.live);
    return tl::make_unexpected(cuda_error(core.device.api(), code, "cudaFree of " + device::cuda_address(block.pointer)));
  }
  if (core.uses.any()) core.uses.forget(CudaCore::used(taken.live));
  core.outstanding.fetch_sub(block.bytes, std::memory_order_relaxed);
  if (block.returns_to != nullptr) block.returns_to->returned(block.bytes);
  return success();
}

Result<void> DirectCudaResource::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.fill_zero(block, offset, bytes, stream);
}

Result<void> DirectCudaResource::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                         StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.copy_in(block, offset, source, stream);
}

std::uint64_t DirectCudaResource::bytes_outstanding() const noexcept {
  return state_->core.outstanding.load(std::memory_order_relaxed);
}

bool DirectCudaResource::reports_returns() const noexcept { return true; }

MemoryInfo DirectCudaResource::memory_info() const noexcept {
  if (flight::in_forked_child()) return {.total = state_->core.device.total_bytes(), .free = std::nullopt};
  return state_->core.memory_info();
}

std::uint64_t DirectCudaResource::footprint(std::uint64_t bytes) const noexcept {
  constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
  return checked_round_up(bytes, kPage).value_or(UINT64_MAX);
}

Result<StreamId> DirectCudaResource::create_stream() {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.create_stream();
}

Result<void> DirectCudaResource::destroy_stream(StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.destroy_stream(stream);
}

Result<void> DirectCudaResource::synchronize_stream(StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.synchronize_stream(stream);
}

bool DirectCudaResource::tracks_uses() const noexcept { return true; }

Result<void> DirectCudaResource::prepare_use(Block const& block, StreamId stream, UseKind kind) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.prepare_use(block, stream, kind);
}

Result<void> DirectCudaResource::finish_use(Block const& block, StreamId stream, UseKind kind) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->core.finish_use(block, stream, kind);
}

// The tracker takes out only what it ordered itself, so a use that it did not order needs nothing else.
Result<void> DirectCudaResource::record_use(Block const& block, StreamId stream, UseKind kind) {
  return finish_use(block, stream, kind);
}

std::string_view DirectCudaResource::name() const noexcept { return "cuda"; }
std::string_view DirectCudaResource::device_uuid() const noexcept { return state_->core.device.uuid(); }
std::int32_t DirectCudaResource::ordinal() const noexcept { return state_->core.device.ordinal(); }
std::string const& DirectCudaResource::device_name() const noexcept { return state_->core.device.name(); }
std::string const& DirectCudaResource::pci_bus_id() const noexcept { return state_->core.device.pci_bus_id(); }

Result<std::uint64_t> DirectCudaResource::trim(std::uint64_t) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return 0;
}

}  // namespace headroom
