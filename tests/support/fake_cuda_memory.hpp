// Memory of the fake CUDA runtime's devices, plain and of pools.
//
// Addresses run from low to high in granules, at the lowest place that fits; no two fakes share an address. Memory freed on a stream
// serves nobody, not even that stream, until the stream has come to the free.
//
// A layer of FakeCuda (fake_cuda.hpp), which tests include. Notes as violations: memory that is of another device, is freed twice, is
// written after its end, or is left at the end, as pools are.
//
// Thread safety: every public member. Set the hook while one thread runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fake_cuda_streams.hpp"

namespace headroom::testing {

class FakeCudaMemory : public FakeCudaStreams {
public:
  static constexpr std::uint64_t kGranule = 512;

  // ── what a test does to it, and asks of it ──

  [[nodiscard]] std::uint64_t free_bytes(int device = 0) {
    std::lock_guard const lock(mutex_);
    return free_on(device);
  }
  [[nodiscard]] std::uint64_t release_threshold() const {
    std::lock_guard const lock(mutex_);
    return pools_.empty() ? 0 : pools_.rbegin()->second.threshold;
  }
  /// Called by each copy to the device, with what the host gave.
  std::function<void(void const* from, std::size_t bytes)> on_copy;

  // ── CudaApi ──

  int malloc(void*& pointer, std::size_t bytes) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::malloc, [&](int device) { return take(device, bytes, 0, pointer); });
  }
  int free(void* pointer) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::free, [&](int device) {
      auto* const range = live_range(device, pointer, "cudaFree");
      if (range == nullptr) return Code::kInvalidValue;
      if (range->pool != 0) violate("cudaFree of memory of a pool");
      wait_until(busiest(device));
      devices_[index(device)].used.erase(address_of(pointer));
      return 0;
    });
  }
  int pool_create(int device, Pool& pool) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_create, [&](int) {
      pools_[++last_handle_] = {.device = device};
      pool = last_handle_;
      return 0;
    });
  }
  int pool_destroy(Pool pool) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_destroy, [&](int) {
      if (pools_.erase(pool) == 0) violate("destroyed a pool that does not exist");
      return 0;
    });
  }
  int pool_set_release_threshold(Pool pool, std::uint64_t bytes) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_set_release_threshold, [&](int) {
      pools_.at(pool).threshold = bytes;
      return 0;
    });
  }
  int pool_trim(Pool pool, std::size_t bytes_to_keep) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_trim, [&](int device) {
      auto& trimmed = pools_.at(pool);
      trimmed.reserved = std::max(std::min<std::uint64_t>(trimmed.reserved, bytes_to_keep), used_by(device, pool));
      return 0;
    });
  }
  int pool_figure(Pool pool, device::CudaPoolFigure figure, std::uint64_t& bytes) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_figure, [&](int device) {
      settle_frees(device);
      auto const& asked = pools_.at(pool);
      switch (figure) {
        case device::CudaPoolFigure::used: bytes = used_by(device, pool); break;
        case device::CudaPoolFigure::used_high: bytes = asked.used_high; break;
        case device::CudaPoolFigure::reserved: bytes = asked.reserved; break;
        case device::CudaPoolFigure::reserved_high: bytes = asked.reserved_high; break;
      }
      return 0;
    });
  }
  int pool_reset_high(Pool pool, device::CudaPoolFigure figure) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::pool_figure, [&](int device) {
      auto& reset = pools_.at(pool);
      if (figure == device::CudaPoolFigure::used_high) reset.used_high = used_by(device, pool);
      if (figure == device::CudaPoolFigure::reserved_high) reset.reserved_high = reset.reserved;
      return 0;
    });
  }
  int malloc_async(void*& pointer, std::size_t bytes, Pool pool, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::malloc_async, LastError::untouched, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto const found = pools_.find(pool);
      if (found == pools_.end() || found->second.device != device) {
        violate("memory of a pool of another device");
        return Code::kInvalidValue;
      }
      auto const code = take(device, bytes, pool, pointer);
      if (code != 0) return code;
      enqueue(stream, device);
      auto& from = found->second;
      from.used_high = std::max(from.used_high, used_by(device, pool));
      from.reserved = std::max(from.reserved, used_by(device, pool));
      from.reserved_high = std::max(from.reserved_high, from.reserved);
      return 0;
    });
  }
  int free_async(void* pointer, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::free_async, LastError::untouched, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto* const range = live_range(device, pointer, "cudaFreeAsync");
      if (range == nullptr) return Code::kInvalidValue;
      if (range->pool == 0) violate("cudaFreeAsync of memory of cudaMalloc");
      range->freed = true;
      range->free_at = enqueue(stream, device);
      return 0;
    });
  }
  int memset_async(void* pointer, int value, std::size_t bytes, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::memset_async, [&](int device) {
      if (value != 0 || !usable(stream, device) || !within_live(device, pointer, bytes)) return Code::kInvalidValue;
      enqueue(stream, device);
      return 0;
    });
  }
  int copy_to_device_async(void* to, void const* from, std::size_t bytes, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::copy_to_device_async, [&](int device) {
      if (!usable(stream, device) || !within_live(device, to, bytes)) return Code::kInvalidValue;
      enqueue(stream, device);
      if (on_copy) on_copy(from, bytes);
      return 0;
    });
  }
  int memory_info(std::uint64_t& free_bytes, std::uint64_t& total_bytes) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::memory_info, [&](int device) {
      free_bytes = free_on(device);
      total_bytes = options_.bytes;
      return 0;
    });
  }

