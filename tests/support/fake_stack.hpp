// A runtime's stack for tests: a finite budget that can be reserved of, uses written down as they come, and failures on demand.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <headroom/device.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/runtime.hpp>

namespace headroom::test {

struct FakeStackOptions {
  std::optional<std::uint64_t> limit{};  ///< absent: no budget, nothing can be reserved
  bool tracks_uses = true;
};

class FakeStack final : public DeviceResource {
public:
  struct Use {
    char step;  ///< p: prepare, f: finish
    void* pointer;
    std::uint64_t stream;
    UseKind kind;
    friend bool operator==(Use const&, Use const&) = default;
  };
  struct Figures {
    std::uint64_t claimed = 0, unspent = 0;
    int reserves = 0, unreserves = 0, allocates = 0, deallocates = 0, reserved_requests = 0;
  };

  FakeStack(std::shared_ptr<DeviceResource> below, FakeStackOptions options) : below_{std::move(below)}, options_{options} {}

  Result<Block> allocate(AllocRequest const& request) override {
    {
      const std::scoped_lock lock{mutex_};
      ++figures_.allocates;
      if (request.reserved) ++figures_.reserved_requests;
      if (request.reserved && options_.limit) {
        figures_.unspent -= request.bytes;
      } else {
        if (options_.limit && request.bytes > *options_.limit - figures_.claimed) return over(request.bytes);
        figures_.claimed += request.bytes;
      }
    }
    auto block = below_->allocate(request);
    if (block) return block;
    const std::scoped_lock lock{mutex_};
    if (request.reserved && options_.limit) {
      figures_.unspent += request.bytes;
    } else {
      figures_.claimed -= request.bytes;
    }
    return block;
  }
  Result<void> deallocate(Block const& block) override {
    auto freed = below_->deallocate(block);
    const std::scoped_lock lock{mutex_};
    ++figures_.deallocates;
    if (freed) figures_.claimed -= block.bytes;
    return freed;
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return below_->bytes_outstanding(); }
  [[nodiscard]] std::optional<BudgetSnapshot> budget_snapshot() const noexcept override {
    const std::scoped_lock lock{mutex_};
    if (!options_.limit) return std::nullopt;
    return BudgetSnapshot{.limit_bytes = *options_.limit, .claimed_bytes = figures_.claimed};
  }
  Result<void> reserve(std::uint64_t bytes) override {
    const std::scoped_lock lock{mutex_};
    if (!options_.limit) return DeviceResource::reserve(bytes);
    ++figures_.reserves;
    if (bytes > *options_.limit - figures_.claimed) return over(bytes);
    figures_.claimed += bytes;
    figures_.unspent += bytes;
    return {};
  }
  void unreserve(std::uint64_t bytes) noexcept override {
    const std::scoped_lock lock{mutex_};
    ++figures_.unreserves;
    figures_.claimed -= bytes;
    figures_.unspent -= bytes;
  }
  Result<std::uint64_t> reap_pending(ReapMode mode) override { return below_->reap_pending(mode); }
  [[nodiscard]] MemoryInfo memory_info() const noexcept override { return below_->memory_info(); }
  Result<StreamId> create_stream() override { return below_->create_stream(); }
  Result<void> destroy_stream(StreamId stream) override { return below_->destroy_stream(stream); }
  [[nodiscard]] bool tracks_uses() const noexcept override { return options_.tracks_uses; }
  Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override { return use('p', block, stream, kind); }
  Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override { return use('f', block, stream, kind); }
  [[nodiscard]] std::string_view name() const noexcept override { return "fake-stack"; }
  [[nodiscard]] bool host_accessible() const noexcept override { return below_->host_accessible(); }
  [[nodiscard]] DeviceResource* inner() const noexcept override { return below_.get(); }

  [[nodiscard]] Figures figures() const {
    const std::scoped_lock lock{mutex_};
    return figures_;
  }
  [[nodiscard]] std::vector<Use> uses() const {
    const std::scoped_lock lock{mutex_};
    return uses_;
  }
  /// The next use of that step fails, once for each time that this is called.
  void fail_use(char step) {
    const std::scoped_lock lock{mutex_};
    failing_ += step;
  }

private:
  // Under the mutex.
  [[nodiscard]] tl::unexpected<Error> over(std::uint64_t bytes) const {
    Error error = make_error(ErrorKind::over_budget, Layer::device_account, {});
    error.requested = bytes;
    error.current = figures_.claimed;
    error.required = figures_.claimed + bytes;
    error.limit = options_.limit;
    return tl::unexpected{std::move(error)};
  }
  Result<void> use(char step, Block const& block, StreamId stream, UseKind kind) {
    const std::scoped_lock lock{mutex_};
    if (const auto at = failing_.find(step); at != std::string::npos) {
      failing_.erase(at, 1);
      return fail(ErrorKind::driver, Layer::driver, "a use that fails on purpose");
    }
    uses_.push_back({step, block.pointer, stream.value, kind});
    return {};
  }

  std::shared_ptr<DeviceResource> const below_;
  FakeStackOptions const options_;
  mutable std::mutex mutex_;
  Figures figures_;
  std::vector<Use> uses_;
  std::string failing_;
};

/// A host device, a fake stack on it, a runtime of both.
struct FakeRuntime {
  explicit FakeRuntime(FakeStackOptions options = {}, HostOptions host_options = {.touch_memory = false})
      : host{HostResource::create(host_options).value()},
        device{host_device_over(host).value()},
        stack{std::make_shared<FakeStack>(host, options)},
        runtime{DeviceRuntime::create(device, {.stack = stack}).value()} {}
  [[nodiscard]] GpuMemoryManager manager(MemoryBudget budget) const {
    return GpuMemoryManager::with_runtime(device, budget, runtime).value();
  }

  std::shared_ptr<HostResource> host;
  Device device;
  std::shared_ptr<FakeStack> stack;
  DeviceRuntime runtime;
};

}  // namespace headroom::test
