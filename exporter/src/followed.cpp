#include "followed.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace headroom::exporter {
namespace {

constexpr follow::Options kOptions{.memory_bytes = std::size_t{64} << 10U, .failures = Followed::kStories, .operations = false};

/// std::chrono's steady clock is CLOCK_MONOTONIC here, the clock of the file's syncs.
template <class Clock>
std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{Clock::now().time_since_epoch()}.count());
}

}  // namespace

Followed::Followed(flight::FlightView view, bool with_stories) : view_(std::move(view)) {
  if (with_stories) model_.emplace(follow::flight_source(view_), kOptions);
}

std::uint64_t Followed::lost_since_beginning() const {
  if (!model_) return 0;
  const auto lost = model_->source().lost();
  return lost > lost_before_ ? lost - lost_before_ : 0;
}

Result<void> Followed::poll() {
  if (auto read = model_->poll(); !read) return tl::unexpected(std::move(read.error()));
  if (!std::exchange(has_begun_, true)) lost_before_ = model_->source().lost();
  return {};
}

void Followed::add(std::span<flight::LedgerSnapshot const> ledgers) {
  samples_.add(ledgers, now_ns<std::chrono::steady_clock>());
  failures_ = 0;
  words_.clear();
  rested_ = 0;
  for (auto const& ledger : ledgers) {
    words_.emplace_back(ledger.cell, flight::FlightView::Words{ledger.claimed, ledger.allocated, ledger.peak});
    const bool counts = !ledger.is_device_account && ledger.state != flight::LedgerState::closed;
    failures_ += counts ? ledger.failures() : 0;
  }
}

bool Followed::is_as_before() const {
  return std::ranges::all_of(words_, [this](auto const& before) {
    const auto now = view_.words(before.first);
    return now.claimed == before.second.claimed && now.allocated == before.second.allocated && now.peak == before.second.peak;
  });
}

Result<void> Followed::tick_at_rest() {
  {
    const std::lock_guard lock{mutex_};
    const bool may_rest = !model_ && !words_.empty() && ++rested_ < kRestTicks;
    if (may_rest && is_as_before()) {
      samples_.repeat(now_ns<std::chrono::steady_clock>());
      return {};
    }
  }
  return tick();
}

Result<void> Followed::tick() {
  const std::lock_guard lock{mutex_};
  if (!model_) {
    add(view_.ledgers());
    return {};
  }
  if (auto read = poll(); !read) return read;
  add(model_->ledgers());
  return {};
}

Result<void> Followed::finish() {
  if (auto begun = begin_stories(); !begun) return begun;
  const std::lock_guard lock{mutex_};
  return model_ ? model_->catch_up() : success();
}

Result<void> Followed::begin_stories() {
  const std::lock_guard lock{mutex_};
  if (model_) return {};
  model_.emplace(follow::flight_source(view_), kOptions);
  has_begun_ = false;
  if (auto read = poll(); !read) return read;
  return poll();  // what a model has just read of the journal it tells at the next reading
}

void Followed::end_stories() {
  const std::lock_guard lock{mutex_};
  model_.reset();
}

bool Followed::has_stories() const {
  const std::lock_guard lock{mutex_};
  return model_.has_value();
}

void Followed::allow_histories(std::size_t managers) {
  const std::lock_guard lock{mutex_};
  samples_.allow(managers);
}

Followed::Reading Followed::last_reading() const {
  const std::lock_guard lock{mutex_};
  return {.histories = samples_.managers(), .left_out = samples_.left_out(), .failures = failures_};
}

std::uint64_t Followed::events_lost() const {
  const std::lock_guard lock{mutex_};
  return lost_since_beginning();
}

Look Followed::look(LookOptions options) const {
  Look look{.process = view_.process(), .liveness = view_.liveness(), .clock = view_.clock()};
  // Of a program that ended in good order, which closed its managers first, all is told; of any other what there is now.
  look.ledgers = look.liveness == flight::Liveness::dead ? view_.all_ledgers() : view_.ledgers();
  if (options.with_details) {
    look.hooks = view_.hooks();
    look.lanes = view_.lanes();
    look.in_flight = view_.in_flight();
    const std::lock_guard lock{mutex_};
    look.histories = samples_.since(options.since_second);
    if (model_) {
      look.failures = model_->failures(kStoriesShown);
      look.losses = model_->losses();
      look.events_lost = lost_since_beginning();
    } else {
      look.losses.events_refused = look.process.refused_no_lane + look.process.refused_reentrant + look.process.refused_early;
    }
  }
  // Read last, so that nothing above is younger.
  look.monotonic_ns = now_ns<std::chrono::steady_clock>();
  look.realtime_ns = now_ns<std::chrono::system_clock>();
  return look;
}

}  // namespace headroom::exporter
