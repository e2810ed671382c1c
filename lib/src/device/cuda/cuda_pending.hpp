// headroom: frees that CUDA accepted and has not come to yet.
//
//   stream │ batches, oldest first
//   ───────┼─────────────────────────────────────────────────────────────
//     A    │ [64 frees, event] [64 frees, event] [12 frees, no event yet]
//     B    │ [3 frees, event]
//
// A free is added to the last batch of its stream after CUDA accepted it. Whoever reaps gives each batch without an event one, which
// comes after all of its frees and those of earlier batches; later frees begin a new batch. A batch is two sums and an event, however many frees it stands for.
//
// A *lasting* stream (the default stream, and those that the resource made) can be given an event at any time, so it gets one for
// kFreesInBatch frees at most, or when somebody reaps. A stream of the program's own may be destroyed right after the free, so each
// free there gets its event at once, by the thread that frees.
//
// Nobody may ever reap: a stream with kCrowd batches has its finished ones taken by the frees that follow. What is left is work that
// the driver's queue holds, which is bounded.
//
// Thread safety: every member, from any thread. The lock guards the table only; events are recorded, asked and waited for, and bytes
// are reported, without it. A batch whose event is just being recorded by one thread is pending for all others.
// Cost: a short lock and a look-up for each free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include <headroom/device.hpp>

#include "base/short_lock.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_events.hpp"
#include "device/returned_bytes.hpp"
#include "device/use_events.hpp"

namespace headroom::device {

class CudaPending {
public:
  static constexpr std::uint32_t kFreesInBatch = 64;
  static constexpr std::size_t kCrowd = 4;

  /// Events come from `events` and go back through `owner`; `outstanding` falls as bytes come back. All outlive this.
  CudaPending(CudaDevice const& device, CudaEvents& events, UseEvents& owner, std::atomic<std::uint64_t>& outstanding);
  CudaPending(CudaPending const&) = delete;
  CudaPending& operator=(CudaPending const&) = delete;

  /// A stream that exists as long as this does.
  void add_lasting(StreamId stream);
  /// A free on the stream that CUDA accepted. Never fails: what cannot be noted is waited for.
  void add(StreamId stream, std::uint64_t bytes, ReturnSink* sink) noexcept;
  /// As DeviceResource::reap_pending. Errors: driver; what has come back by then was reported.
  [[nodiscard]] Result<std::uint64_t> reap(ReapMode mode);

private:
  enum class Event : std::uint8_t { none, being_recorded, recorded };
  struct Batch {
    std::uint64_t number = 0;  ///< increasing over all streams
    std::uint64_t bytes = 0;
    std::uint32_t frees = 0;
    Event state = Event::none;
    EventRef event{};  ///< set when recorded
    ReturnedBytes sinks;
  };
  struct Stream {
    bool lasting = false;
    std::deque<Batch> batches;
  };
  /// A batch as it is named outside the lock.
  struct Named {
    StreamId stream{};
    std::uint64_t number = 0;
    EventRef event{};
  };
  /// What there is to wait for, up to a number.
  struct Due {
    std::vector<Named> recorded;  ///< of each stream one
    bool others = false;          ///< there are batches that another thread is recording
  };
  enum class Which : std::uint8_t { oldest, newest };

  /// What nearly every free needs: the stream of the last one, a batch that stays open. False: nothing was noted.
  [[nodiscard]] bool note_in_open_batch(StreamId stream, std::uint64_t bytes, ReturnSink* sink) noexcept;
  /// Under the lock.
  Batch& open_batch(Stream& stream);
  Stream& at(StreamId stream);
  void note(StreamId stream, std::uint64_t bytes, ReturnSink* sink, std::optional<std::uint64_t>& full, bool& crowded);

  [[nodiscard]] Result<void> record(StreamId stream, std::uint64_t number);
  /// Gives an event to every batch up to the number that lacks one.
  [[nodiscard]] Result<void> record_all(std::uint64_t up_to);
  [[nodiscard]] Due due(Which which, std::uint64_t up_to);
  /// The oldest batch of the stream that has an event.
  [[nodiscard]] std::optional<Named> oldest(StreamId stream);
  /// Under the lock. Null: none has an event; `others` becomes true when there are some without.
  [[nodiscard]] static Batch const* choose(Stream const& stream, Which which, std::uint64_t up_to, bool& others);
  /// The batch has come, and with it all earlier ones of its stream: takes them out, reports them. Returns their bytes.
  std::uint64_t settle(Named const& batch);
  /// Takes what is finished, on all streams or on that one.
  [[nodiscard]] Result<std::uint64_t> take_finished();
  [[nodiscard]] Result<std::uint64_t> take_finished(StreamId stream);
  /// Takes the batch if it has come; nothing: not yet.
  [[nodiscard]] Result<std::optional<std::uint64_t>> take_if_finished(Named const& batch);
  [[nodiscard]] Result<std::uint64_t> wait_for_all();
  [[nodiscard]] Result<std::uint64_t> wait_for_one();
  /// The driver is gone, and all memory with it.
  std::uint64_t take_everything();
  [[nodiscard]] tl::unexpected<Error> failed(int code, StreamId stream) const;

  CudaDevice const& device_;
  CudaEvents& events_;
  UseEvents& owner_;
  std::atomic<std::uint64_t>& outstanding_;  // see CudaCore

  ShortLock lock_;  // guards what follows
  std::unordered_map<std::uint64_t, Stream> streams_;
  StreamId last_stream_{};  // the one of the last free, which is likely that of the next
  Stream* last_ = nullptr;
  std::uint64_t last_number_ = 0;
};

}  // namespace headroom::device
