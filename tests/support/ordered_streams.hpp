// A device made of vector clocks, to test who waits for whom: every stream knows how much of every other stream's work its own next
// work comes after. Counts event operations, fails on demand, and notices an event that is waited for after it was given back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "device/use_events.hpp"

namespace headroom::testing {

class OrderedStreams final : public device::UseEvents {
public:
  static constexpr std::size_t kStreams = 12;
  using Clock = std::array<std::uint64_t, kStreams>;  // by stream: how many of its launches come before

  struct Launch {
    StreamId stream;
    Clock after{};  // its own entry is the number of this launch
    [[nodiscard]] bool comes_after(Launch const& other) const {
      return after.at(other.stream.value) >= other.after.at(other.stream.value);
    }
  };

  Launch launch(StreamId stream) {
    std::lock_guard const lock(mutex_);
    auto& clock = streams_.at(stream.value);
    ++clock[stream.value];
    merge(clock, finished_);
    return {stream, clock};
  }

  Result<std::optional<Event>> record(StreamId stream) override {
    if (before_record) std::exchange(before_record, nullptr)(stream);
    auto event = take_event(stream);
    if (after_record) std::exchange(after_record, nullptr)(stream);
    return event;
  }
  Result<void> wait(StreamId stream, Event event) override {
    std::lock_guard const lock(mutex_);
    if (failing_waits_ != 0 && --failing_waits_ == 0) return fail(ErrorKind::driver, Layer::driver, "cannot wait");
    ++waits_[stream.value];
    auto const found = held_.find(event);
    if (found == held_.end()) {
      ++stale_waits_;
      return success();
    }
    if (stream.value >= kStreams) return success();
    merge(streams_.at(stream.value), found->second);
    return success();
  }
  bool done(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return event <= done_until_;
  }
  void give_back(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    if (held_.erase(event) != 1) ++stale_waits_;
  }
  bool is_live(void const* pointer, std::uint64_t generation) noexcept override {
    if (before_is_live) std::exchange(before_is_live, nullptr)();
    std::lock_guard const lock(mutex_);
    return live_.contains({pointer, generation});
  }

  void allocated(void const* pointer, std::uint64_t generation) {
    std::lock_guard const lock(mutex_);
    live_.insert({pointer, generation});
  }
  void freed(void const* pointer, std::uint64_t generation) {
    std::lock_guard const lock(mutex_);
    live_.erase({pointer, generation});
  }
  void end(StreamId stream) {
    std::lock_guard const lock(mutex_);
    ended_.insert(stream.value);
  }
  void make(StreamId stream) {
    std::lock_guard const lock(mutex_);
    ended_.erase(stream.value);
    if (stream.value < kStreams) {
      auto const launched = streams_.at(stream.value)[stream.value];
      streams_.at(stream.value) = {};  // a new stream comes after nothing
      streams_.at(stream.value)[stream.value] = launched;
    }
  }
  /// Everything that was enqueued so far has run, so whatever is enqueued from now on comes after it.
  void finish_all() {
    std::lock_guard const lock(mutex_);
    for (std::size_t at = 0; at < kStreams; ++at) finished_[at] = streams_[at][at];
    done_until_ = last_event_;
  }
  /// The nth from now fails, once.
  void fail_record(std::uint64_t nth) {
    std::lock_guard const lock(mutex_);
    failing_records_ = nth;
  }
  void fail_wait(std::uint64_t nth) {
    std::lock_guard const lock(mutex_);
    failing_waits_ = nth;
  }

  [[nodiscard]] std::uint64_t records(StreamId stream) const { return count(records_, stream); }
  [[nodiscard]] std::uint64_t waits(StreamId stream) const { return count(waits_, stream); }
  [[nodiscard]] std::uint64_t records() const { return sum(records_); }
  [[nodiscard]] std::uint64_t waits() const { return sum(waits_); }
  [[nodiscard]] std::size_t held() const {
    std::lock_guard const lock(mutex_);
    return held_.size();
  }
  [[nodiscard]] std::size_t most_held() const {
    std::lock_guard const lock(mutex_);
    return most_held_;
  }
  /// Waits for events that had been given back, and events given back twice: must stay 0.
  [[nodiscard]] std::uint64_t stale() const {
    std::lock_guard const lock(mutex_);
    return stale_waits_;
  }

  // What another thread does at that point, once. Set while one thread runs.
  std::function<void(StreamId)> before_record, after_record;
  std::function<void()> before_is_live;

private:
  Result<std::optional<Event>> take_event(StreamId stream) {
    std::lock_guard const lock(mutex_);
    if (ended_.contains(stream.value)) return std::nullopt;
    if (failing_records_ != 0 && --failing_records_ == 0) {
      return fail(ErrorKind::driver, Layer::driver, "no event left");
    }
    ++records_[stream.value];
    held_.emplace(++last_event_, stream.value < kStreams ? streams_.at(stream.value) : Clock{});
    most_held_ = std::max(most_held_, held_.size());
    return last_event_;
  }
  static void merge(Clock& clock, Clock const& with) {
    for (std::size_t at = 0; at < kStreams; ++at) clock[at] = std::max(clock[at], with[at]);
  }
  using Counts = std::map<std::uint64_t, std::uint64_t>;
  [[nodiscard]] std::uint64_t count(Counts const& counts, StreamId stream) const {
    std::lock_guard const lock(mutex_);
    auto const found = counts.find(stream.value);
    return found == counts.end() ? 0 : found->second;
  }
  [[nodiscard]] std::uint64_t sum(Counts const& counts) const {
    std::lock_guard const lock(mutex_);
    std::uint64_t total = 0;
    for (auto const& [stream, n] : counts) total += n;
    return total;
  }

  mutable std::mutex mutex_;  // guards what follows
  std::array<Clock, kStreams> streams_{};
  Clock finished_{};
  std::map<Event, Clock> held_;
  std::set<std::pair<void const*, std::uint64_t>> live_;
  std::set<std::uint64_t> ended_;
  Counts records_, waits_;
  Event last_event_ = 0;
  Event done_until_ = 0;
  std::size_t most_held_ = 0;
  std::uint64_t stale_waits_ = 0;
  std::uint64_t failing_records_ = 0;  // counts down; 0 = none
  std::uint64_t failing_waits_ = 0;
};

}  // namespace headroom::testing
