#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include <headroom/byte_size.hpp>

#include "trace/live_blocks.hpp"
#include "trace/record_reader.hpp"
#include "trace/replay_steps.hpp"
#include "trace/replay_tags.hpp"

namespace headroom {
namespace {

using trace::Step;
using trace::StepAction;

/// Turns records into steps: matches frees with allocations and numbers slots and streams.
class Loader {
public:
  explicit Loader(TraceReader const& reader) : reader_{reader} {
    data_.format = reader.format();
    data_.recorded_names.emplace_back();
    if (!reader.devices().empty()) data_.device = reader.devices().front();
  }

  void add(TraceEvent const& event) {
    if (data_.steps.empty()) first_time_us_ = event.time_us;
    // Threads log on their own, so that a record may carry an earlier time than the one before it.
    auto const time_us = event.time_us > first_time_us_ ? event.time_us - first_time_us_ : 0;
    data_.duration_us = std::max(data_.duration_us, time_us);
    Step step{.bytes = event.bytes,
              .time_us = time_us,
              .stream = stream_index(event.stream),
              .line = static_cast<std::uint32_t>(std::min<std::uint64_t>(event.line, std::numeric_limits<std::uint32_t>::max()))};
    step.thread = event.thread & 0xFF'FFFFU;
    auto const action = match(event, step);
    step.action = static_cast<std::uint8_t>(action);
    data_.steps.push_back(step);
    if (event.from_before) ++data_.from_before;
    if (event.tag != 0 || !data_.recorded_tags.empty()) note_tag(event.tag);
  }

  [[nodiscard]] std::size_t size() const noexcept { return data_.steps.size(); }

  [[nodiscard]] TraceHistory::Data finish() {
    data_.name = reader_.name();
    data_.thread_ids.assign(reader_.thread_ids().begin(), reader_.thread_ids().end());
    data_.steps.shrink_to_fit();
    data_.recorded_tags.shrink_to_fit();
    return std::move(data_);
  }

private:
  [[nodiscard]] StepAction match(TraceEvent const& event, Step& step) {
    auto const holds_nothing = event.pointer == 0 && event.bytes == 0;
    switch (event.action) {
      case TraceEvent::Action::allocate_failure: return StepAction::failure;
      case TraceEvent::Action::allocate:
        if (holds_nothing) return StepAction::empty;
        step.slot = take_slot();
        live_.insert(event.pointer, event.bytes, step.slot);
        return StepAction::allocate;
      case TraceEvent::Action::free: break;
    }
    if (holds_nothing) return StepAction::empty_free;
    auto const taken = live_.take(event.pointer, event.bytes);
    if (!taken) return StepAction::unmatched_free;
    step.slot = taken->value;
    step.bytes = taken->bytes;
    free_slots_.push_back(taken->value);
    return StepAction::free;
  }

  /// The slot that was freed last is the one whose words are still in the cache.
  [[nodiscard]] std::uint32_t take_slot() {
    if (free_slots_.empty()) return data_.slots++;
    auto const slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  [[nodiscard]] std::uint32_t stream_index(std::uint64_t stream) {
    if (!data_.stream_ids.empty() && data_.stream_ids[last_stream_] == stream) return last_stream_;
    auto const [place, is_new] = streams_.try_emplace(stream, static_cast<std::uint32_t>(data_.stream_ids.size()));
    if (is_new) data_.stream_ids.push_back(stream);
    last_stream_ = place->second;
    return last_stream_;
  }

  /// Of the step that was added last. Steps before the first tag have none.
  void note_tag(std::uint32_t tag) {
    data_.recorded_tags.resize(data_.steps.size());
    if (tag == 0) return;
    auto const [place, is_new] = tags_.try_emplace(tag, static_cast<std::uint32_t>(data_.recorded_names.size()));
    if (is_new) data_.recorded_names.emplace_back(reader_.name_of(tag));
    data_.recorded_tags.back() = place->second;
  }

  TraceReader const& reader_;
  TraceHistory::Data data_;
  std::unordered_map<std::uint32_t, std::uint32_t> tags_;  // index of recorded_names by the reader's id
  trace::LiveBlocks<std::uint32_t> live_;
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::uint32_t last_stream_ = 0;
  std::uint64_t first_time_us_ = 0;
};

}  // namespace

TraceHistory::TraceHistory(std::shared_ptr<Data const> data) noexcept : data_{std::move(data)} {}

Result<TraceHistory> TraceHistory::load(TraceReader& reader) {
  constexpr std::size_t kMostEvents = std::numeric_limits<std::uint32_t>::max() - 1;
  if (reader.devices().size() > 1) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                reader.name() + ": a history of " + std::to_string(reader.devices().size()) + " devices (" +
                    trace::list_of(reader.devices()) + "); expected one to be chosen: a replay is of one device");
  }
  Loader loader{reader};
  while (true) {
    auto const batch = reader.next_batch();
    if (!batch) return tl::unexpected{batch.error()};
    if (batch->empty()) return TraceHistory{std::make_shared<Data const>(loader.finish())};
    if (batch->size() > kMostEvents - loader.size()) {
      return fail(ErrorKind::overflow, Layer::request,
                  record_place(reader.name(), reader.format(), batch->front().device, batch->front().line) +
                      ": expected at most " + format_count(kMostEvents) + " records in a history to replay");
    }
    for (auto const& event : *batch) loader.add(event);
  }
}

