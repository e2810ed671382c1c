// A CUDA runtime made of numbers: devices with memory of a fixed size, streams and events in virtual time, the calling thread's
// current device and last error, and every error on demand. It behaves as CUDA is documented to, and where CUDA leaves something open
// it does the harder thing:
//
// * Addresses run from low to high in granules of 512 bytes, at the lowest place that fits; no two fakes share an address.
// * Memory freed on a stream serves nobody, not even that stream, until the stream has come to the free. (CUDA hands it out again on
//   the same stream at once.)
// * Time passes by one tick at each query, and up to what is waited for at each wait. A call enqueued on a stream takes one tick.
// * A failing call replaces the thread's last error, but for those that CudaApi marks as leaving it alone.
//
// It notices, as violations: a call on another device than the current one, memory, streams and events of another device, freed
// twice, or destroyed, and at its end streams, events, pools and memory that are left. They fail the test that runs when it ends.
//
// Thread safety: every member. Set errors and hooks while one thread runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

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

struct FakeCudaOptions {
  int devices = 1;
  std::uint64_t bytes = std::uint64_t{1} << 30;  ///< of each device
  int driver_version = 13000;                    ///< 0 = none
  bool memory_pools = true;
};

class FakeCuda final : public device::CudaApi {
public:
  static constexpr std::uint64_t kGranule = 512;

  explicit FakeCuda(FakeCudaOptions const& options = {}) : options_(options), id_(next_id()) {
    for (int at = 0; at < options.devices; ++at) {
      // The fake's number and the device's in the upper half of an address that no allocation of the machine has.
      devices_.push_back({.start = (std::uint64_t{1} << 56) + (id_ << 48) + (static_cast<std::uint64_t>(at) << 44)});
    }
  }
  ~FakeCuda() {
    if (unloaded_) return;
    for (auto const& [number, stream] : streams_) {
      if (number != 0 && !stream.destroyed && !stream.foreign) violate("stream " + std::to_string(number) + " was left");
    }
    for (auto const& [number, event] : events_) violate("event " + std::to_string(number) + " was left");
    for (auto const& [number, pool] : pools_) violate("pool " + std::to_string(number) + " was left");
    for (std::size_t at = 0; at < devices_.size(); ++at) {
      for (auto const& [address, range] : devices_[at].used) {
        if (!range.freed) violate(std::to_string(range.bytes) + " bytes on device " + std::to_string(at) + " were left");
      }
    }
    for (auto const& text : violations_) ADD_FAILURE() << "CUDA was misused: " << text;
  }

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
  /// Work on the stream that takes that many ticks.
  void enqueue_work(Stream stream, std::uint64_t ticks) {
    std::lock_guard const lock(mutex_);
    auto& on = stream_at(stream, thread().device_in_use());
    on.busy_until = std::max(on.busy_until, now_) + ticks;
  }
  /// Stops time: it passes only where something is waited for.
  void freeze(bool frozen) {
    std::lock_guard const lock(mutex_);
    frozen_ = frozen;
  }
  void advance(std::uint64_t ticks) {
    std::lock_guard const lock(mutex_);
    now_ += ticks;
  }
  [[nodiscard]] std::uint64_t now() const {
    std::lock_guard const lock(mutex_);
    return now_;
  }
  /// When the stream's work so far ends.
  [[nodiscard]] std::uint64_t busy_until(Stream stream) {
    std::lock_guard const lock(mutex_);
    return std::max(stream_at(stream, thread().device_in_use()).busy_until, now_);
  }
  /// A stream of the program's own on that device, and its end.
  Stream foreign_stream(int device = 0) {
    std::lock_guard const lock(mutex_);
    streams_[++last_handle_] = {.device = device, .foreign = true};
    return last_handle_;
  }
  void destroy_foreign(Stream stream) {
    std::lock_guard const lock(mutex_);
    streams_.at(stream).destroyed = true;
  }
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
  [[nodiscard]] std::uint64_t free_bytes(int device = 0) {
    std::lock_guard const lock(mutex_);
    return free_on(device);
  }
  [[nodiscard]] std::uint64_t release_threshold() const {
    std::lock_guard const lock(mutex_);
    return pools_.empty() ? 0 : pools_.rbegin()->second.threshold;
  }
  [[nodiscard]] std::size_t live_events() const {
    std::lock_guard const lock(mutex_);
    return events_.size();
  }
  /// Called by each copy to the device, with what the host gave.
  std::function<void(void const* from, std::size_t bytes)> on_copy;

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

