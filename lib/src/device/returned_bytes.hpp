// headroom: whom to tell about memory that came back, gathered under a resource's lock and told outside it.
//
// All blocks of a device go back to one account in practice, so that a few sums are enough and reaping needs no memory of its own. A
// resource that meets one sink too many stops, reports, and goes on.
//
// Thread safety: none, on one thread's stack. Cost: a comparison for each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <headroom/device.hpp>

namespace headroom {

class ReturnedBytes {
public:
  void clear() noexcept {
    used_ = 0;
    full_ = false;
  }
  /// False when there is no room for one more sink: report, clear and try again.
  [[nodiscard]] bool add(ReturnSink* sink, std::uint64_t bytes) noexcept {
    if (sink == nullptr) return true;
    std::size_t at = 0;
    while (at < used_ && sums_[at].sink != sink) ++at;
    if (at == sums_.size()) {
      full_ = true;
      return false;
    }
    if (at == used_) sums_[used_++] = {sink, 0};
    sums_[at].bytes += bytes;
    return true;
  }
  [[nodiscard]] bool was_full() const noexcept { return full_; }
  /// Calls each sink once. No lock may be held.
  void report() const noexcept {
    for (std::size_t at = 0; at < used_; ++at) sums_[at].sink->returned(sums_[at].bytes);
  }

private:
  struct Sum {
    ReturnSink* sink = nullptr;
    std::uint64_t bytes = 0;
  };
  std::array<Sum, 8> sums_{};
  std::size_t used_ = 0;
  bool full_ = false;
};

}  // namespace headroom
