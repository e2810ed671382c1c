#include "dump/torch_writer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "dump/torch_frames.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;
using flight::RefusalTail;

constexpr std::uint64_t kNsPerUs = 1000;

/// For lack of memory, and not because something was wrong with the request.
[[nodiscard]] bool is_shortage(flight::Event const& event) noexcept {
  auto const kind = event.error_kind();
  return kind == ErrorKind::over_budget || kind == ErrorKind::device_out_of_memory;
}

/// Of the device; else of the budget; else 0.
[[nodiscard]] std::uint64_t free_bytes(flight::Event const* tail) noexcept {
  if (tail == nullptr) return 0;
  if (auto const device_free = tail->words[RefusalTail::kDeviceFree]; device_free != 0) return device_free - 1;
  auto const limit = tail->words[RefusalTail::kLimit];
  if ((limit & flight::kLimitNone) != 0) return 0;
  return checked_sub(limit & flight::kBytesMask, tail->words[RefusalTail::kClaimed] & flight::kBytesMask).value_or(0);
}

}  // namespace

TorchWriter::TorchWriter(ByteSink& sink) : pickle_{sink, buffer_} {}

void TorchWriter::begin(TimelineProcess const& process) {
  names_ = process.names;
  is_history_ = process.kind == follow::SourceKind::history;
  title_ = process.title;
  program_ = process.info.program;
  pid_ = process.info.pid;
  base_ns_ = process.start_realtime_ns.value_or(process.start_clock_ns);
  pickle_.begin_dict();
  pickle_.key("device_traces");
  pickle_.begin_list();
}

void TorchWriter::ledger(TimelineLedger const& ledger) {
  devices_.add(ledger);
  managers_.resize(std::max<std::size_t>(managers_.size(), ledger.id + std::size_t{1}));
  auto& manager = managers_[ledger.id];
  manager.name = ledger.name;
  manager.is_account = ledger.is_device_account;
  if (manager.is_account) return;
  manager.allocated = ledger.allocated;
  manager.rest = ledger.unattributed;
}

void TorchWriter::before(TimelineBlock const& block) {
  if (block.bytes == 0) return;
  if (!places_of(block.ledger)
           .add({.address = block.address,
                 .bytes = block.bytes,
                 .stream = block.stream.value_or(0),
                 .ledger = block.ledger,
                 .tag = block.tag,
                 .site = block.site})) {
    ++entries_left_out_;
    return;
  }
  managers_[block.ledger].known += block.bytes;
}

void TorchWriter::operation(TimelineOperation const& operation) {
  auto const ledger = operation.block.ledger;
  auto const time_us = to_us(operation.time_ns);
  if (!operation.assumed) catch_up(ledger, time_us);
  auto& manager = managers_[ledger];
  manager.allocated = operation.allocated_after;
  if (operation.kind == EventKind::allocate) {
    allocate(operation.block, time_us);
  } else {
    release(operation, time_us);
  }
  // In a gap the sum of both is right only once all that is assumed has come.
  manager.is_behind = true;
  if (!operation.assumed) catch_up(ledger, time_us);
}

void TorchWriter::allocate(TimelineBlock const& block, std::uint64_t time_us) {
  if (block.bytes == 0) return;  // holds nothing
  auto& manager = managers_[block.ledger];
  // What was in blocks that nobody saw, and is now in this one.
  auto const rest = manager.allocated - std::min(manager.allocated, manager.known + block.bytes);
  if (manager.rest > rest && !manager.is_behind) set_rest(block.ledger, rest, time_us);
  auto record = record_of(block, time_us);
  auto const place = places_of(block.ledger)
                         .add({.address = block.address,
                               .bytes = block.bytes,
                               .stream = record.stream,
                               .ledger = block.ledger,
                               .tag = block.tag,
                               .site = block.site});
  if (!place) {
    ++entries_left_out_;
    return;
  }
  manager.known += block.bytes;
  record.kind = Record::Kind::allocate;
  record.address = *place;
  take(devices_.place_of(block.ledger), record);
}

