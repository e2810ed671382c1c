// What the tests on a real GPU share: a fixture that skips where there is none, streams as CUDA knows them, and a gate that holds a
// stream back until a test says so, which makes races between streams repeatable.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/cuda_resource.hpp>
#include <headroom/manager.hpp>

namespace headroom::gpu {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
/// The device of all tests here.
constexpr std::int32_t kOrdinal = 0;
/// Until something that only waits for the device has failed.
constexpr std::chrono::seconds kPatience{30};

inline cudaStream_t cuda(StreamId stream) { return reinterpret_cast<cudaStream_t>(stream.value); }

inline ::testing::AssertionResult ok(cudaError_t code) {
  if (code == cudaSuccess) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << cudaGetErrorName(code) << " (" << code << "): " << cudaGetErrorString(code);
}
template <class T>
::testing::AssertionResult ok(Result<T> const& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error().kind) << ": " << result.error().to_string();
}

/// Skips where no device can be used, and says why. Every test ends with CUDA's last error as clear as it began.
class Gpu : public ::testing::Test {
protected:
  void SetUp() override {
    auto const device = cuda_device(kOrdinal);
    if (!device) GTEST_SKIP() << device.error().to_string();
    ran_ = true;
  }
  void TearDown() override {
    if (ran_) {
      EXPECT_TRUE(ok(cudaPeekAtLastError())) << "left behind by a call of ours";
    }
  }

private:
  bool ran_ = false;
};

/// Bytes of the device outside all books, for copies to be looked at.
class Scratch {
public:
  explicit Scratch(std::uint64_t bytes) {
    if (!ok(cudaMalloc(&pointer_, bytes))) throw std::bad_alloc{};
  }
  ~Scratch() { cudaFree(pointer_); }
  Scratch(Scratch const&) = delete;
  Scratch& operator=(Scratch const&) = delete;
  [[nodiscard]] void* get() const { return pointer_; }

private:
  void* pointer_ = nullptr;
};

/// Host memory that the device copies to while the host goes on.
class Pinned {
public:
  explicit Pinned(std::uint64_t bytes) : bytes_(bytes) {
    if (!ok(cudaMallocHost(&pointer_, bytes))) throw std::bad_alloc{};
    std::memset(pointer_, 0, bytes);
  }
  ~Pinned() { cudaFreeHost(pointer_); }
  Pinned(Pinned const&) = delete;
  Pinned& operator=(Pinned const&) = delete;
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(pointer_); }
  [[nodiscard]] std::span<std::byte const> bytes() const { return {get(), bytes_}; }

private:
  void* pointer_ = nullptr;
  std::uint64_t bytes_;
};

/// How many bytes differ from `expected`.
inline std::uint64_t wrong_bytes(std::span<std::byte const> bytes, std::byte expected) {
  std::uint64_t wrong = 0;
  for (auto const byte : bytes) wrong += byte != expected ? 1U : 0U;
  return wrong;
}

/// Holds a stream back: what is enqueued behind it waits until open(). While it is closed make no call that waits for the whole device
/// (cudaMalloc, cudaFree, cudaMallocHost). It opens by itself after kPatience, and says so, so that nothing hangs.
class Gate {
public:
  explicit Gate(cudaStream_t stream) : stream_(stream) { EXPECT_TRUE(ok(cudaLaunchHostFunc(stream, &Gate::wait, this))); }
  ~Gate() {
    open();
    cudaStreamSynchronize(stream_);  // the host function uses this object
    EXPECT_FALSE(gave_up_) << "the gate opened by itself: something waited for the stream that it held back";
  }
  Gate(Gate const&) = delete;
  Gate& operator=(Gate const&) = delete;

  void open() {
    {
      std::lock_guard const lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

private:
  static void CUDART_CB wait(void* gate) { static_cast<Gate*>(gate)->wait_until_open(); }
  void wait_until_open() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return open_; })) gave_up_ = true;
  }

  cudaStream_t const stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;     // under the mutex
  bool gave_up_ = false;  // by the host function, which has ended when it is read
};

/// A device over a pool of its own, with a hand on the pool.
struct Pool {
  std::shared_ptr<AsyncCudaResource> resource;
  Device device;
};
inline Pool make_pool(AsyncCudaOptions const& options = {}) {
  auto resource = AsyncCudaResource::create(kOrdinal, options).value();
  auto device = cuda_device_over(resource).value();
  return {std::move(resource), std::move(device)};
}

/// The same over cudaMalloc and cudaFree.
struct Direct {
  std::shared_ptr<DirectCudaResource> resource;
  Device device;
};
inline Direct make_direct() {
  auto resource = DirectCudaResource::create(kOrdinal).value();
  auto device = cuda_device_over(resource).value();
  return {std::move(resource), std::move(device)};
}

}  // namespace headroom::gpu
