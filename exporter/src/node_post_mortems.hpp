// headroom: what a killed process left becomes a post-mortem, and then its flight file goes.
//
// The file is removed only after its counters were taken (NodeBooks gives corpses out after that) and its post-mortem is written, and
// only if it is ours: its owner is the user we run as, it is still the file that was mapped, and its process died before our eyes or
// is dead for certain. Files of other users stay for their own programs to tidy away, and so does what could not be written.
//
// Thread safety: take() on one thread; the counts from any. Cost: some 25 ms each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "node_books.hpp"

namespace headroom::exporter {

class NodePostMortems {
public:
  struct Options {
    bool on = true;
    std::string folder;  ///< empty: where programs put their own
    std::function<bool(flight::FlightView const&)> is_whole;
    std::function<void(std::string const&)> log;
  };
  explicit NodePostMortems(Options options) : options_(std::move(options)) {}

  void take(NodeBooks::Corpse const& corpse);

  [[nodiscard]] std::uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

private:
  void say(std::string const& line) const {
    if (options_.log) options_.log(line);
  }

  Options options_;
  std::atomic<std::uint64_t> written_{0};  // by the thread of take(), read by scrapes; relaxed, like the next: counts
  std::atomic<std::uint64_t> failed_{0};
};

}  // namespace headroom::exporter