protected:
  explicit FakeCudaMemory(FakeCudaOptions const& options) : FakeCudaStreams(options) {
    for (int at = 0; at < options.devices; ++at) {
      // The fake's number and the device's in the upper half of an address that no allocation of the machine has.
      devices_.push_back({.start = (std::uint64_t{1} << 56) + (id_ << 48) + (static_cast<std::uint64_t>(at) << 44)});
    }
  }
  ~FakeCudaMemory() = default;

  /// Under mutex_.
  void note_memory_left() {
    for (auto const& [number, pool] : pools_) violate("pool " + std::to_string(number) + " was left");
    for (std::size_t at = 0; at < devices_.size(); ++at) {
      for (auto const& [address, range] : devices_[at].used) {
        if (!range.freed) violate(std::to_string(range.bytes) + " bytes on device " + std::to_string(at) + " were left");
      }
    }
  }

private:
  struct Range {
    std::uint64_t bytes = 0;  // whole granules
    Pool pool = 0;            // 0 = cudaMalloc
    bool freed = false;
    std::uint64_t free_at = 0;  // of one that is freed
  };
  struct Gpu {
    std::uint64_t start = 0;
    std::map<std::uint64_t, Range> used{};  // by address
  };
  struct PoolState {
    int device = 0;
    std::uint64_t threshold = 0, used_high = 0, reserved = 0, reserved_high = 0;
  };

  static std::uint64_t address_of(void const* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
  static std::size_t index(int device) { return static_cast<std::size_t>(device); }

  // All below: under mutex_.

  void settle_frees(int device) {
    std::erase_if(devices_[index(device)].used,
                  [this](auto const& entry) { return entry.second.freed && entry.second.free_at <= now_; });
  }
  std::uint64_t free_on(int device) {
    settle_frees(device);
    std::uint64_t used = 0;
    for (auto const& [address, range] : devices_[index(device)].used) used += range.bytes;
    return options_.bytes - used;
  }
  std::uint64_t used_by(int device, Pool pool) {
    std::uint64_t used = 0;
    for (auto const& [address, range] : devices_[index(device)].used) used += range.pool == pool ? range.bytes : 0;
    return used;
  }
  int take(int device, std::uint64_t bytes, Pool pool, void*& pointer) {
    settle_frees(device);
    auto& gpu = devices_[index(device)];
    if (bytes > options_.bytes) return Code::kOutOfMemory;
    auto const whole = (bytes + kGranule - 1) / kGranule * kGranule;
    auto at = gpu.start;
    for (auto const& [address, range] : gpu.used) {
      if (address - at >= whole) break;
      at = address + range.bytes;
    }
    if (at + whole > gpu.start + options_.bytes) return Code::kOutOfMemory;
    gpu.used[at] = {.bytes = whole, .pool = pool};
    pointer = reinterpret_cast<void*>(at);
    return 0;
  }
  Range* live_range(int device, void const* pointer, char const* call) {
    auto& used = devices_[index(device)].used;
    auto const found = used.find(address_of(pointer));
    if (found == used.end() || found->second.freed) {
      violate(std::string{call} + " of memory that is not live on device " + std::to_string(device));
      return nullptr;
    }
    return &found->second;
  }
  bool within_live(int device, void const* pointer, std::uint64_t bytes) {
    auto& used = devices_[index(device)].used;
    auto found = used.upper_bound(address_of(pointer));
    if (found != used.begin()) {
      --found;
      if (!found->second.freed && address_of(pointer) + bytes <= found->first + found->second.bytes) return true;
    }
    violate("a write to memory that is not live");
    return false;
  }

  std::vector<Gpu> devices_;
  std::map<Pool, PoolState> pools_;
};

}  // namespace headroom::testing
