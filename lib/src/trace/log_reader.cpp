#include "trace/log_reader.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "flight/recorder.hpp"
#include "flight/tag_names.hpp"

namespace headroom::trace {
namespace {

using flight::Event;
using flight::EventKind;
using flight::Ring;

LogLine::Action action_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::resource_free: return LogLine::Action::free;
    case EventKind::resource_refusal: return LogLine::Action::allocate_failure;
    case EventKind::resource_free_failed: return LogLine::Action::free_failure;
    default: return LogLine::Action::allocate;
  }
}

// Signed, so that a line from before the start is behind, not 2^32 ahead.
std::int32_t ahead_of(std::uint64_t next, std::uint32_t number) noexcept {
  return static_cast<std::int32_t>(number - static_cast<std::uint32_t>(next));
}

}  // namespace

LogReader::LogReader(flight::FlightView view, FollowedLog log) : reader_{std::move(view)}, log_{std::move(log)} {
  load_counts();
  refused_ = refused_now_;
  // The rings still hold lines from before: they are below these numbers and are passed over.
  for (auto& rings : follows_) {
    for (auto& follow : rings) follow.next = follow.counted;
  }
}

std::uint64_t LogReader::count_of(std::uint32_t lane, std::size_t ring) const noexcept {
  // Acquire: pairs with the store that follows the record, so that the ring's head is seen to be above it.
  if (log_.counts != nullptr) return log_.counts->lanes[lane].lines[ring].load(std::memory_order_acquire);
  auto const& header = flight::recorder.lane(lane).header;
  return (ring == 0 ? header.main : header.journal).log_lines.load(std::memory_order_acquire);
}

std::uint64_t LogReader::refused() const noexcept {
  return (log_.counts != nullptr ? log_.counts->refused : flight::log_lines_refused).load(std::memory_order_acquire);
}

void LogReader::load_counts() noexcept {
  for (std::uint32_t lane = 0; lane < flight::kLaneCount; ++lane) {
    for (std::size_t ring = 0; ring < kRings; ++ring) follows_[lane][ring].counted = count_of(lane, ring);
  }
  refused_now_ = refused();
}

void LogReader::poll(std::vector<LogLine>& lines, bool to_the_end) {
  const std::uint64_t start_ticks = ticks_now();
  load_counts();
  gaps_.clear();
  reader_.poll(polled_, gaps_);
  take_new();
  write_off_the_rest();
  if (waiting_.empty()) return;

  flight::sort_timeline(waiting_);
  const auto end = to_the_end ? waiting_.end() : std::ranges::lower_bound(waiting_, start_ticks, {}, &Event::ticks);
  lines.reserve(lines.size() + static_cast<std::size_t>(end - waiting_.begin()));
  const auto clock = reader_.view().clock();
  for (auto event = waiting_.begin(); event != end; ++event) lines.push_back(line_of(*event, clock));
  waiting_.erase(waiting_.begin(), end);
}

// A ring's events come in their order, and its lines are numbered: whatever a number skips was lost. A poll that ran out of memory
// half way may offer events twice; their numbers tell.
void LogReader::take_new() {
  waiting_.reserve(waiting_.size() + polled_.size());
  for (auto const& event : polled_) {
    if (!event.is_log_line() || event.lane >= flight::kLaneCount) continue;
    if (log_.counts != nullptr && event.log() != log_.number) continue;
    auto& follow = follows_[event.lane][event.ring == Ring::main ? 0 : 1];
    const auto number = static_cast<std::uint32_t>(log_.counts != nullptr ? event.words[6] >> 32 : event.words[6]);
    const std::int32_t ahead = ahead_of(follow.next, number);
    if (ahead < 0) continue;
    lost_ += static_cast<std::uint64_t>(ahead);
    follow.next += static_cast<std::uint64_t>(ahead) + 1;
    waiting_.push_back(event);
  }
  polled_.clear();
}

// What was counted before the rings were read, and was not found in them, is nowhere.
void LogReader::write_off_the_rest() noexcept {
  for (auto& rings : follows_) {
    for (auto& follow : rings) {
      if (follow.counted <= follow.next) continue;
      lost_ += follow.counted - follow.next;
      follow.next = follow.counted;
    }
  }
  lost_ += refused_now_ - refused_;
  refused_ = refused_now_;
}

LogLine LogReader::line_of(Event const& event, flight::ClockMap const& clock) {
  // The wall clock of the process's start plus time that never goes back: a log in which an hour happens twice is of no use.
  auto const& header = reader_.view().header();
  const std::uint64_t since_start = clock.monotonic_ns(event.ticks) - header.start_monotonic_ns;
  // Each clock sync corrects the rate a little.
  last_time_ns_ = std::max(last_time_ns_, header.start_realtime_ns + since_start);
  return {.action = action_of(event.kind),
          .log = event.log(),
          .thread = event.thread(),
          .time_ns = last_time_ns_,
          .pointer = event.kind == EventKind::resource_refusal ? 0 : event.words[2],
          .bytes = event.kind == EventKind::resource_refusal ? event.words[2] : event.bytes(),
          .alignment = std::uint64_t{1} << ((event.words[3] >> 48) & 63U),
          .stream = event.words[4],
          .tag = flight::tag_name(static_cast<std::uint16_t>(event.tag())),
          .error = event.error_kind(),
          .error_from = event.error_layer()};
}

}  // namespace headroom::trace
