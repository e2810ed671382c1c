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
#include <cstdint>
#include <map>
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

  /// Returns false when the live bytes, or the sum of the peaks, would not fit 64 bits.
  [[nodiscard]] bool add(TraceEvent const& event) {
    if (current_ == nullptr || current_->sum.device != event.device) [[unlikely]]
      select(event.device);
    if (event.from_before) return add_from_before(event);
    summary_.first_time_us = summary_.events == 0 ? event.time_us : std::min(summary_.first_time_us, event.time_us);
    summary_.last_time_us = std::max(summary_.last_time_us, event.time_us);
    ++summary_.events;
    switch (event.action) {
      case TraceEvent::Action::allocate: ++current_->sum.allocations; return hold(event);
      case TraceEvent::Action::allocate_failure: ++current_->sum.trace_failures; return true;
      case TraceEvent::Action::free: add_free(event); return true;
    }
    return true;
  }

  [[nodiscard]] TraceSummary result(std::size_t threads) const {
    auto summary = summary_;
    for (auto const& [number, device] : devices_) {
      auto sum = device.sum;
      sum.live_allocations = device.live.size();
      summary.allocations += sum.allocations;
      summary.frees += sum.frees;
      summary.trace_failures += sum.trace_failures;
      summary.from_before_allocations += sum.from_before_allocations;
      summary.from_before_bytes += sum.from_before_bytes;  // of blocks that were live at once: no more than live_bytes then
      summary.live_allocations += sum.live_allocations;
      auto const& held = device.is_new_peak ? device.now : device.at_peak;
      for (std::size_t i = 0; i < held.size(); ++i) {
        summary.at_peak[i].bytes += held[i].bytes;
        summary.at_peak[i].allocations += held[i].allocations;
      }
      summary.devices.push_back(sum);
    }
    summary.threads = threads;
    return summary;
  }

  [[nodiscard]] Watcher& watcher() noexcept { return watcher_; }

private:
  struct OfDevice {
    DeviceSum sum;
    LiveBlocks<typename Watcher::Value> live;  // an address is a device's own
    std::array<SizeClassSum, kSizeClasses.size()> now{};
    std::array<SizeClassSum, kSizeClasses.size()> at_peak{};
    bool is_new_peak = false;
  };

  static bool holds_nothing(TraceEvent const& event) noexcept { return event.pointer == 0 && event.bytes == 0; }

  void select(std::uint32_t device) {
    current_ = &devices_[device];
    current_->sum.device = device;
  }

  [[nodiscard]] bool add_from_before(TraceEvent const& event) {
    ++current_->sum.from_before_allocations;
    if (!hold(event)) return false;
    current_->sum.from_before_bytes += event.bytes;
    return true;
  }

  [[nodiscard]] bool hold(TraceEvent const& event) {
    if (holds_nothing(event)) return true;
    auto& device = *current_;
    auto const all = checked_add(summary_.live_bytes, event.bytes);
    if (!all) return false;
    auto const live = device.sum.live_bytes + event.bytes;  // no more than all
    auto const rise = live > device.sum.peak_bytes ? live - device.sum.peak_bytes : 0;
    auto const peaks = checked_add(summary_.peak_bytes, rise);
    if (!peaks) return false;
    if (!device.live.insert(event.pointer, event.bytes, watcher_.value_of(event))) {
      ++summary_.duplicate_allocations;
      watcher_.duplicate(event);
    }
    auto& same_size = device.now[size_class(event.bytes)];
    same_size.bytes += event.bytes;
    ++same_size.allocations;
    device.is_new_peak = device.is_new_peak || rise != 0;
    device.sum.live_bytes = live;
    device.sum.peak_bytes += rise;
    summary_.live_bytes = *all;
    summary_.peak_bytes = *peaks;
    return true;
  }

  void add_free(TraceEvent const& event) {
    auto& device = *current_;
    ++device.sum.frees;
    if (holds_nothing(event)) return;
    auto const taken = device.live.take(event.pointer, event.bytes);
    if (!taken) {
      ++summary_.unmatched_frees;
      watcher_.unmatched(event);
      return;
    }
    // Put off until something is given back: a growing history would copy at every record.
    if (std::exchange(device.is_new_peak, false)) device.at_peak = device.now;
    auto& same_size = device.now[size_class(taken->bytes)];
    same_size.bytes -= taken->bytes;
    --same_size.allocations;
    if (taken->bytes != event.bytes) {
      ++summary_.size_mismatches;
      watcher_.mismatch(event, *taken);
    }
    device.sum.live_bytes -= taken->bytes;
    summary_.live_bytes -= taken->bytes;
  }

  Watcher watcher_;
  TraceSummary summary_;  // but for what result() adds up
  std::map<std::uint32_t, OfDevice> devices_;
  OfDevice* current_ = nullptr;  // of the record before
};

/// Reads the rest of `reader`. Errors: those of TraceReader::next_batch, and overflow (as
/// summarize_trace()).
template <class Watcher>
[[nodiscard]] Result<TraceSummary> summarize_rest(TraceReader& reader, Summarizer<Watcher>& summarizer) {
  while (true) {
    auto const batch = reader.next_batch();
    if (!batch) return tl::unexpected{batch.error()};
    if (batch->empty()) return summarizer.result(reader.thread_ids().size());
    for (auto const& event : *batch) {
      if (summarizer.add(event)) continue;
      auto error =
          make_error(ErrorKind::overflow, Layer::request,
                     record_place(reader.name(), reader.format(), event.device, event.line) + ": size " +
                         std::to_string(event.bytes) + " brings the live bytes above 2^64 - 1; expected sizes of real memory");
      error.requested = event.bytes;
      return tl::unexpected{std::move(error)};
    }
  }
}

}  // namespace headroom::trace
