#include <atomic>
#include <string>

#include <headroom/device.hpp>

#include "base/checked.hpp"

// What a resource does that implements only allocate and deallocate: it refuses loudly, or says that it does not know.
namespace headroom {
namespace {

// Written and read by whoever makes a resource; relaxed, only distinctness matters.
std::atomic<std::uint64_t> next_instance{1};

tl::unexpected<Error> cannot(DeviceResource const& resource, std::string_view what) {
  return fail(ErrorKind::unsupported, Layer::resource,
              "the resource '" + std::string(resource.name()) + "' cannot " + std::string(what));
}

}  // namespace

DeviceResource::DeviceResource() noexcept : instance_(next_instance.fetch_add(1, std::memory_order_relaxed)) {}

Result<void> DeviceResource::fill_zero(Block const&, std::uint64_t, std::uint64_t, StreamId) {
  return cannot(*this, "fill memory");
}

Result<void> DeviceResource::copy_in(Block const&, std::uint64_t, std::span<const std::byte>, StreamId) {
  return cannot(*this, "copy host memory in");
}

std::optional<BudgetSnapshot> DeviceResource::budget_snapshot() const noexcept { return std::nullopt; }

Result<void> DeviceResource::reserve(std::uint64_t) { return cannot(*this, "reserve bytes: it has no finite budget"); }

void DeviceResource::unreserve(std::uint64_t) noexcept {}

Result<std::uint64_t> DeviceResource::reap_pending(ReapMode) { return 0; }

Result<std::uint64_t> DeviceResource::trim(std::uint64_t) { return 0; }

std::uint64_t DeviceResource::footprint(std::uint64_t bytes) const noexcept {
  return checked_round_up(bytes, kMinimumAlignment).value_or(kMaxUint64);
}

bool DeviceResource::reports_returns() const noexcept { return false; }

MemoryInfo DeviceResource::memory_info() const noexcept { return {}; }

bool DeviceResource::tracks_uses() const noexcept { return false; }

Result<StreamId> DeviceResource::create_stream() { return cannot(*this, "create streams"); }

Result<void> DeviceResource::destroy_stream(StreamId) { return cannot(*this, "destroy streams"); }

Result<void> DeviceResource::synchronize_stream(StreamId) { return cannot(*this, "synchronise streams"); }

Result<void> DeviceResource::prepare_use(Block const&, StreamId, UseKind) { return cannot(*this, "track uses"); }

Result<void> DeviceResource::finish_use(Block const&, StreamId, UseKind) { return cannot(*this, "track uses"); }

Result<void> DeviceResource::record_use(Block const&, StreamId, UseKind) { return cannot(*this, "track uses"); }

bool DeviceResource::host_accessible() const noexcept { return false; }

DeviceResource* DeviceResource::inner() const noexcept { return nullptr; }

std::string_view DeviceResource::device_uuid() const noexcept { return {}; }

}  // namespace headroom