void TorchWriter::release(TimelineOperation const& operation, std::uint64_t time_us) {
  auto const& block = operation.block;
  if (block.bytes == 0) return;
  auto& manager = managers_[block.ledger];
  auto record = record_of(block, time_us);
  record.kind = Record::Kind::free;
  if (auto const taken =
          operation.known ? places_of(block.ledger).take(block.ledger, block.address, block.bytes) : std::nullopt) {
    manager.known -= block.bytes;
    record.address = taken->place;
    record.stream = block.stream.value_or(taken->block.stream);
    return take(devices_.place_of(block.ledger), record);
  }
  // Of a block that nobody saw. If its bytes are among those from before, this entry alone says so: they were live until now.
  auto const rest = manager.allocated - std::min(manager.allocated, manager.known);
  if (manager.allocates || manager.is_behind || manager.rest < block.bytes || manager.rest - block.bytes != rest) return;
  manager.rest = rest;
  take(devices_.place_of(block.ledger), record);
}

void TorchWriter::gap(TimelineGap const& gap) {
  auto const time_us = to_us(gap.time_ns);
  catch_up(gap.ledger, time_us);
  // What was unattributed may be in blocks that come now: it goes first, and what more there is is shown once they have come.
  if (gap.unattributed_after < managers_[gap.ledger].rest) set_rest(gap.ledger, gap.unattributed_after, time_us);
  managers_[gap.ledger].allocated = gap.allocated_after;
  managers_[gap.ledger].is_behind = true;
}

void TorchWriter::catch_up(std::uint32_t ledger, std::uint64_t time_us) {
  auto& manager = managers_[ledger];
  if (!std::exchange(manager.is_behind, false)) return;
  set_rest(ledger, manager.allocated - std::min(manager.allocated, manager.known), time_us);
}

// A block cannot grow: it is freed, and one of the new size allocated.
void TorchWriter::set_rest(std::uint32_t ledger, std::uint64_t bytes, std::uint64_t time_us) {
  auto& manager = managers_[ledger];
  if (manager.rest == bytes) return;
  auto& places = places_of(ledger);
  auto const device = devices_.place_of(ledger);
  Record record{.ledger = ledger, .tag = kUnattributed, .time_us = time_us};
  TorchPlaced block{.ledger = ledger, .tag = kUnattributed};
  if (manager.rest != 0) {
    record.kind = Record::Kind::free;
    record.bytes = manager.rest;
    if (manager.allocates) {
      static_cast<void>(places.take_from(manager.place));
      record.address = manager.place;
      take(device, record);
    } else if (block.bytes = manager.rest; auto const place = places.add_elsewhere(block)) {
      // From before: it gets an address only to be freed at.
      static_cast<void>(places.take_from(*place));
      record.address = *place;
      take(device, record);
    }
  }
  manager.rest = bytes;
  manager.allocates = true;
  if (bytes == 0) return;
  block.bytes = bytes;
  auto const place = places.add_elsewhere(block);
  if (!place) {
    ++entries_left_out_;
    manager.rest = 0;
    return;
  }
  manager.place = *place;
  record.kind = Record::Kind::allocate;
  record.address = *place;
  record.bytes = bytes;
  take(device, record);
}

void TorchWriter::note(TimelineNote const& note) {
  if (note.kind == EventKind::refusal) return refuse(note);
  if (note.kind == EventKind::hook_begin || note.kind == EventKind::hook_end || note.kind == EventKind::mark) annotate(note);
}

void TorchWriter::refuse(TimelineNote const& note) {
  if (note.event == nullptr || !is_shortage(*note.event)) return;
  if (!note.ledger) {
    ++entries_left_out_;
    return;
  }
  take(device_of(note), {.kind = Record::Kind::refusal,
                         .ledger = *note.ledger,
                         .tag = note.tag,
                         .site = note.site,
                         .time_us = to_us(note.time_ns),
                         .bytes = note.event->words[2],
                         .device_free = free_bytes(note.tail)});
}

