#include <headroom/resource_decorator.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace headroom {
namespace {

tl::unexpected<Error> wrong_stack(std::string_view decorator, std::string const& found, std::string const& expected) {
  return fail(ErrorKind::invalid_argument, Layer::request,
              "'" + std::string(decorator) + "' cannot stand here: found " + found + ", expected " + expected);
}

}  // namespace

Result<InnerResource> InnerResource::check(std::shared_ptr<DeviceResource> resource, std::string_view decorator) {
  if (resource == nullptr) return wrong_stack(decorator, "no inner resource", "one to stand on");
  std::vector<DeviceResource const*> layers;
  for (DeviceResource const* at = resource.get(); at != nullptr; at = at->inner()) {
    if (std::ranges::find(layers, at) != layers.end()) {
      return wrong_stack(decorator, "'" + std::string(at->name()) + "' below itself", "each resource once in a stack");
    }
    layers.push_back(at);
    if (layers.size() == kDeepestStack) {
      return wrong_stack(decorator, std::to_string(kDeepestStack) + " layers or more below it",
                         "at most " + std::to_string(kDeepestStack - 1));
    }
  }
  return InnerResource(std::move(resource));
}

DeviceResource& bottom_of(DeviceResource& top) noexcept {
  DeviceResource* at = &top;
  // Stacks of decorators were checked when they were made; a resource of the user's own that turns in a circle ends somewhere.
  for (std::size_t layer = 0; layer < kDeepestStack && at->inner() != nullptr; ++layer) at = at->inner();
  return *at;
}

std::shared_ptr<DeviceResource> shared_bottom_of(std::shared_ptr<DeviceResource> top) noexcept {
  for (std::size_t layer = 0; layer < kDeepestStack; ++layer) {
    auto const* const decorator = dynamic_cast<ResourceDecorator const*>(top.get());
    if (decorator == nullptr) break;
    auto below = decorator->shared_inner();  // before its owner lets go of it
    top = std::move(below);
  }
  return top;
}

Result<Block> ResourceDecorator::allocate(AllocRequest const& request) { return inner()->allocate(request); }

Result<void> ResourceDecorator::deallocate(Block const& block) { return inner()->deallocate(block); }

Result<void> ResourceDecorator::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  return inner()->fill_zero(block, offset, bytes, stream);
}

Result<void> ResourceDecorator::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                        StreamId stream) {
  return inner()->copy_in(block, offset, source, stream);
}

std::uint64_t ResourceDecorator::bytes_outstanding() const noexcept { return inner()->bytes_outstanding(); }
std::optional<BudgetSnapshot> ResourceDecorator::budget_snapshot() const noexcept { return inner()->budget_snapshot(); }
Result<void> ResourceDecorator::reserve(std::uint64_t bytes) { return inner()->reserve(bytes); }
void ResourceDecorator::unreserve(std::uint64_t bytes) noexcept { inner()->unreserve(bytes); }
Result<std::uint64_t> ResourceDecorator::reap_pending(ReapMode mode) { return inner()->reap_pending(mode); }
Result<std::uint64_t> ResourceDecorator::trim(std::uint64_t bytes_to_keep) { return inner()->trim(bytes_to_keep); }
std::uint64_t ResourceDecorator::footprint(std::uint64_t bytes) const noexcept { return inner()->footprint(bytes); }
bool ResourceDecorator::reports_returns() const noexcept { return inner()->reports_returns(); }
MemoryInfo ResourceDecorator::memory_info() const noexcept { return inner()->memory_info(); }
Result<StreamId> ResourceDecorator::create_stream() { return inner()->create_stream(); }
Result<void> ResourceDecorator::destroy_stream(StreamId stream) { return inner()->destroy_stream(stream); }
Result<void> ResourceDecorator::synchronize_stream(StreamId stream) { return inner()->synchronize_stream(stream); }
bool ResourceDecorator::tracks_uses() const noexcept { return inner()->tracks_uses(); }

Result<void> ResourceDecorator::prepare_use(Block const& block, StreamId stream, UseKind kind) {
  return inner()->prepare_use(block, stream, kind);
}

Result<void> ResourceDecorator::finish_use(Block const& block, StreamId stream, UseKind kind) {
  return inner()->finish_use(block, stream, kind);
}

Result<void> ResourceDecorator::record_use(Block const& block, StreamId stream, UseKind kind) {
  return inner()->record_use(block, stream, kind);
}

std::string_view ResourceDecorator::name() const noexcept { return inner()->name(); }
bool ResourceDecorator::host_accessible() const noexcept { return inner()->host_accessible(); }
DeviceResource* ResourceDecorator::inner() const noexcept { return shared_inner().get(); }
std::string_view ResourceDecorator::device_uuid() const noexcept { return inner()->device_uuid(); }

}  // namespace headroom
