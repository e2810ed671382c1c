// AsyncCudaResource: handing memory out of a pool of its own, and taking it back in stream order.
#include <chrono>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/cuda_resource.hpp>

#include "device/cuda/async_cuda_state.hpp"
#include "device/cuda/cuda_access.hpp"
#include "device/cuda/cuda_errors.hpp"
#include "device/request_checks.hpp"
#include "flight/recorder.hpp"

namespace headroom {

using device::CudaApi;
using device::CudaBlocks;
using device::CudaCode;
using device::CudaCore;
using device::CudaDevice;

namespace {

using namespace std::chrono_literals;

// Each round that brings something back and still finds no room was overtaken by another thread's request. A thread gives up when it
// has been overtaken both for long and often: not because it was asleep for a second.
constexpr auto kLongestWait = 1s;
constexpr int kFewestRounds = 1000;

// There was no room. Frees that are pending may make some, and it may be other threads that take them: so "no" is believed only when
// nothing was pending, then there was no room, and then nothing was pending again.
template <class Serve>
int after_reaping(device::CudaPending& pending, Serve const& serve) {
  auto const deadline = std::chrono::steady_clock::now() + kLongestWait;
  bool nothing_left = false;
  for (int round = 0;; ++round) {
    auto const reaped = pending.reap(ReapMode::synchronize_next);
    if (!reaped || (*reaped == 0 && nothing_left)) return CudaCode::kOutOfMemory;
    nothing_left = *reaped == 0;
    if (auto const code = serve(); code != CudaCode::kOutOfMemory) return code;
    if (round >= kFewestRounds && std::chrono::steady_clock::now() > deadline) return CudaCode::kOutOfMemory;
  }
}

}  // namespace

AsyncCudaResource::State::State(CudaDevice opened, AsyncCudaOptions const& given) noexcept
    : options(given), core(std::move(opened)), pending(core.device, core.events, core, core.outstanding) {}

AsyncCudaResource::State::~State() {
  // Whoever counts these bytes learns that they are back. Where waiting fails (a broken context), so will everything else.
  static_cast<void>(pending.reap(ReapMode::synchronize));
  auto const left = core.blocks.take_all();
  if (!left.empty()) {
    static_cast<void>(core.device.call([](CudaApi& api) { return api.device_synchronize(); }));
    for (auto const& one : left) {
      static_cast<void>(core.device.quiet([&](CudaApi& api) { return api.free_async(one.memory.base, 0); }));
    }
    // The pool gives memory up when it is destroyed only if no free is under way.
    static_cast<void>(core.device.call([](CudaApi& api) { return api.stream_synchronize(0); }));
  }
  if (pool != 0) static_cast<void>(core.device.call([&](CudaApi& api) { return api.pool_destroy(pool); }));
}

Result<std::shared_ptr<AsyncCudaResource>> device::CudaAccess::async(CudaApi* api, std::int32_t ordinal,
                                                                     AsyncCudaOptions const& options) {
  auto opened = CudaDevice::open(api, ordinal, CudaDevice::Pools::needed);
  if (!opened) return tl::make_unexpected(std::move(opened.error()));
  auto state = std::make_unique<AsyncCudaResource::State>(*std::move(opened), options);
  auto const code = state->core.device.call([&](CudaApi& cuda) {
    CudaApi::Pool pool = 0;
    auto const made = cuda.pool_create(ordinal, pool);
    if (made != CudaCode::kSuccess) return made;
    state->pool = pool;
    return cuda.pool_set_release_threshold(pool, options.release_threshold_bytes);
  });
  if (code != CudaCode::kSuccess) {
    return tl::make_unexpected(cuda_error(*api, code, "making a memory pool on CUDA device " + std::to_string(ordinal)));
  }
  // The constructor is private, so make_shared cannot call it.
  return std::shared_ptr<AsyncCudaResource>(new AsyncCudaResource(std::move(state)));
}

CudaApi::Pool device::CudaAccess::pool(AsyncCudaResource const& resource) noexcept { return resource.state_->pool; }

std::uint64_t device::CudaAccess::tracked_blocks(AsyncCudaResource const& resource) noexcept {
  return resource.state_->core.uses.tracked_blocks();
}

Result<std::shared_ptr<AsyncCudaResource>> AsyncCudaResource::create(std::int32_t ordinal, AsyncCudaOptions const& options) {
  return device::CudaAccess::async(device::cuda_runtime_api(), ordinal, options);
}

AsyncCudaResource::AsyncCudaResource(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

AsyncCudaResource::~AsyncCudaResource() {
  if (!flight::in_forked_child()) return;
  // GPU and locks are the parent's.
  [[maybe_unused]] auto const* const kept = state_.release();
}

Result<Block> AsyncCudaResource::allocate(AllocRequest const& request) {
  if (flight::in_forked_child()) [[unlikely]]
    return tl::make_unexpected(device::cuda_forked_child());
  if (!acceptable(request)) [[unlikely]]
    return wrong_request(request);
  auto& state = *state_;
  auto& core = state.core;
  if (!core.is_usable(request.stream)) [[unlikely]] {
    // It may have been made anew since, by another thread; then it is as usable as any.
    if (auto wrong = core.wrong_stream(request.stream)) return tl::make_unexpected(*std::move(wrong));
  }
  if (request.bytes == 0) return core.empty_block(request);
  CudaBlocks::Memory memory{.bytes = request.bytes};
  auto const take = [&](void*& pointer, std::uint64_t bytes) {
    return core.device.quiet([&](CudaApi& api) { return api.malloc_async(pointer, bytes, state.pool, request.stream.value); });
  };
  auto const give = [&](void* pointer) {
    return core.device.quiet([&](CudaApi& api) { return api.free_async(pointer, request.stream.value); });
  };
  auto const serve = [&] { return CudaCore::take_aligned(memory, raised_alignment(request.alignment), take, give); };
  auto code = serve();
  if (code == CudaCode::kOutOfMemory && request.bytes <= core.device.total_bytes()) [[unlikely]]
    code = after_reaping(state.pending, serve);
  if (code != CudaCode::kSuccess) [[unlikely]] {
    return tl::make_unexpected(
        core.not_served(request, code, "cudaMallocFromPoolAsync", code == CudaCode::kOutOfMemory ? state.pool_words() : ""));
  }
  return core.note(request, memory, [&] { static_cast<void>(give(memory.base)); });
}

Result<void> AsyncCudaResource::deallocate(Block const& block) {
  if (flight::in_forked_child()) [[unlikely]]
    return tl::make_unexpected(device::cuda_forked_child());
  if (block.pointer == nullptr && block.bytes == 0) return success();
  auto& core = state_->core;
  if (!core.is_usable(block.stream)) [[unlikely]] {
    if (auto wrong = core.wrong_stream(block.stream)) return tl::make_unexpected(*std::move(wrong));
  }
  auto taken = core.uses.any() ? core.blocks.find(block) : core.blocks.take_on_own_stream(block);
  if (taken.found && !taken.taken) {
    // Used, or allocated, on another stream, or perhaps so: the free comes after all of that.
    auto const ordered = core.uses.prepare_free(CudaCore::used(taken.live), block.stream);
    if (!ordered && !device::is_gone(ordered.error().device_code)) return tl::make_unexpected(ordered.error());
    taken = core.blocks.take(block);  // another thread may have freed it meanwhile
  }
  if (!taken.taken) [[unlikely]]
    return tl::make_unexpected(CudaCore::misused(block, taken));
  auto const code = core.device.quiet([&](CudaApi& api) { return api.free_async(taken.live.memory.base, block.stream.value); });
  if (code != CudaCode::kSuccess) [[unlikely]] {
    if (!device::is_gone(code)) {
      core.blocks.put_back(taken.live);
      return tl::make_unexpected(
          cuda_error(core.device.api(), code,
                     "cudaFreeAsync of " + device::cuda_address(block.pointer) + " on " + device::cuda_stream(block.stream)));
    }
    core.outstanding.fetch_sub(block.bytes, std::memory_order_relaxed);
    if (block.returns_to != nullptr) block.returns_to->returned(block.bytes);
  } else {
    state_->pending.add(block.stream, block.bytes, block.returns_to);
  }
  if (core.uses.any()) core.uses.forget(CudaCore::used(taken.live));
  return success();
}

Result<std::uint64_t> AsyncCudaResource::reap_pending(ReapMode mode) {
  if (flight::in_forked_child()) return tl::make_unexpected(device::cuda_forked_child());
  return state_->pending.reap(mode);
}

bool AsyncCudaResource::reports_returns() const noexcept { return true; }

}  // namespace headroom
