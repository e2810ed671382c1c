// Making host devices, and what can be asked of them. Memory is handed out in host_allocate.cpp.
#include <headroom/host_resource.hpp>

#include <bit>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/flight_format.hpp>

#include "device/host_state.hpp"

namespace headroom {
namespace {

static_assert(kLargestRequest == flight::kBytesMask, "a request that a resource accepts must fit a ledger word");

constexpr std::uint64_t kLargestTotal = kLargestRequest + 1;
constexpr std::uint64_t kLargestGranularity = std::uint64_t{1} << 30;
// Alignments up to a huge page cost nothing when the region starts at one.
constexpr std::uint64_t kRegionAlignment = std::uint64_t{2} << 20;

// Written and read by whoever makes a device; relaxed, only distinctness matters.
std::atomic<std::uint64_t> next_salt{1};

FirstFit::Range usable_range(HostOptions const& options, std::uint64_t start, unsigned shift) noexcept {
  auto const overhead = (options.context_overhead_bytes + options.granularity_bytes - 1) >> shift;
  auto const total = options.total_bytes >> shift;
  return {(start >> shift) + overhead, total > overhead ? total - overhead : 0};
}

std::optional<std::string> wrong_option(HostOptions const& options) {
  auto const size = [](char const* name, std::uint64_t value, std::string const& expected) {
    return std::string(name) + " is " + std::to_string(value) + ", expected " + expected;
  };
  if (!std::has_single_bit(options.granularity_bytes) || options.granularity_bytes < kMinimumAlignment ||
      options.granularity_bytes > kLargestGranularity) {
    return size("granularity_bytes", options.granularity_bytes, "a power of two from 256 to 1 GiB");
  }
  if (options.total_bytes < options.granularity_bytes || options.total_bytes > kLargestTotal) {
    return size("total_bytes", options.total_bytes, "at least granularity_bytes and at most 16 TiB");
  }
  if (options.context_overhead_bytes > options.total_bytes) {
    return size("context_overhead_bytes", options.context_overhead_bytes,
                "at most total_bytes, " + format_bytes(options.total_bytes));
  }
  for (auto const& [name, value] : {std::pair{"free_delay", options.free_delay},
                                    {"allocate_latency", options.allocate_latency},
                                    {"free_latency", options.free_latency}}) {
    if (value.count() < 0) return std::string(name) + " is " + std::to_string(value.count()) + " ns, expected 0 or more";
  }
  return std::nullopt;
}

}  // namespace

HostResource::State::State(HostOptions const& given, HostRegion reserved)
    : options(given),
      region(std::move(reserved)),
      granule_shift(static_cast<unsigned>(std::countr_zero(given.granularity_bytes))),
      usable(usable_range(given, region.start(), granule_shift)),
      salt(next_salt.fetch_add(1, std::memory_order_relaxed)),
      pool(usable, given.release_threshold_bytes >> granule_shift) {
  publish();
}

HostResource::HostResource(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

HostResource::~HostResource() {
  // Nobody calls a resource that is being destroyed: no lock, and whoever counts these bytes learns that the device is gone.
  while (auto const* const next = state_->streams.next_pending()) {
    if (next->returns_to != nullptr) next->returns_to->returned(next->bytes);
    state_->streams.pop_pending();
  }
}

Result<std::shared_ptr<HostResource>> HostResource::create(HostOptions const& options) {
  if (auto problem = wrong_option(options)) return fail(ErrorKind::invalid_argument, Layer::request, "HostOptions: " + *problem);
  auto region =
      HostRegion::make(options.total_bytes, std::max(options.granularity_bytes, kRegionAlignment), options.touch_memory);
  if (!region) return tl::make_unexpected(std::move(region.error()));
  // The constructor is private, so make_shared cannot call it.
  return std::shared_ptr<HostResource>(new HostResource(std::make_unique<State>(options, *std::move(region))));
}

void HostResource::State::publish() noexcept {
  outstanding_bytes.store(live_bytes + pending_bytes, std::memory_order_relaxed);
  device_free_bytes.store(pool.holes().total() << granule_shift, std::memory_order_relaxed);
}

HostUsage HostResource::State::usage() const noexcept {
  auto const taken = usable.length - pool.holes().total() - pool.cache().total();
  return {.live = live_bytes,
          .pending = pending_bytes,
          .rounding = (taken << granule_shift) - live_bytes - pending_bytes,
          .cached = pool.cache().total() << granule_shift,
          .free_on_device = pool.holes().total() << granule_shift,
          .largest_hole = pool.holes().largest() << granule_shift,
          .holes = pool.holes().ranges(),
          .live_blocks = blocks.size(),
          .pending_frees = streams.pending_frees(),
          .tracked_blocks = uses.tracked_blocks()};
}

double HostUsage::fragmentation() const noexcept {
  if (free_on_device == 0) return 0.0;
  return 1.0 - static_cast<double>(largest_hole) / static_cast<double>(free_on_device);
}

std::uint64_t HostResource::bytes_outstanding() const noexcept {
  return state_->outstanding_bytes.load(std::memory_order_relaxed);
}

MemoryInfo HostResource::memory_info() const noexcept {
  auto const free = state_->device_free_bytes.load(std::memory_order_relaxed);
  // Two figures of two instants while others are at work: never below 0 all the same.
  auto const taken = (state_->usable.length << state_->granule_shift) - free;
  auto const handed_out = bytes_outstanding();
  return {.total = state_->options.total_bytes, .free = free, .slack = taken > handed_out ? taken - handed_out : 0};
}

std::string_view HostResource::name() const noexcept { return "host"; }
bool HostResource::host_accessible() const noexcept { return state_->options.touch_memory; }
HostOptions const& HostResource::options() const noexcept { return state_->options; }
FaultPlan& HostResource::faults() noexcept { return state_->faults; }

HostUsage HostResource::usage() const {
  std::lock_guard const lock(state_->mutex);
  return state_->usage();
}

std::uint64_t HostResource::largest_free_block() const {
  std::lock_guard const lock(state_->mutex);
  return std::max(state_->pool.holes().largest(), state_->pool.cache().largest()) << state_->granule_shift;
}

std::uint64_t HostResource::footprint(std::uint64_t bytes) const noexcept {
  return bytes > kLargestRequest ? bytes : state_->granules(bytes) << state_->granule_shift;
}

Result<std::uint64_t> HostResource::trim(std::uint64_t bytes_to_keep) {
  std::lock_guard const lock(state_->mutex);
  auto const keep = bytes_to_keep > kLargestRequest ? UINT64_MAX : state_->granules(bytes_to_keep);
  auto const moved = state_->pool.trim(keep);
  state_->publish();
  return moved << state_->granule_shift;
}

Result<Device> host_device(HostOptions const& options) { return HostResource::create(options).and_then(host_device_over); }

Result<Device> host_device_over(std::shared_ptr<HostResource> resource) {
  auto const ordinal = resource == nullptr ? 0 : resource->options().ordinal;
  return Device::custom("host", std::move(resource), ordinal, {}, DeviceKind::host);
}

}  // namespace headroom
