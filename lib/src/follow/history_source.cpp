// A recorded history as a source: its records become the operations of one ledger, numbered in the order of the file. Times of a log
// may go back by a little where threads wrote it; the order of the file counts, and the clock stands still meanwhile.
#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/follow_source.hpp>
#include <headroom/trace.hpp>

#include "base/checked.hpp"
#include "trace/live_blocks.hpp"

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;

constexpr std::uint64_t kTicksPerSecond = 1'000'000;
constexpr std::uint32_t kResultLayers = 64;  // see word 5 of a record

class HistorySource final : public Source {
public:
  explicit HistorySource(TraceReader reader) : reader_{std::move(reader)} {
    ledger_.name = "history";
    ledger_.state = flight::LedgerState::open;
    ledger_.generation = 1;
    ledger_.tags.push_back({.id = 0, .name = "", .bytes = 0, .at_peak_bytes = 0, .allocations = 0});
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
    for (auto const& record : *batch) {
      ++records_;
      // Ticks are microseconds, from 1 on: 0 means "none".
      ticks_ = std::max(ticks_, checked_add(record.time_us, 1).value_or(record.time_us));
      if (auto added = add(record, news.events); !added) return added;
    }
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
  [[nodiscard]] std::uint64_t now_ticks() const override { return ticks_; }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override {
    auto ledger = ledger_;
    ledger.claimed = ledger.allocated;
    ledger.live_allocations = live_.size();
    ledger.tags.front().bytes = ledger.allocated;
    return {ledger};
  }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    live_.for_each([&](std::uint64_t address, Live::Live const& live) {
      flight::LiveAllocation allocation = live.value;
      allocation.address = address;
      allocation.bytes = live.bytes;
      visit(allocation);
    });
  }
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t /*id*/) const override { return std::nullopt; }
  [[nodiscard]] std::uint64_t accepted() const override { return records_; }

private:
  using Live = trace::LiveBlocks<flight::LiveAllocation>;

  [[nodiscard]] Result<void> add(TraceEvent const& record, std::vector<Event>& events) {
    switch (record.action) {
      case TraceEvent::Action::allocate: return allocate(record, events);
      case TraceEvent::Action::free: release(record, events); return {};
      case TraceEvent::Action::allocate_failure: refuse(record, events); return {};
    }
    return {};
  }

  [[nodiscard]] Result<void> allocate(TraceEvent const& record, std::vector<Event>& events) {
    if (record.bytes == 0) return {};  // holds nothing, wherever it is
    if (record.bytes > flight::kBytesMask - ledger_.allocated) {
      return fail(ErrorKind::overflow, Layer::request,
                  reader_.name() + ':' + std::to_string(record.line) + ": size " + std::to_string(record.bytes) +
                      " brings the live bytes above " + format_bytes_exact(flight::kBytesMask) +
                      "; expected sizes of real memory");
    }
    ledger_.allocated += record.bytes;
    ledger_.peak = std::max(ledger_.peak, ledger_.allocated);
    ++ledger_.counters.allocations;
    auto const word = next_word();
    flight::LiveAllocation live;
    live.stream = record.stream;
    live.ticks = ticks_;
    live.operation = word;
    live.thread = record.thread;
    static_cast<void>(live_.insert(record.pointer, record.bytes, live));
    events.push_back(operation(EventKind::allocate, record, record.bytes, word));
    return {};
  }

  void release(TraceEvent const& record, std::vector<Event>& events) {
    auto const taken = live_.take(record.pointer, record.bytes);
    if (!taken) return;  // of an allocation from before the recording, or of nothing: no sum changes
    ledger_.allocated -= taken->bytes;
    ++ledger_.counters.frees;
    // What was allocated comes back, whatever the record says.
    events.push_back(operation(EventKind::free, record, taken->bytes, next_word()));
  }

  void refuse(TraceEvent const& record, std::vector<Event>& events) {
    ++ledger_.refusals[static_cast<std::size_t>(ErrorKind::device_out_of_memory)][static_cast<std::size_t>(Layer::resource)];
    auto event = operation(EventKind::refusal, record, record.bytes, (number_ << flight::kBytesBits) | ledger_.allocated);
    event.ring = flight::Ring::journal;
    event.words[2] = record.bytes;
    // A log does not say why; that the resource below the log refused is all there is.
    event.words[5] |= std::uint64_t{(static_cast<std::uint32_t>(ErrorKind::device_out_of_memory) + 1) * kResultLayers +
                                    static_cast<std::uint32_t>(Layer::resource)}
                      << 40U;
    events.push_back(event);
  }

  std::uint64_t next_word() noexcept { return (++number_ << flight::kBytesBits) | ledger_.allocated; }

  Event operation(EventKind kind, TraceEvent const& record, std::uint64_t bytes, std::uint64_t word) const {
    Event event;
    event.kind = kind;
    event.number = records_;
    event.ticks = ticks_;
    event.words[0] = (std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U) | (records_ & flight::kRecordNumberMask);
    event.words[1] = ticks_;
    event.words[2] = record.pointer;
    event.words[3] = bytes & flight::kRequestedMask;
    event.words[4] = word;
    event.words[7] = record.thread;
    return event;
  }

  TraceReader reader_;
  flight::LedgerSnapshot ledger_;
  Live live_;
  std::uint64_t number_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t ticks_ = 1;
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
