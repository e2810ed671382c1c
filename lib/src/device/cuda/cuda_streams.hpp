// headroom: the streams that a CUDA resource made.
//
// A stream that was destroyed keeps its handle, for the next one that is asked for once its work has ended. So no value of ours ever
// becomes a stream of the program's, and an event may be recorded on it at any time: what has to be waited for on a destroyed stream
// stays in order without races against its end.
//
// Thread safety: every member, from any thread; no lock is held over a CUDA call. Bounds: as many as were live at once, and one more
// for each that was still busy when the next was asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <headroom/device.hpp>

#include "device/cuda/cuda_device.hpp"

namespace headroom::device {

class CudaStreams {
public:
  explicit CudaStreams(CudaDevice const& device) noexcept : device_(device) {}
  CudaStreams(CudaStreams const&) = delete;
  CudaStreams& operator=(CudaStreams const&) = delete;
  /// Nobody uses the resource any more.
  ~CudaStreams();

  struct Made {
    StreamId stream{};
    bool had_a_life = false;  ///< its value named another stream before
  };
  /// Errors: driver.
  [[nodiscard]] Result<Made> create();
  /// False: not ours, or destroyed before.
  [[nodiscard]] bool end(StreamId stream) noexcept;
  [[nodiscard]] bool is_live(StreamId stream) const noexcept;
  /// Ours, and destroyed. One load while no stream is.
  [[nodiscard]] bool is_ended(StreamId stream) const noexcept {
    if (ended_count_.load(std::memory_order_relaxed) == 0) [[likely]]
      return false;
    return looks_ended(stream);
  }

private:
  [[nodiscard]] bool looks_ended(StreamId stream) const noexcept;
  /// The stream that ended first, if it has come to rest.
  [[nodiscard]] std::optional<StreamId> reuse();

  CudaDevice const& device_;
  mutable std::mutex mutex_;                      // guards what follows
  std::unordered_map<std::uint64_t, bool> made_;  // by value; true while live
  std::deque<std::uint64_t> ended_;               // the first to end in front
  // Streams of made_ that are not live. Written under the lock, read by anyone without it. Relaxed: whoever must not use a stream any
  // more knows that it was destroyed from what told them so, and that ordered the count as well.
  std::atomic<std::size_t> ended_count_{0};
};

}  // namespace headroom::device
