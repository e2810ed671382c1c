// What a TorchWriter writes: the entries of each device's trace, then the state at the end.
#include <algorithm>
#include <string_view>

#include "dump/torch_frames.hpp"
#include "dump/torch_writer.hpp"

namespace headroom::dump {
namespace {

constexpr std::uint64_t kMostSmall = std::uint64_t{1} << 20U;  // bytes of a segment that PyTorch calls small

}  // namespace

// Lists are written in the order of the devices, since a pickle cannot go back to one.
void TorchWriter::take(std::uint32_t device, Record const& record) {
  open_first();
  if (is_history_ && device > open_) advance_to(device);
  if (device == open_) return write(record);
  if (device < open_) {
    ++entries_left_out_;  // a history that goes back to a device: none does
    return;
  }
  if (kept_.size() <= device) kept_.resize(device + std::size_t{1});
  kept_[device].push_back(record);
}

void TorchWriter::open_first() {
  if (is_open_) return;
  for (open_ = 0; open_ < devices_.first(); ++open_) {
    pickle_.begin_list();
    pickle_.end_list();
  }
  open_trace();
}

void TorchWriter::open_trace() {
  pickle_.begin_list();
  is_open_ = true;
  has_entries_ = false;
  last_us_ = 0;
  if (open_ >= kept_.size()) return;
  for (auto const& record : kept_[open_]) write(record);
  kept_[open_] = {};
}

void TorchWriter::close_trace() {
  if (has_entries_) {
    pickle_.begin_dict();
    pickle_.member("action", "snapshot");
    pickle_.member("addr", 0U);
    pickle_.member("size", 0U);
    pickle_.member("stream", 0U);
    pickle_.member("time_us", std::max(last_us_, end_us_));
    write_frames(pickle_, {});
    pickle_.member("category", "unknown");
    pickle_.end_dict();
  }
  pickle_.end_list();
  is_open_ = false;
}

void TorchWriter::advance_to(std::uint32_t device) {
  while (open_ < device) {
    close_trace();
    if (is_history_) devices_.close(open_);
    ++open_;
    open_trace();
  }
}

void TorchWriter::write(Record const& record) {
  has_entries_ = true;
  last_us_ = record.time_us;
  switch (record.kind) {
    case Record::Kind::allocate:
      write_entry("segment_alloc", record);
      write_entry("alloc", record);
      return;
    case Record::Kind::free:
      write_entry("free_requested", record);
      write_entry("free_completed", record);
      write_entry("segment_free", record);
      return;
    case Record::Kind::refusal: write_entry("oom", record); return;
  }
}

void TorchWriter::write_entry(std::string_view action, Record const& record) {
  ++written_;
  bool const is_segment = action.starts_with("segment");
  pickle_.begin_dict();
  pickle_.member("action", action);
  if (record.kind == Record::Kind::refusal) {
    pickle_.member("device_free", record.device_free);
  } else {
    pickle_.member("addr", record.address);
  }
  pickle_.member("size", record.bytes);
  pickle_.member("stream", record.stream);
  pickle_.member("time_us", record.time_us);
  pickle_.member("user_metadata", std::string_view{managers_[record.ledger].name});
  write_frames(pickle_, names_->stack(record.site));
  if (!is_segment) pickle_.member("category", category(record.tag));
  pickle_.end_dict();
}

void TorchWriter::write_annotations() {
  pickle_.key("external_annotations");
  pickle_.begin_list();
  for (auto const& annotation : annotations_) {
    auto const device =
        is_history_ ? devices_.place_of_ordinal(annotation.device) : static_cast<std::uint32_t>(annotation.device);
    if (!device) continue;  // of one that was not asked for
    pickle_.begin_dict();
    pickle_.member("stage", annotation.begins ? "START" : "END");
    pickle_.member("name", annotation.name);
    pickle_.member("device", *device);
    pickle_.member("time_us", annotation.time_us);
    pickle_.end_dict();
  }
  pickle_.end_list();
}

void TorchWriter::write_segments() {
  pickle_.key("segments");
  pickle_.begin_list();
  for (std::uint32_t ledger = 0; ledger < managers_.size(); ++ledger) {
    // What nobody saw, and was there all along.
    auto& manager = managers_[ledger];
    if (manager.allocates || manager.rest == 0) continue;
    auto const place = places_of(ledger).add_elsewhere({.bytes = manager.rest, .ledger = ledger, .tag = kUnattributed});
    if (!place) ++entries_left_out_;
  }
  for (std::uint32_t device = 0; device < places_.size(); ++device) {
    for (auto const& [place, block] : places_[device].blocks()) write_segment(device, place, block);
  }
  pickle_.end_list();
}

void TorchWriter::write_segment(std::uint32_t device, std::uint64_t place, TorchPlaced const& block) {
  auto const stack = names_->stack(block.site);
  std::string_view const manager = managers_[block.ledger].name;
  pickle_.begin_dict();
  pickle_.member("device", device);
  pickle_.member("address", place);
  pickle_.member("total_size", block.bytes);
  pickle_.member("allocated_size", block.bytes);
  pickle_.member("active_size", block.bytes);
  pickle_.member("requested_size", block.bytes);
  pickle_.member("stream", block.stream);
  pickle_.member("segment_type", block.bytes <= kMostSmall ? "small" : "large");
  pickle_.key("segment_pool_id");
  pickle_.pair(0, 0);
  pickle_.member("is_expandable", false);
  pickle_.member("user_metadata", manager);
  write_frames(pickle_, stack);
  pickle_.key("blocks");
  pickle_.begin_list();
  pickle_.begin_dict();
  pickle_.member("address", place);
  pickle_.member("size", block.bytes);
  pickle_.member("requested_size", block.bytes);
  pickle_.member("state", "active_allocated");
  pickle_.member("user_metadata", manager);
  write_frames(pickle_, stack);
  pickle_.member("category", category(block.tag));
  pickle_.end_dict();
  pickle_.end_list();
  pickle_.end_dict();
}

void TorchWriter::write_origin(TimelineEnd const& end) {
  std::uint64_t moved = 0, unattributed = 0;
  for (auto const& places : places_) moved += places.moved();
  for (auto const& manager : managers_) unattributed += manager.rest;
  pickle_.key("headroom");
  pickle_.begin_dict();
  pickle_.member("source", std::string_view{title_});
  pickle_.member("program", std::string_view{program_});
  pickle_.member("pid", pid_);
  pickle_.key("devices");
  pickle_.begin_list();
  for (auto const& device : devices_.devices()) {
    pickle_.begin_dict();
    pickle_.member("index", device.place);
    pickle_.member("name", std::string_view{device.name});
    pickle_.member("uuid", std::string_view{device.uuid});
    pickle_.key("managers");
    pickle_.begin_list();
    for (auto const& manager : device.managers) pickle_.value(std::string_view{manager});
    pickle_.end_list();
    pickle_.end_dict();
  }
  pickle_.end_list();
  pickle_.member("events_lost", end.events_lost);
  pickle_.member("unattributed_bytes", unattributed);
  pickle_.member("moved_blocks", moved);
  pickle_.member("entries_left_out", entries_left_out_);
  pickle_.member("annotations_left_out", annotations_left_out_);
  pickle_.end_dict();
}

}  // namespace headroom::dump
