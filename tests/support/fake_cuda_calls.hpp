// What each call into the fake CUDA runtime passes through: it is counted, fails on demand, stands between `enter` and `leave`, and
// leaves its mark on the calling thread's last error. Whatever is misuse is noted here as a violation.
//
// The lowest layer of FakeCuda (fake_cuda.hpp), which tests include. Each layer adds what a test does to it and asks of it, the calls
// of CudaApi that it answers, and for the layers above the state that its mutex guards.
//
// Thread safety: every public member. Set errors while one thread runs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/cuda_api.hpp"

namespace headroom::testing {

/// The calls that can be made to fail and are counted.
enum class CudaCall : std::uint8_t {
  driver_version,
  device_count,
  properties,
  init_device,
  enter,
  malloc,
  free,
  pool_create,
  pool_destroy,
  pool_set_release_threshold,
  pool_trim,
  pool_figure,
  malloc_async,
  free_async,
  memset_async,
  copy_to_device_async,
  memory_info,
  device_synchronize,
  stream_create,
  stream_destroy,
  stream_synchronize,
  stream_query,
  stream_wait,
  event_create,
  event_destroy,
  event_record,
  event_query,
  event_synchronize,
};

class FakeCudaCalls : public device::CudaApi {
public:
  // ── what a test does to it, and asks of it ──

  /// The next `times` calls, from the nth on, return `code` and do nothing.
  void fail(CudaCall call, int code, std::uint64_t times = 1, std::uint64_t after = 0) {
    std::lock_guard const lock(mutex_);
    failures_[call] = {code, after, times};
  }
  /// The driver shuts down: every call returns 4 from now on.
  void unload() {
    std::lock_guard const lock(mutex_);
    unloaded_ = true;
  }
  [[nodiscard]] std::uint64_t calls(CudaCall call) const {
    std::lock_guard const lock(mutex_);
    auto const found = calls_.find(call);
    return found == calls_.end() ? 0 : found->second;
  }
  void set_last_error(int code) {
    std::lock_guard const lock(mutex_);
    thread().last_error = code;
  }
  [[nodiscard]] int last_error() const {
    std::lock_guard const lock(mutex_);
    return thread().last_error;
  }
  [[nodiscard]] std::vector<std::string> violations() const {
    std::lock_guard const lock(mutex_);
    return violations_;
  }
  /// For a test that provokes some.
  void forgive() {
    std::lock_guard const lock(mutex_);
    violations_.clear();
  }

  // ── CudaApi ──

  int peek_last_error() noexcept override {
    std::lock_guard const lock(mutex_);
    return thread().last_error;
  }
  void clear_last_error() noexcept override {
    std::lock_guard const lock(mutex_);
    thread().last_error = 0;
  }
  std::string error_text(int code) override { return "fake error " + std::to_string(code); }

protected:
  using Code = device::CudaCode;
  enum class LastError : std::uint8_t { replaced, untouched };

  struct Thread {
    int device = 0;    // as the runtime has it for a thread without a context
    int context = -1;  // of this device; −1 = none
    std::vector<int> stack;
    int last_error = 0;
    [[nodiscard]] int device_in_use() const { return context >= 0 ? context : device; }
  };

  FakeCudaCalls() = default;
  ~FakeCudaCalls() = default;

  // All below: under mutex_.

  [[nodiscard]] Thread& thread() const { return threads_[std::this_thread::get_id()]; }
  void violate(std::string text) { violations_.push_back(std::move(text)); }
  [[nodiscard]] std::vector<std::string> const& noted() const { return violations_; }
  [[nodiscard]] bool unloaded() const { return unloaded_; }

  int injected(CudaCall call) {
    if (unloaded_) return Code::kUnloading;
    auto const found = failures_.find(call);
    if (found == failures_.end() || found->second.times == 0) return 0;
    if (found->second.after != 0) {
      --found->second.after;
      return 0;
    }
    --found->second.times;
    return found->second.code;
  }
  template <class Body>
  int plain(CudaCall call, Body const& body) {
    return finish(call, LastError::replaced, body);
  }
  template <class Body>
  int finish(CudaCall call, LastError last, Body const& body) {
    ++calls_[call];
    auto code = injected(call);
    if (code == 0) code = body();
    if (code != 0 && last == LastError::replaced) thread().last_error = code;
    return code;
  }
  template <class Body>
  int on_device(CudaCall call, LastError last, Body const& body) {
    return finish(call, last, [&]() -> int {
      auto const& mine = thread();
      if (mine.context < 0) {
        violate("a call without a current device");
        return Code::kInvalidDevice;
      }
      return body(mine.context);
    });
  }
  template <class Body>
  int on_device(CudaCall call, Body const& body) {
    return on_device(call, LastError::replaced, body);
  }

  mutable std::mutex mutex_;  // guards all that is not const, of this layer and those above
  std::map<CudaCall, std::uint64_t> calls_;
  std::uint64_t last_handle_ = 0x10000;

private:
  struct Failure {
    int code = 0;
    std::uint64_t after = 0;
    std::uint64_t times = 0;
  };

  mutable std::map<std::thread::id, Thread> threads_;
  std::map<CudaCall, Failure> failures_;
  std::vector<std::string> violations_;
  bool unloaded_ = false;
};

}  // namespace headroom::testing