Result<TraceHistory> TraceHistory::load(std::string path) {
  auto reader = TraceReader::open(std::move(path));
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return load(*reader);
}

std::string const& TraceHistory::name() const noexcept { return data_->name; }
std::size_t TraceHistory::events() const noexcept { return data_->steps.size(); }
TraceFormat TraceHistory::format() const noexcept { return data_->format; }
std::optional<std::uint32_t> TraceHistory::device() const noexcept { return data_->device; }
std::uint64_t TraceHistory::from_before_allocations() const noexcept { return data_->from_before; }
ReplayTags TraceHistory::default_tags() const noexcept {
  return data_->recorded_tags.empty() ? ReplayTags::size : ReplayTags::recorded;
}
std::span<std::uint64_t const> TraceHistory::thread_ids() const noexcept { return data_->thread_ids; }
std::span<std::uint64_t const> TraceHistory::stream_ids() const noexcept { return data_->stream_ids; }

std::chrono::microseconds TraceHistory::duration() const noexcept {
  constexpr auto kMost = static_cast<std::uint64_t>(std::chrono::microseconds::max().count());
  return std::chrono::microseconds{static_cast<std::int64_t>(std::min(data_->duration_us, kMost))};
}

namespace {

/// What each tag holds while the steps of a history go by.
class Holders {
public:
  Holders(TraceHistory::Data const& data, ReplayTags tags) : data_{data}, tags_{tags}, tag_of_(data.slots) {
    for (auto& name : trace::tag_names(data, tags)) now_.push_back({.tag = std::move(name)});
  }

  void allocate(Step const& step) {
    tag_of_[step.slot] = trace::tag_index(data_, step, tags_);
    auto& holder = now_[tag_of_[step.slot]];
    holder.bytes += step.bytes;
    ++holder.allocations;
  }
  void free(Step const& step) {
    auto& holder = now_[tag_of_[step.slot]];
    holder.bytes -= step.bytes;
    --holder.allocations;
  }

  [[nodiscard]] std::vector<TraceHolder> const& now() const noexcept { return now_; }

private:
  TraceHistory::Data const& data_;
  ReplayTags tags_;
  std::vector<TraceHolder> now_;
  std::vector<std::size_t> tag_of_;  // by slot: a free may stand on another thread or stream than its allocation
};

[[nodiscard]] std::vector<TraceHolder> largest_first(std::vector<TraceHolder> holders) {
  std::erase_if(holders, [](TraceHolder const& holder) { return holder.bytes == 0; });
  std::ranges::sort(
      holders, [](TraceHolder const& a, TraceHolder const& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.tag < b.tag; });
  return holders;
}

/// Largest first.
[[nodiscard]] std::vector<TraceHolder> holders_after(TraceHistory::Data const& data, ReplayTags tags, std::size_t steps) {
  Holders holders{data, tags};
  for (auto const& step : std::span{data.steps}.first(steps)) {
    if (step.what() == StepAction::allocate) holders.allocate(step);
    if (step.what() == StepAction::free) holders.free(step);
  }
  return largest_first(holders.now());
}

}  // namespace

std::vector<TraceHolder> TraceHistory::holders_at_peak(ReplayTags tags) const {
  // First the place of the peak, by sums alone: what all tags hold, copied at each peak so far, would be tags times steps.
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  std::size_t steps_to_peak = 0;
  for (std::size_t i = 0; i < data_->steps.size(); ++i) {
    auto const& step = data_->steps[i];
    if (step.what() == StepAction::free) live -= step.bytes;
    if (step.what() != StepAction::allocate) continue;
    live += step.bytes;
    if (live <= peak) continue;
    peak = live;
    steps_to_peak = i + 1;
  }
  return holders_after(*data_, tags, steps_to_peak);
}

std::vector<TraceHolder> TraceHistory::holders_at_end(ReplayTags tags) const {
  return holders_after(*data_, tags, data_->steps.size());
}

}  // namespace headroom
