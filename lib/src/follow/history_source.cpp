// A recorded history as a source: its records become the operations of one ledger for each device, numbered in the order of the file.
// Times of a log may go back by a little where threads wrote it; the order of the file counts, and the clock stands still meanwhile.
//
// What a snapshot of PyTorch knows of segments becomes no region: its blocks are held here as they were requested, while they lie in the
// segments as they were rounded, and the rest of each would count as a hole. cache_figures() has the fragmentation of the segments.
#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/follow_source.hpp>
#include <headroom/torch_snapshot.hpp>
#include <headroom/trace.hpp>

#include "base/checked.hpp"
#include "follow/history_names.hpp"
#include "trace/live_blocks.hpp"

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;

constexpr std::uint64_t kTicksPerSecond = 1'000'000;
constexpr std::uint32_t kResultLayers = 64;  // see word 5 of a record
constexpr unsigned kLedgerShift = 16;        // likewise
static_assert(TraceReader::kMaxDevices <= 4096, "word 5 has 12 bits for a ledger");

/// Ticks are microseconds, from 1 on: 0 means "none".
[[nodiscard]] std::uint64_t ticks_of(std::uint64_t time_us) noexcept { return checked_add(time_us, 1).value_or(time_us); }

/// What is known of one device so far.
class DeviceBooks {
public:
  using Live = trace::LiveBlocks<flight::LiveAllocation>;

  DeviceBooks(std::uint32_t cell, std::uint32_t device, TraceFormat format) : device_{device} {
    ledger_.cell = cell;
    ledger_.name = "history";
    ledger_.state = flight::LedgerState::open;
    ledger_.generation = 1;
    tags_.push_back({});
    peak_of_.push_back(peaks_);
    if (format == TraceFormat::rmm_csv) return;
    ledger_.name = "device " + std::to_string(device);
    ledger_.device_ordinal = device;
  }

  [[nodiscard]] std::uint32_t device() const noexcept { return device_; }
  [[nodiscard]] std::uint64_t ticks() const noexcept { return ticks_; }
  void note_time(std::uint64_t time_us) noexcept { ticks_ = std::max(ticks_, ticks_of(time_us)); }
  /// Absent: it would be more than a ledger can hold.
  [[nodiscard]] bool has_room_for(std::uint64_t bytes) const noexcept { return bytes <= flight::kBytesMask - ledger_.allocated; }

  [[nodiscard]] Event allocate(TraceEvent const& record, std::uint32_t tag, std::uint32_t site, std::uint64_t records) {
    ledger_.allocated += record.bytes;
    ++ledger_.counters.allocations;
    if (tag >= tags_.size()) {
      tags_.resize(tag + 1);
      peak_of_.resize(tag + 1, peaks_);
    }
    keep_peak(tag);
    tags_[tag].bytes += record.bytes;
    ++tags_[tag].allocations;
    if (ledger_.allocated > ledger_.peak) {
      ledger_.peak = ledger_.allocated;
      ++peaks_;
    }
    flight::LiveAllocation live;
    live.stream = record.stream;
    live.ticks = ticks_;
    live.operation = next_word();
    live.thread = record.thread;
    live.tag = tag;
    live.site = site;
    live.ledger = ledger_.cell;
    auto const event = operation(EventKind::allocate, record.pointer, record.bytes, live, records, live.operation);
    static_cast<void>(live_.insert(record.pointer, record.bytes, live));
    return event;
  }

  /// Absent: nothing is live there, and no sum changes.
  [[nodiscard]] std::optional<Event> release(TraceEvent const& record, std::uint64_t records) {
    auto taken = live_.take(record.pointer, record.bytes);
    if (!taken) return std::nullopt;
    keep_peak(taken->value.tag);
    ledger_.allocated -= taken->bytes;
    ++ledger_.counters.frees;
    auto& tag = tags_[taken->value.tag];
    tag.bytes -= taken->bytes;
    --tag.allocations;
    taken->value.thread = record.thread;
    // What was allocated comes back, whatever the record says.
    return operation(EventKind::free, record.pointer, taken->bytes, taken->value, records, next_word());
  }

  [[nodiscard]] Event refuse(TraceEvent const& record, std::uint32_t tag, std::uint32_t site, std::uint64_t records) {
    ++ledger_.refusals[static_cast<std::size_t>(ErrorKind::device_out_of_memory)][static_cast<std::size_t>(Layer::resource)];
    flight::LiveAllocation request;
    request.thread = record.thread;
    request.tag = tag;
    request.site = site;
    auto event =
        operation(EventKind::refusal, 0, record.bytes, request, records, (number_ << flight::kBytesBits) | ledger_.allocated);
    event.ring = flight::Ring::journal;
    event.words[2] = record.bytes;
    // A log does not say why; that the resource below the log refused is all there is.
    event.words[5] |= std::uint64_t{(static_cast<std::uint32_t>(ErrorKind::device_out_of_memory) + 1) * kResultLayers +
                                    static_cast<std::uint32_t>(Layer::resource)}
                      << 40U;
    return event;
  }

