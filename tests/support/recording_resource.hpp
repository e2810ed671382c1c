// Resources for tests of decorators: one that writes down every call and answers with figures of its own, one that throws, and one
// that shows a test what others see while a call is under way.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <headroom/device.hpp>
#include <headroom/resource_decorator.hpp>

namespace headroom::test {

/// A bottom resource. Every answer differs from every default, so that a decorator that forgets to pass a call on is seen.
class RecordingResource final : public DeviceResource {
public:
  struct Call {
    std::string what;
    AllocRequest request{};
    Block block{};
    std::uint64_t offset = 0, bytes = 0;
    StreamId stream{};
    UseKind use{};
    ReapMode mode{};
    void const* source = nullptr;
  };
  std::vector<Call> calls;
  bool returns_reported = true;
  std::string uuid = "GPU-recording";

  Result<Block> allocate(AllocRequest const& request) override {
    calls.push_back({.what = "allocate", .request = request});
    return Block{.pointer = reinterpret_cast<void*>(std::uintptr_t{0x10000} + (calls.size() << 12)),
                 .bytes = request.bytes,
                 .alignment = request.alignment,
                 .stream = request.stream,
                 .generation = 11,
                 .device = 3,
                 .tag = request.tag};
  }
  Result<void> deallocate(Block const& block) override {
    calls.push_back({.what = "deallocate", .block = block});
    return {};
  }
  Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override {
    calls.push_back({.what = "fill_zero", .block = block, .offset = offset, .bytes = bytes, .stream = stream});
    return {};
  }
  Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source, StreamId stream) override {
    calls.push_back(
        {.what = "copy_in", .block = block, .offset = offset, .bytes = source.size(), .stream = stream, .source = source.data()});
    return {};
  }
  std::uint64_t bytes_outstanding() const noexcept override { return 4711; }
  std::optional<BudgetSnapshot> budget_snapshot() const noexcept override {
    return BudgetSnapshot{.limit_bytes = 90, .claimed_bytes = 40};
  }
  Result<void> reserve(std::uint64_t bytes) override {
    calls.push_back({.what = "reserve", .bytes = bytes});
    return {};
  }
  void unreserve(std::uint64_t bytes) noexcept override { calls.push_back({.what = "unreserve", .bytes = bytes}); }
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    calls.push_back({.what = "reap_pending", .mode = mode});
    return 77;
  }
  Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override {
    calls.push_back({.what = "trim", .bytes = bytes_to_keep});
    return 66;
  }
  std::uint64_t footprint(std::uint64_t bytes) const noexcept override { return bytes + 55; }
  bool reports_returns() const noexcept override { return returns_reported; }
  MemoryInfo memory_info() const noexcept override { return {.total = 8000, .free = 5000, .slack = 30}; }
  Result<StreamId> create_stream() override { return StreamId{21}; }
  Result<void> destroy_stream(StreamId stream) override { return stream_call("destroy_stream", stream); }
  Result<void> synchronize_stream(StreamId stream) override { return stream_call("synchronize_stream", stream); }
  bool tracks_uses() const noexcept override { return true; }
  Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override {
    return use_call("prepare_use", block, stream, kind);
  }
  Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override {
    return use_call("finish_use", block, stream, kind);
  }
  Result<void> record_use(Block const& block, StreamId stream, UseKind kind) override {
    return use_call("record_use", block, stream, kind);
  }
  std::string_view name() const noexcept override { return "recording"; }
  bool host_accessible() const noexcept override { return true; }
  std::string_view device_uuid() const noexcept override { return uuid; }

private:
  Result<void> stream_call(std::string what, StreamId stream) {
    calls.push_back({.what = std::move(what), .stream = stream});
    return {};
  }
  Result<void> use_call(std::string what, Block const& block, StreamId stream, UseKind kind) {
    calls.push_back({.what = std::move(what), .block = block, .stream = stream, .use = kind});
    return {};
  }
};

/// Nothing but the base: whatever is not passed on is the base's fault.
class PlainDecorator final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "plain";
  using ResourceDecorator::ResourceDecorator;
};

/// Throws instead of answering, as a user's resource may.
class ThrowingDecorator final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "throwing";
  using ResourceDecorator::ResourceDecorator;
  bool throw_on_allocate = false;
  bool throw_on_deallocate = false;
  bool throw_on_reap = false;
  bool throw_a_number = false;

  Result<Block> allocate(AllocRequest const& request) override {
    if (throw_on_allocate) raise();
    return ResourceDecorator::allocate(request);
  }
  Result<void> deallocate(Block const& block) override {
    if (throw_on_deallocate) raise();
    return ResourceDecorator::deallocate(block);
  }
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    if (throw_on_reap) raise();
    return ResourceDecorator::reap_pending(mode);
  }

private:
  void raise() const {
    if (throw_a_number) throw 42;
    throw std::runtime_error("boom");
  }
};

/// Calls the test in the middle of every allocation and free, before the inner resource is asked.
class WatchingDecorator final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "watching";
  using ResourceDecorator::ResourceDecorator;
  std::function<void()> in_allocate = [] {};
  std::function<void()> in_deallocate = [] {};

  Result<Block> allocate(AllocRequest const& request) override {
    in_allocate();
    return ResourceDecorator::allocate(request);
  }
  Result<void> deallocate(Block const& block) override {
    in_deallocate();
    return ResourceDecorator::deallocate(block);
  }
};

}  // namespace headroom::test
