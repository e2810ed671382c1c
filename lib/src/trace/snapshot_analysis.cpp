#include "trace/snapshot_analysis.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "base/utf8.hpp"

namespace headroom::trace {
namespace {

using pickle::Type;
using pickle::Value;

constexpr std::size_t kMostSettingsBytes = 4096;

[[nodiscard]] std::string settings_of(Value const& root) {
  auto const* const settings = root.find("allocator_settings");
  if (settings == nullptr) return {};
  // Its name has lost the CUDA in the meantime.
  for (auto const* const key : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (auto const* const text = settings->find(key); text != nullptr && text->is(Type::text)) {
      return valid_utf8(text->text(), kMostSettingsBytes);
    }
  }
  return {};
}

}  // namespace

std::vector<FromBefore> Beginning::take() {
  std::ranges::sort(found_, {}, &FromBefore::address);  // each address once
  addresses_ = {};
  return std::exchange(found_, {});
}

Result<FromBefore> SnapshotAnalysis::block_of(EntryFields const& fields, EntryPlace const& place, Value const& value) {
  auto const address = fields_.number(fields.address, Word::addr, value, place);
  if (!address) return tl::unexpected{address.error()};
  auto const bytes = fields_.number(fields.bytes, Word::size, value, place);
  if (!bytes) return tl::unexpected{bytes.error()};
  auto const stream = fields_.stream(fields, place);
  if (!stream) return tl::unexpected{stream.error()};
  return FromBefore{.address = *address, .bytes = *bytes, .stream = *stream};
}

Result<void> SnapshotAnalysis::entry(EntryPlace const& place, Value const& value) {
  auto const fields = fields_.entry(value, place);
  if (!fields) return tl::unexpected{fields.error()};
  ++state_.entries;
  auto& device = devices_[place.device];
  if (!std::exchange(device.has_entries, true)) {
    auto const time = fields_.time_us(*fields, place, 0);
    if (!time) return tl::unexpected{time.error()};
    device.first_time_us = *time;
  }
  return book(*fields, place, value, device);
}

Result<void> SnapshotAnalysis::book(EntryFields const& fields, EntryPlace const& place, Value const& value, Device& device) {
  auto const is_free = fields.action == Word::free_requested || fields.action == Word::free_completed;
  if (is_free || fields.action == Word::alloc) {
    auto block = block_of(fields, place, value);
    if (!block) return tl::unexpected{std::move(block.error())};
    // What user_metadata says is about the moment of the entry, which is not the one of the allocation.
    if (is_free) block->tag = fields_.tag({.category = fields.category});
    if (fields.action == Word::alloc) {
      device.has_allocations = true;
      device.beginning.allocate(block->address);
    } else if (fields.action == Word::free_requested) {
      ++state_.free_requests;
      device.has_free_requests = true;
      device.beginning.free_requested(*block);
    } else {
      device.beginning.free_completed(*block);
    }
    return {};
  }
  switch (fields.action) {
    case Word::oom: {
      device.has_allocations = true;
      auto const bytes = fields_.number(fields.bytes, Word::size, value, place);
      if (!bytes) return tl::unexpected{bytes.error()};
      return {};
    }
    case Word::segment_alloc:
    case Word::segment_map: ++state_.segment_allocations; return {};
    case Word::segment_free:
    case Word::segment_unmap: ++state_.segment_frees; return {};
    case Word::snapshot: return {};
    default: ++state_.unknown_actions; return {};
  }
}

Result<void> SnapshotAnalysis::segment(std::uint64_t number, Value const& value) {
  auto segment = fields_.segment(value, number);
  if (!segment) return tl::unexpected{std::move(segment.error())};
  state_.segments.push_back(std::move(*segment));
  return {};
}

Result<void> SnapshotAnalysis::annotation(Value const& value) {
  auto annotation = SnapshotFields::annotation(value);
  if (!annotation || state_.annotations.size() == TorchSnapshot::kMostAnnotations) {
    ++state_.annotations_left_out;
    return {};
  }
  state_.annotations.push_back(std::move(*annotation));
  return {};
}

void SnapshotAnalysis::find_from_before(TorchSegment const& segment, TorchBlock const& block) {
  auto const found = devices_[segment.device].beginning.beginning().active({.address = block.address,
                                                                            .bytes = block.requested_bytes.value_or(block.bytes),
                                                                            .stream = segment.stream,
                                                                            .tag = block.tag,
                                                                            .site = block.site});
  if (found == Beginning::Active::from_before && !block.requested_bytes) ++state_.rounded_blocks;
  // Of a free that is asked for and not yet over, the trace may well have the request.
  if (found == Beginning::Active::unexplained && block.state == TorchBlockState::active_allocated) ++state_.unexplained_blocks;
}

SnapshotOutline SnapshotAnalysis::finish(Value const& root) {
  std::ranges::sort(state_.segments, {},
                    [](TorchSegment const& segment) { return std::tuple{segment.device, segment.address, segment.bytes}; });
  for (auto const& segment : state_.segments) {
    for (auto const& block : segment.blocks) {
      if (block.state != TorchBlockState::inactive) find_from_before(segment, block);
    }
  }
  state_.allocator_settings = settings_of(root);
  SnapshotOutline outline;
  for (auto& [number, device] : devices_) {
    auto from_before = device.beginning.beginning().take();
    auto const completes = device.beginning.completes();
    for (auto const& block : from_before) {
      ++state_.from_before_allocations;
      state_.from_before_bytes = checked_add(state_.from_before_bytes, block.bytes).value_or(kMaxUint64);
    }
    auto const has_records = device.has_allocations || completes || device.has_free_requests || !from_before.empty();
    if (!has_records) continue;
    state_.beginnings.push_back({.device = number, .time_us = device.first_time_us});
    outline.devices.emplace(
        number,
        DeviceOutline{.completes = completes, .first_time_us = device.first_time_us, .from_before = std::move(from_before)});
  }
  devices_.clear();
  outline.state = std::exchange(state_, {});
  return outline;
}

}  // namespace headroom::trace
