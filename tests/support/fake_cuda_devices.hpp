// The devices of the fake CUDA runtime as a program finds them: how many, their properties, and which one is current on the calling
// thread, with or without a context on it.
//
// A layer of FakeCuda (fake_cuda.hpp), which tests include. What the devices hold is in fake_cuda_memory.hpp.
//
// Thread safety: every public member.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "fake_cuda_calls.hpp"

namespace headroom::testing {

struct FakeCudaOptions {
  int devices = 1;
  std::uint64_t bytes = std::uint64_t{1} << 30;  ///< of each device
  int driver_version = 13000;                    ///< 0 = none
  bool memory_pools = true;
};

class FakeCudaDevices : public FakeCudaCalls {
public:
  // ── what a test does to it, and asks of it ──

  /// As the program would, by cudaSetDevice: makes the context.
  void set_device(int device) {
    std::lock_guard const lock(mutex_);
    auto& mine = thread();
    mine.device = device;
    mine.context = device;
    active_.insert(device);
  }
  [[nodiscard]] int current_device() const {
    std::lock_guard const lock(mutex_);
    return thread().device_in_use();
  }
  /// True when the calling thread has a context.
  [[nodiscard]] bool has_context() const {
    std::lock_guard const lock(mutex_);
    return thread().context >= 0;
  }
  /// Devices on which there is a context.
  [[nodiscard]] std::set<int> active_devices() const {
    std::lock_guard const lock(mutex_);
    return active_;
  }

  // ── CudaApi ──

  int driver_version(int& version) noexcept override {
    std::lock_guard const lock(mutex_);
    return plain(CudaCall::driver_version, [&] {
      version = options_.driver_version;
      return 0;
    });
  }
  int runtime_version() noexcept override { return 13000; }
  int device_count(int& count) noexcept override {
    std::lock_guard const lock(mutex_);
    return plain(CudaCall::device_count, [&] {
      if (options_.devices == 0) return Code::kNoDevice;
      count = options_.devices;
      return 0;
    });
  }
  int properties(int device, device::CudaProperties& found) override {
    std::lock_guard const lock(mutex_);
    return plain(CudaCall::properties, [&] {
      found.name = "Fake GPU";
      for (std::size_t at = 0; at < 8; ++at) found.uuid.at(at) = static_cast<std::uint8_t>(id_ >> (8 * (7 - at)));
      found.uuid[15] = static_cast<std::uint8_t>(device);
      found.pci_bus_id = "0000:A" + std::to_string(device) + ":00.0";
      found.total_bytes = options_.bytes;
      found.has_memory_pools = options_.memory_pools;
      return 0;
    });
  }

  int init_device(int device) noexcept override {
    std::lock_guard const lock(mutex_);
    return plain(CudaCall::init_device, [&] {
      active_.insert(device);
      return 0;
    });
  }
  int enter(int device, Context& previous) noexcept override {
    std::lock_guard const lock(mutex_);
    previous = 0;
    ++calls_[CudaCall::enter];
    if (auto const code = injected(CudaCall::enter); code != 0) return code;
    auto& mine = thread();
    if (mine.context == device) return 0;
    if (mine.context < 0 && mine.device == device) {
      mine.context = device;
      return 0;
    }
    mine.stack.push_back(mine.context);
    mine.context = device;
    previous = 1;
    return 0;
  }
  void leave(Context /*previous*/) noexcept override {
    std::lock_guard const lock(mutex_);
    auto& mine = thread();
    if (mine.stack.empty()) return violate("left a device that was never entered");
    mine.context = mine.stack.back();
    mine.stack.pop_back();
  }

protected:
  explicit FakeCudaDevices(FakeCudaOptions const& options) : options_(options), id_(next_id()) {}
  ~FakeCudaDevices() = default;

  FakeCudaOptions const options_;
  std::uint64_t const id_;

private:
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return 1 + last.fetch_add(1, std::memory_order_relaxed) % 127;
  }

  std::set<int> active_;
};

}  // namespace headroom::testing
