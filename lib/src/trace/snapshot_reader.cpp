#include "trace/snapshot_reader.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace headroom::trace {
namespace {

using pickle::Value;

constexpr std::array<std::uint64_t, 1> kThreads{0};  // PyTorch records none

}  // namespace

SnapshotReader::SnapshotReader(std::string name, TraceCompression compression)
    : RecordReader{std::move(name), compression}, fields_{this->name(), names_} {}

std::span<std::uint64_t const> SnapshotReader::thread_ids() const noexcept { return kThreads; }

Result<void> SnapshotReader::begin(OpenedSource source) {
  auto file = Repeatable::from(std::move(source), name());
  if (!file) return tl::unexpected{std::move(file.error())};
  file_ = std::move(*file);

  auto bytes = file_->read_again();
  if (!bytes) return tl::unexpected{std::move(bytes.error())};
  auto reuse = pickle::scan(**bytes, name());
  if (!reuse) return tl::unexpected{std::move(reuse.error())};
  reuse_ = std::move(*reuse);

  bytes = file_->read_again();
  if (!bytes) return tl::unexpected{std::move(bytes.error())};
  SnapshotAnalysis analysis{name(), names_};
  SnapshotWalk walk{std::move(*bytes), name(), reuse_, analysis};
  for (auto more = true; more;) {
    auto const advanced = walk.advance();
    if (!advanced) return tl::unexpected{advanced.error()};
    more = *advanced;
  }
  outline_ = analysis.finish(walk.root());
  for (auto const& [device, outline] : outline_.devices) devices_.push_back(device);

  bytes = file_->read_again();
  if (!bytes) return tl::unexpected{std::move(bytes.error())};
  walk_ = std::make_unique<SnapshotWalk>(std::move(*bytes), name(), reuse_, *this);
  return {};
}

void SnapshotReader::fill_batch() {
  while (walk_ && events().empty() && !stopped()) {
    auto const more = walk_->advance();
    // Before anything else that came of it: entries of another file than the one that was analysed are none.
    if (auto const same = more && *more ? Result<void>{} : file_->unchanged(); !same) {
      stop(same.error());
    } else if (!more) {
      stop(more.error());
    } else if (!*more) {
      begin_devices_to(std::numeric_limits<std::uint64_t>::max());
      walk_.reset();
      file_.reset();
    }
  }
  outline_.state.names_left_out = names_.left_out();
}

/// All that are to be delivered and have not begun: those without an entry have no other place.
void SnapshotReader::begin_devices_to(std::uint64_t last) {
  for (; begun_ < devices_.size() && devices_[begun_] <= last; ++begun_) {
    begin_device(devices_[begun_], outline_.devices.at(devices_[begun_]));
  }
}

void SnapshotReader::begin_device(std::uint32_t device, DeviceOutline& outline) {
  for (auto const& block : outline.from_before) {
    events().push_back({.action = TraceEvent::Action::allocate,
                        .time_us = outline.first_time_us,
                        .pointer = block.address,
                        .bytes = block.bytes,
                        .stream = block.stream,
                        .device = device,
                        .tag = block.tag,
                        .site = block.site,
                        .from_before = true});
  }
  outline.from_before = {};
}

Result<void> SnapshotReader::entry(EntryPlace const& place, Value const& value) {
  if (place.number == 1) {
    begin_devices_to(place.device);
    auto const is_wanted = std::ranges::find(devices_, place.device) != devices_.end();
    current_ = is_wanted ? &outline_.devices.at(place.device) : nullptr;
    current_device_ = place.device;
    time_us_ = 0;
  }
  if (current_ == nullptr) return {};
  auto const fields = fields_.entry(value, place);
  if (!fields) return tl::unexpected{fields.error()};
  return record(*fields, place, value);
}

Result<void> SnapshotReader::record(EntryFields const& fields, EntryPlace const& place, Value const& value) {
  auto const time = fields_.time_us(fields, place, time_us_);
  if (!time) return tl::unexpected{time.error()};
  time_us_ = *time;

  TraceEvent event{.time_us = time_us_, .line = place.number, .device = place.device};
  switch (fields.action) {
    case Word::alloc: event.action = TraceEvent::Action::allocate; break;
    case Word::oom: event.action = TraceEvent::Action::allocate_failure; break;
    case Word::free_completed: event.action = TraceEvent::Action::free; break;
    case Word::free_requested:
      if (current_->completes) return {};
      event.action = TraceEvent::Action::free;
      break;
    default: return {};
  }
  auto const bytes = fields_.number(fields.bytes, Word::size, value, place);
  if (!bytes) return tl::unexpected{bytes.error()};
  event.bytes = *bytes;
  if (event.action != TraceEvent::Action::allocate_failure) {
    auto const address = fields_.number(fields.address, Word::addr, value, place);
    if (!address) return tl::unexpected{address.error()};
    event.pointer = *address;
  }
  auto const stream = fields_.stream(fields, place);
  if (!stream) return tl::unexpected{stream.error()};
  event.stream = *stream;
  event.tag = fields_.tag(fields);
  if (event.action != TraceEvent::Action::free) event.site = fields_.site(fields.frames);
  events().push_back(event);
  return {};
}

Result<std::unique_ptr<RecordReader>> make_snapshot_reader(std::string name, OpenedSource source) {
  auto const compression = source.compression;
  auto reader = std::make_unique<SnapshotReader>(std::move(name), compression);
  if (auto begun = reader->begin(std::move(source)); !begun) return tl::unexpected{std::move(begun.error())};
  return reader;
}

}  // namespace headroom::trace
