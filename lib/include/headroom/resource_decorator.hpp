// headroom: the base of every resource that stands on another one.
// Layer: device
//
// A ResourceDecorator owns its inner resource and passes every call on unchanged: bytes, alignment, stream, tag, `reserved` and
// `returns_to`, and every answer. Derive from it, override what your layer changes, and call the base for the rest:
//
//   class Slow final : public ResourceDecorator {
//   public:
//     static constexpr std::string_view kName = "slow";
//     explicit Slow(InnerResource inner) noexcept : ResourceDecorator(std::move(inner)) {}
//     Result<Block> allocate(AllocRequest const& request) override { pause(); return ResourceDecorator::allocate(request); }
//     std::string_view name() const noexcept override { return kName; }
//   };
//   auto slow = decorate<Slow>(host);  // Result<std::shared_ptr<Slow>>
//
// The stack below is checked before a decorator exists: a constructor takes an InnerResource, and only the check makes one.
//
// Ownership: a decorator shares its inner resource; blocks keep neither alive.
// Thread safety: as DeviceResource; a decorator adds no lock. Cost: one virtual call a layer.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

#include <headroom/device.hpp>

namespace headroom {

/// Most layers of one stack, the resource at its bottom included.
inline constexpr std::size_t kDeepestStack = 32;

/// A resource that has passed the checks of a stack. Moved into the decorator that will own it.
class InnerResource {
public:
  /// Looks at `resource` and everything below it. `decorator` is who wants to stand on it, for the message.
  /// Errors: invalid_argument (none at all; a circle; more than kDeepestStack layers with the decorator).
  [[nodiscard]] static Result<InnerResource> check(std::shared_ptr<DeviceResource> resource, std::string_view decorator);

  [[nodiscard]] std::shared_ptr<DeviceResource> const& resource() const noexcept { return resource_; }

private:
  explicit InnerResource(std::shared_ptr<DeviceResource> resource) noexcept : resource_(std::move(resource)) {}
  std::shared_ptr<DeviceResource> resource_;
};

class ResourceDecorator : public DeviceResource {
public:
  explicit ResourceDecorator(InnerResource inner) noexcept : inner_(std::move(inner)) {}

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  [[nodiscard]] Result<void> deallocate(Block const& block) override;
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override;
  [[nodiscard]] std::optional<BudgetSnapshot> budget_snapshot() const noexcept override;
  [[nodiscard]] Result<void> reserve(std::uint64_t bytes) override;
  void unreserve(std::uint64_t bytes) noexcept override;
  [[nodiscard]] Result<std::uint64_t> reap_pending(ReapMode mode) override;
  [[nodiscard]] Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override;
  [[nodiscard]] std::uint64_t footprint(std::uint64_t bytes) const noexcept override;
  [[nodiscard]] bool reports_returns() const noexcept override;
  [[nodiscard]] MemoryInfo memory_info() const noexcept override;
  [[nodiscard]] Result<StreamId> create_stream() override;
  [[nodiscard]] Result<void> destroy_stream(StreamId stream) override;
  [[nodiscard]] Result<void> synchronize_stream(StreamId stream) override;
  [[nodiscard]] bool tracks_uses() const noexcept override;
  [[nodiscard]] Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> record_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] std::string_view name() const noexcept override;  ///< the inner one's, unless a decorator has its own
  [[nodiscard]] bool host_accessible() const noexcept override;
  [[nodiscard]] DeviceResource* inner() const noexcept final;
  [[nodiscard]] std::string_view device_uuid() const noexcept override;

protected:
  [[nodiscard]] std::shared_ptr<DeviceResource> const& shared_inner() const noexcept { return inner_.resource(); }

private:
  friend std::shared_ptr<DeviceResource> shared_bottom_of(std::shared_ptr<DeviceResource> top) noexcept;
  InnerResource const inner_;
};

/// The resource at the bottom of a stack: `top` itself when it decorates nothing.
[[nodiscard]] DeviceResource& bottom_of(DeviceResource& top) noexcept;
/// The same with its owner, as far as ResourceDecorators lead there; a resource that has an inner one in a way of its own ends the search.
[[nodiscard]] std::shared_ptr<DeviceResource> shared_bottom_of(std::shared_ptr<DeviceResource> top) noexcept;

/// A decorator on `inner`; further arguments go to its constructor. Errors: as InnerResource::check.
template <std::derived_from<ResourceDecorator> Decorator, class... Arguments>
[[nodiscard]] Result<std::shared_ptr<Decorator>> decorate(std::shared_ptr<DeviceResource> inner, Arguments&&... arguments) {
  auto checked = InnerResource::check(std::move(inner), Decorator::kName);
  if (!checked) return tl::make_unexpected(std::move(checked.error()));
  return std::make_shared<Decorator>(*std::move(checked), std::forward<Arguments>(arguments)...);
}

}  // namespace headroom
