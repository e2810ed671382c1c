#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/trace.hpp>

#include "base/checked.hpp"
#include "trace/live_blocks.hpp"

namespace headroom {
namespace {

struct Nothing {};

class Summarizer {
public:
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
    summary.live_allocations = live_.size();
    summary.threads = threads;
    return summary;
  }

private:
  static bool holds_nothing(TraceEvent const& event) noexcept { return event.pointer == 0 && event.bytes == 0; }

  [[nodiscard]] bool add_allocation(TraceEvent const& event) {
    ++summary_.allocations;
    if (holds_nothing(event)) return true;
    auto const sum = checked_add(summary_.live_bytes, event.bytes);
    if (!sum) return false;
    if (!live_.insert(event.pointer, event.bytes, Nothing{})) ++summary_.duplicate_allocations;
    summary_.live_bytes = *sum;
    summary_.peak_bytes = std::max(summary_.peak_bytes, *sum);
    return true;
  }

  void add_free(TraceEvent const& event) {
    ++summary_.frees;
    if (holds_nothing(event)) return;
    auto const taken = live_.take(event.pointer, event.bytes);
    if (!taken) {
      ++summary_.unmatched_frees;
      return;
    }
    if (taken->bytes != event.bytes) ++summary_.size_mismatches;
    summary_.live_bytes -= taken->bytes;
  }

  TraceSummary summary_;
  trace::LiveBlocks<Nothing> live_;
};

}  // namespace

Result<TraceSummary> summarize_trace(TraceReader& reader) {
  Summarizer summarizer;
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

Result<TraceSummary> summarize_trace(std::string path) {
  auto reader = TraceReader::open(std::move(path));
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return summarize_trace(*reader);
}

}  // namespace headroom