  [[nodiscard]] flight::LedgerSnapshot snapshot(HistoryNames const& names) const {
    auto ledger = ledger_;
    ledger.claimed = ledger.allocated;
    ledger.live_allocations = live_.size();
    for (std::uint32_t id = 0; id < tags_.size(); ++id) {
      auto tag = tags_[id];
      tag.id = id;
      tag.name = names.tag(id);
      if (peak_of_[id] != peaks_) tag.at_peak_bytes = tag.bytes;
      if (id == 0 || tag.bytes != 0 || tag.at_peak_bytes != 0) ledger.tags.push_back(std::move(tag));
    }
    std::ranges::sort(ledger.tags, [](flight::TagSnapshot const& a, flight::TagSnapshot const& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.id < b.id;
    });
    return ledger;
  }

  [[nodiscard]] Live const& live() const noexcept { return live_; }

private:
  std::uint64_t next_word() noexcept { return (++number_ << flight::kBytesBits) | ledger_.allocated; }

  /// What a tag holds has not changed since the last peak, and now it will. Tag by tag, since a history may have as many tags as peaks.
  void keep_peak(std::uint32_t tag) {
    if (std::exchange(peak_of_[tag], peaks_) != peaks_) tags_[tag].at_peak_bytes = tags_[tag].bytes;
  }

  [[nodiscard]] Event operation(EventKind kind, std::uint64_t address, std::uint64_t bytes, flight::LiveAllocation const& block,
                                std::uint64_t records, std::uint64_t word) const {
    Event event;
    event.kind = kind;
    event.number = records;
    event.ticks = ticks_;
    event.words[0] = (std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U) | (records & flight::kRecordNumberMask);
    event.words[1] = ticks_;
    event.words[2] = address;
    event.words[3] = bytes & flight::kRequestedMask;
    event.words[4] = word;
    event.words[5] = block.tag | std::uint64_t{ledger_.cell} << kLedgerShift;
    event.words[6] = block.site;
    event.words[7] = block.thread;
    return event;
  }

  std::uint32_t device_;
  flight::LedgerSnapshot ledger_;          // without its tags
  std::vector<flight::TagSnapshot> tags_;  // by id
  std::vector<std::uint64_t> peak_of_;  // by id: the number of the peak that at_peak_bytes is of; an older one: not changed since
  std::uint64_t peaks_ = 0;             // so far
  Live live_;
  std::uint64_t number_ = 0;
  std::uint64_t ticks_ = 1;
};

class HistorySource final : public Source {
public:
  explicit HistorySource(TraceReader reader) : reader_{std::move(reader)}, names_{reader_} {
    // A log has one ledger from the beginning; of a snapshot each turns up with its device's first record.
    if (reader_.format() == TraceFormat::rmm_csv) books_.emplace_back(0, 0, TraceFormat::rmm_csv);
    note_marks();
  }

  [[nodiscard]] SourceKind kind() const override { return SourceKind::history; }
  [[nodiscard]] std::string title() const override { return reader_.name(); }

  [[nodiscard]] Result<void> read(News& news) override {
    if (ended_) {
      news.ended = true;
      return {};
    }
    auto const batch = reader_.next_batch();
    if (!batch) return tl::unexpected{batch.error()};
    ended_ = batch->empty();
    news.ended = ended_;
    news.more = !ended_;
    news.events.reserve(news.events.size() + batch->size());
    batch_ = *batch;
    before_batch_ = records_;
    for (auto const& record : *batch) {
      auto& books = books_of(record.device);
      ++records_;
      books.note_time(record.time_us);
      now_ticks_ = std::max(now_ticks_, books.ticks());
      if (auto added = add(record, books, news.events); !added) return added;
    }
    tell_marks(ended_ ? kMaxUint64 : now_ticks_, news.events);
    return {};
  }

