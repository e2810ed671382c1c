// headroom: adds up a history, and tells a watcher what cannot be matched.
//
// The rules are those of TraceSummary. A Watcher has a type `Value`, kept with every live block, and
//   Value value_of(TraceEvent const&);             // of an allocation
//   void unmatched(TraceEvent const&);             // a free of an address with nothing live there
//   void duplicate(TraceEvent const&);             // an allocation at a live address
//   void mismatch(TraceEvent const&, Live const&); // a free with another size than its allocation
// Thread safety: one thread at a time. Memory: proportional to the live blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <headroom/error.hpp>
#include <headroom/trace.hpp>

#include "base/checked.hpp"
#include "trace/live_blocks.hpp"

namespace headroom::trace {

/// Watches nothing.
struct NoWatcher {
  struct Value {};
  static Value value_of(TraceEvent const& /*event*/) noexcept { return {}; }
  static void unmatched(TraceEvent const& /*event*/) noexcept {}
  static void duplicate(TraceEvent const& /*event*/) noexcept {}
  static void mismatch(TraceEvent const& /*event*/, LiveBlocks<Value>::Live const& /*live*/) noexcept {}
};

template <class Watcher>
class Summarizer {
public:
  explicit Summarizer(Watcher watcher = {}) : watcher_{std::move(watcher)} {}

  /// Returns false when the live bytes would not fit 64 bits.
  [[nodiscard]] bool add(TraceEvent const& event) {
    summary_.first_time_us = summary_.events == 0 ? event.time_us : std::min(summary_.first_time_us, event.time_us);
    summary_.last_time_us = std::max(summary_.last_time_us, event.time_us);
    ++summary_.events;
    switch (event.action) {
      case TraceEvent::Action::allocate: return add_allocation(event);
      case TraceEvent::Action::allocate_failure: ++summary_.trace_failures; return true;
      case TraceEvent::Action::free: add_free(event); return true;
    }
    return true;
  }

  [[nodiscard]] TraceSummary result(std::size_t threads) const {
    auto summary = summary_;
    if (is_new_peak_) summary.at_peak = now_;
    summary.live_allocations = live_.size();
    summary.threads = threads;
    return summary;
  }

  [[nodiscard]] Watcher& watcher() noexcept { return watcher_; }

private:
  static bool holds_nothing(TraceEvent const& event) noexcept { return event.pointer == 0 && event.bytes == 0; }

  [[nodiscard]] bool add_allocation(TraceEvent const& event) {
    ++summary_.allocations;
    if (holds_nothing(event)) return true;
    auto const sum = checked_add(summary_.live_bytes, event.bytes);
    if (!sum) return false;
    if (!live_.insert(event.pointer, event.bytes, watcher_.value_of(event))) {
      ++summary_.duplicate_allocations;
      watcher_.duplicate(event);
    }
    auto& same_size = now_[size_class(event.bytes)];
    same_size.bytes += event.bytes;
    ++same_size.allocations;
    summary_.live_bytes = *sum;
    is_new_peak_ = is_new_peak_ || *sum > summary_.peak_bytes;
    summary_.peak_bytes = std::max(summary_.peak_bytes, *sum);
    return true;
  }

  void add_free(TraceEvent const& event) {
    ++summary_.frees;
    if (holds_nothing(event)) return;
    auto const taken = live_.take(event.pointer, event.bytes);
    if (!taken) {
      ++summary_.unmatched_frees;
      watcher_.unmatched(event);
      return;
    }
    // Put off until something is given back: a growing history would copy at every record.
    if (std::exchange(is_new_peak_, false)) summary_.at_peak = now_;
    auto& same_size = now_[size_class(taken->bytes)];
    same_size.bytes -= taken->bytes;
    --same_size.allocations;
    if (taken->bytes != event.bytes) {
      ++summary_.size_mismatches;
      watcher_.mismatch(event, *taken);
    }
    summary_.live_bytes -= taken->bytes;
  }

  Watcher watcher_;
  TraceSummary summary_;
  std::array<SizeClassSum, kSizeClasses.size()> now_{};
  bool is_new_peak_ = false;
  LiveBlocks<typename Watcher::Value> live_;
};

/// Reads the rest of `reader`. Errors: those of TraceReader::next_batch, and overflow (live bytes above 2^64 − 1, with the line).
template <class Watcher>
[[nodiscard]] Result<TraceSummary> summarize_rest(TraceReader& reader, Summarizer<Watcher>& summarizer) {
  while (true) {
    auto const batch = reader.next_batch();
    if (!batch) return tl::unexpected{batch.error()};
    if (batch->empty()) return summarizer.result(reader.thread_ids().size());
    for (auto const& event : *batch) {
      if (summarizer.add(event)) continue;
      auto error = make_error(ErrorKind::overflow, Layer::request,
                              reader.name() + ':' + std::to_string(event.line) + ": size " + std::to_string(event.bytes) +
                                  " brings the live bytes above 2^64 - 1; expected sizes of real memory");
      error.requested = event.bytes;
      return tl::unexpected{std::move(error)};
    }
  }
}

}  // namespace headroom::trace