// Spans come in pairs: an end without its begin is left out, and what never ended ends with the record.
void TorchWriter::annotate(TimelineNote const& note) {
  Annotation annotation{.begins = true, .device = 0, .time_us = to_us(note.time_ns), .thread = note.thread, .name = note.name};
  if (is_history_) {
    // A snapshot's: what begins and what ends are marks, about no ledger. See history_source.cpp.
    if (note.event == nullptr || note.event->words[3] == 0) return;
    annotation.device = static_cast<std::int64_t>(note.event->words[3]) - 1;
    return note.event->words[2] != 0 ? begin_span(annotation, true) : end_span(annotation);
  }
  annotation.device = device_of(note);
  if (note.kind == EventKind::hook_end) return end_span(annotation);
  begin_span(annotation, note.kind == EventKind::hook_begin);
}

void TorchWriter::begin_span(Annotation annotation, bool has_length) {
  // With those that are still to come.
  if (annotations_.size() + spans_.size() + 2 > kMostAnnotations || spans_.size() == kMostOpenSpans) {
    ++annotations_left_out_;
    return;
  }
  annotation.name = *span_names_.emplace(annotation.name).first;
  annotations_.push_back(annotation);
  if (has_length) {
    spans_.push_back(annotation);
    return;
  }
  annotation.begins = false;
  annotations_.push_back(annotation);
}

void TorchWriter::end_span(Annotation annotation) {
  auto const is_it = [&](Annotation const& span) {
    return span.thread == annotation.thread && span.device == annotation.device && span.name == annotation.name;
  };
  auto const begun = std::ranges::find_if(spans_.rbegin(), spans_.rend(), is_it);
  if (begun == spans_.rend()) return;
  annotation.name = begun->name;
  spans_.erase(std::next(begun).base());
  annotation.begins = false;
  annotations_.push_back(annotation);
}

void TorchWriter::close_spans(std::uint64_t time_us) {
  while (!spans_.empty()) {
    auto annotation = spans_.back();
    spans_.pop_back();
    annotation.begins = false;
    annotation.time_us = time_us;
    annotations_.push_back(annotation);
  }
}

void TorchWriter::end(TimelineEnd const& end) {
  auto const time_us = to_us(end.time_ns);
  for (auto const& ledger : end.ledgers) {
    auto& manager = managers_[ledger.id];
    if (manager.is_account) continue;
    manager.allocated = ledger.allocated;
    manager.is_behind = true;
    catch_up(ledger.id, time_us);
  }
  close_spans(time_us);
  end_us_ = time_us;
  open_first();
  advance_to(std::max(devices_.count(), 1U) - 1);
  close_trace();
  pickle_.end_list();
  write_annotations();
  write_segments();
  pickle_.key("allocator_settings");
  pickle_.begin_dict();
  pickle_.end_dict();
  write_origin(end);
  pickle_.end_dict();
  is_whole_ = true;
}

Result<void> TorchWriter::finish() {
  auto const error = is_whole_ ? pickle_.finish() : pickle_.error();
  if (error != 0) return tl::unexpected{write_error(error)};
  return {};
}

std::uint64_t TorchWriter::to_us(std::uint64_t time_ns) const noexcept {
  return checked_add(base_ns_, time_ns).value_or(kMaxUint64) / kNsPerUs;
}

TorchWriter::Record TorchWriter::record_of(TimelineBlock const& block, std::uint64_t time_us) const noexcept {
  return {.ledger = block.ledger,
          .tag = block.tag,
          .site = block.site,
          .time_us = time_us,
          .address = block.address,
          .bytes = block.bytes,
          .stream = block.stream.value_or(0)};
}

std::string_view TorchWriter::category(std::uint32_t tag) const noexcept {
  if (tag == kUnattributed) return "unattributed";
  auto const name = names_->tag(tag);
  return name.empty() ? std::string_view{"untagged"} : name;
}

std::unique_ptr<FormatWriter> make_torch_writer(ByteSink& sink, ConvertOptions const& /*options*/) {
  return std::make_unique<TorchWriter>(sink);
}

TorchPlaces& TorchWriter::places_of(std::uint32_t ledger) {
  auto const device = devices_.place_of(ledger);
  if (places_.size() <= device) places_.resize(device + std::size_t{1});
  return places_[device];
}

std::uint32_t TorchWriter::device_of(TimelineNote const& note) {
  return note.ledger ? devices_.place_of(*note.ledger) : devices_.first();
}

}  // namespace headroom::dump