  [[nodiscard]] flight::ProcessInfo process() const override {
    flight::ProcessInfo info;
    info.program = reader_.name();
    info.state = flight::ProcessState::closed;
    info.events_recorded = records_;
    return info;
  }
  [[nodiscard]] flight::Liveness liveness() const override { return flight::Liveness::dead; }
  [[nodiscard]] flight::ClockMap clock() const override {
    return {kTicksPerSecond, {{.ticks = 1, .monotonic_ns = 0, .realtime_ns = 0}}};
  }
  [[nodiscard]] std::uint64_t now_ticks() const override { return now_ticks_; }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override {
    std::vector<flight::LedgerSnapshot> ledgers;
    ledgers.reserve(books_.size());
    for (auto const& books : books_) ledgers.push_back(books.snapshot(names_));
    return ledgers;
  }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    for (auto const& books : books_) {
      books.live().for_each([&](std::uint64_t address, DeviceBooks::Live::Live const& live) {
        flight::LiveAllocation allocation = live.value;
        allocation.address = address;
        allocation.bytes = live.bytes;
        visit(allocation);
      });
    }
  }
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override { return names_.name(id); }
  [[nodiscard]] std::string stack_of(std::uint32_t site) const override { return names_.stack_of(site); }
  [[nodiscard]] TorchSnapshot const* torch_snapshot() const override { return reader_.snapshot(); }
  [[nodiscard]] std::uint64_t accepted() const override { return records_; }
  [[nodiscard]] std::optional<std::uint64_t> stream_of(Event const& event) const override {
    auto const place = event.number - before_batch_ - 1;  // wraps for what is older
    return event.kind != EventKind::mark && place < batch_.size() ? std::optional{batch_[place].stream} : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> first_ticks() const override {
    auto const devices = reader_.devices();
    auto const* const snapshot = reader_.snapshot();
    if (snapshot == nullptr || devices.size() < 2) return {};
    auto first = kMaxUint64;
    for (auto const& beginning : snapshot->beginnings) {
      if (std::ranges::find(devices, beginning.device) != devices.end()) first = std::min(first, ticks_of(beginning.time_us));
    }
    return first;
  }
  [[nodiscard]] std::uint64_t thread_id(std::uint32_t thread) const override {
    auto const ids = reader_.thread_ids();
    return thread < ids.size() ? ids[thread] : thread;
  }

private:
  /// Records come device after device: the last one's, nearly always.
  [[nodiscard]] DeviceBooks& books_of(std::uint32_t device) {
    if (!books_.empty() && books_.back().device() == device) [[likely]]
      return books_.back();
    auto const known = std::ranges::find(books_, device, &DeviceBooks::device);
    if (known != books_.end()) return *known;
    return books_.emplace_back(static_cast<std::uint32_t>(books_.size()), device, reader_.format());
  }

  [[nodiscard]] Result<void> add(TraceEvent const& record, DeviceBooks& books, std::vector<Event>& events) {
    switch (record.action) {
      case TraceEvent::Action::allocate: return allocate(record, books, events);
      case TraceEvent::Action::free:
        if (auto const event = books.release(record, records_)) events.push_back(*event);
        return {};
      case TraceEvent::Action::allocate_failure:
        events.push_back(books.refuse(record, names_.tag_id(record.tag), HistoryNames::site_id(record.site), records_));
        return {};
    }
    return {};
  }

  [[nodiscard]] Result<void> allocate(TraceEvent const& record, DeviceBooks& books, std::vector<Event>& events) {
    if (record.bytes == 0) return {};  // holds nothing, wherever it is
    if (!books.has_room_for(record.bytes)) {
      return fail(ErrorKind::overflow, Layer::request,
                  record_place(reader_.name(), reader_.format(), record.device, record.line) + ": size " +
                      std::to_string(record.bytes) + " brings the live bytes above " + format_bytes_exact(flight::kBytesMask) +
                      "; expected sizes of real memory");
    }
    events.push_back(books.allocate(record, names_.tag_id(record.tag), HistoryNames::site_id(record.site), records_));
    return {};
  }

  /// A snapshot's annotations, of the devices that are read, by time.
  void note_marks() {
    auto const* const snapshot = reader_.snapshot();
    if (snapshot == nullptr) return;
    auto const devices = reader_.devices();
    for (std::uint32_t i = 0; i < snapshot->annotations.size(); ++i) {
      if (std::ranges::find(devices, snapshot->annotations[i].device) != devices.end()) marks_.push_back(i);
    }
    std::ranges::sort(marks_, {}, [snapshot](std::uint32_t i) { return std::pair{snapshot->annotations[i].time_us, i}; });
  }

  /// Those at or before `ticks`. A mark that is later than the first records after it takes its place in the journal all the same.
  void tell_marks(std::uint64_t ticks, std::vector<Event>& events) {
    for (; next_mark_ < marks_.size(); ++next_mark_) {
      auto const place = marks_[next_mark_];
      auto const& annotation = reader_.snapshot()->annotations[place];
      auto const then = ticks_of(annotation.time_us);
      if (then > ticks) return;
      now_ticks_ = std::max(now_ticks_, then);
      Event event;
      event.kind = EventKind::mark;
      event.ring = flight::Ring::journal;
      event.number = next_mark_;
      event.ticks = then;
      event.words[0] = (std::uint64_t{static_cast<std::uint8_t>(EventKind::mark)} << 56U) | next_mark_;
      event.words[1] = then;
      event.words[2] = annotation.begins ? 1 : 0;
      event.words[3] = annotation.device + std::uint64_t{1};
      event.words[6] = HistoryNames::mark_id(place);
      events.push_back(event);
    }
  }

  TraceReader reader_;
  HistoryNames names_;
  std::deque<DeviceBooks> books_;     // by cell
  std::vector<std::uint32_t> marks_;  // places in the snapshot's annotations
  std::size_t next_mark_ = 0;
  std::span<TraceEvent const> batch_;  // of the last read: stays good until the next one
  std::uint64_t before_batch_ = 0;     // records before it
  std::uint64_t records_ = 0;
  std::uint64_t now_ticks_ = 1;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<Source>> open_history_source(std::string path) {
  auto reader = TraceReader::open(std::move(path));
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return history_source(std::move(*reader));
}

std::unique_ptr<Source> history_source(TraceReader reader) { return std::make_unique<HistorySource>(std::move(reader)); }

}  // namespace headroom::follow