  int peek_last_error() noexcept override {
    std::lock_guard const lock(mutex_);
    return thread().last_error;
  }
  void clear_last_error() noexcept override {
    std::lock_guard const lock(mutex_);
    thread().last_error = 0;
  }
  std::string error_text(int code) override { return "fake error " + std::to_string(code); }

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
  int device_synchronize() noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::device_synchronize, [&](int device) {
      wait_until(busiest(device));
      return 0;
    });
  }

  int stream_create(Stream& stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_create, [&](int device) {
      streams_[++last_handle_] = {.device = device};
      stream = last_handle_;
      return 0;
    });
  }
  int stream_destroy(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_destroy, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      streams_.at(stream).destroyed = true;
      return 0;
    });
  }
  int stream_synchronize(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_synchronize, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      wait_until(stream_at(stream, device).busy_until);
      return 0;
    });
  }
  int stream_query(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_query, LastError::untouched, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      tick();
      return stream_at(stream, device).busy_until <= now_ ? 0 : Code::kNotReady;
    });
  }
  int stream_wait(Stream stream, Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_wait, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto const* const awaited = event_at(event, device);
      if (awaited == nullptr) return Code::kInvalidHandle;
      auto& on = stream_at(stream, device);
      on.busy_until = std::max(on.busy_until, awaited->time);
      return 0;
    });
  }
  int event_create(Event& event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_create, [&](int device) {
      events_[++last_handle_] = {.device = device};
      event = last_handle_;
      return 0;
    });
  }
  int event_destroy(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_destroy, [&](int device) {
      if (event_at(event, device) == nullptr) return Code::kInvalidHandle;
      events_.erase(event);
      return 0;
    });
  }
  int event_record(Event event, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_record, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto* const recorded = event_at(event, device);
      if (recorded == nullptr) return Code::kInvalidHandle;
      recorded->time = std::max(stream_at(stream, device).busy_until, now_);
      return 0;
    });
  }
  int event_query(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_query, LastError::untouched, [&](int device) {
      auto const* const asked = event_at(event, device);
      if (asked == nullptr) return Code::kInvalidHandle;
      tick();
      return asked->time <= now_ ? 0 : Code::kNotReady;
    });
  }
  int event_synchronize(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_synchronize, [&](int device) {
      auto const* const awaited = event_at(event, device);
      if (awaited == nullptr) return Code::kInvalidHandle;
      wait_until(awaited->time);
      return 0;
    });
  }

private:
  using Code = device::CudaCode;
  enum class LastError : std::uint8_t { replaced, untouched };

  struct Thread {
    int device = 0;    // as the runtime has it for a thread without a context
    int context = -1;  // of this device; −1 = none
    std::vector<int> stack;
    int last_error = 0;
    [[nodiscard]] int device_in_use() const { return context >= 0 ? context : device; }
  };
  struct Range {
    std::uint64_t bytes = 0;  // whole granules
    Pool pool = 0;            // 0 = cudaMalloc
    bool freed = false;
    std::uint64_t free_at = 0;  // of one that is freed
  };
  struct Gpu {
    std::uint64_t start = 0;
    std::map<std::uint64_t, Range> used{};  // by address
    std::uint64_t default_busy_until = 0;
  };
  struct StreamState {
    int device = 0;
    std::uint64_t busy_until = 0;
    bool destroyed = false;
    bool foreign = false;
  };
  struct EventState {
    int device = 0;
    std::uint64_t time = 0;
  };
  struct PoolState {
    int device = 0;
    std::uint64_t threshold = 0, used_high = 0, reserved = 0, reserved_high = 0;
  };
  struct Failure {
    int code = 0;
    std::uint64_t after = 0;
    std::uint64_t times = 0;
  };

  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return 1 + last.fetch_add(1, std::memory_order_relaxed) % 127;
  }
  static std::uint64_t address_of(void const* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
  static std::size_t index(int device) { return static_cast<std::size_t>(device); }

  // All below: under mutex_.

  [[nodiscard]] Thread& thread() const { return threads_[std::this_thread::get_id()]; }
  void violate(std::string text) { violations_.push_back(std::move(text)); }

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

  void tick() {
    if (!frozen_) ++now_;
  }
  void wait_until(std::uint64_t time) { now_ = std::max(now_, time); }

  StreamState& stream_at(Stream stream, int device) {
    if (stream != 0) return streams_.at(stream);
    auto& legacy = streams_[0];
    legacy.device = device;
    return legacy;
  }
  bool usable(Stream stream, int device) {
    if (stream == 0) return true;
    auto const found = streams_.find(stream);
    if (found == streams_.end()) {
      violate("stream " + std::to_string(stream) + " does not exist");
    } else if (found->second.destroyed) {
      violate("stream " + std::to_string(stream) + " was destroyed");
    } else if (found->second.device != device) {
      violate("stream " + std::to_string(stream) + " is of another device");
    } else {
      return true;
    }
    return false;
  }
  EventState* event_at(Event event, int device) {
    auto const found = events_.find(event);
    if (found == events_.end()) {
      violate("event " + std::to_string(event) + " does not exist");
      return nullptr;
    }
    if (found->second.device != device) {
      violate("event " + std::to_string(event) + " is of another device");
      return nullptr;
    }
    return &found->second;
  }
  std::uint64_t enqueue(Stream stream, int device) {
    auto& on = stream_at(stream, device);
    on.busy_until = std::max(on.busy_until, now_) + 1;
    return on.busy_until;
  }
  std::uint64_t busiest(int device) {
    std::uint64_t latest = 0;
    for (auto const& [number, stream] : streams_) {
      if (stream.device == device) latest = std::max(latest, stream.busy_until);
    }
    return latest;
  }

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

  FakeCudaOptions const options_;
  std::uint64_t const id_;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::map<std::thread::id, Thread> threads_;
  std::vector<Gpu> devices_;
  std::map<Stream, StreamState> streams_;
  std::map<Event, EventState> events_;
  std::map<Pool, PoolState> pools_;
  std::set<int> active_;
  std::map<CudaCall, std::uint64_t> calls_;
  std::map<CudaCall, Failure> failures_;
  std::vector<std::string> violations_;
  std::uint64_t last_handle_ = 0x10000;
  std::uint64_t now_ = 0;
  bool frozen_ = false;
  bool unloaded_ = false;
};

}  // namespace headroom::testing
