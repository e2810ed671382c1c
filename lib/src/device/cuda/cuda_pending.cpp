#include "device/cuda/cuda_pending.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <ranges>
#include <utility>

#include "device/backoff.hpp"
#include "device/cuda/cuda_errors.hpp"

namespace headroom::device {
namespace {

// Nothing tells which of several streams finishes first: they are asked in turn, at first as fast as others let us.
constexpr Backoff::Bounds kPauses{.shortest = std::chrono::microseconds{20}, .longest = std::chrono::microseconds{500}};

}  // namespace

CudaPending::CudaPending(CudaDevice const& device, CudaEvents& events, UseEvents& owner, std::atomic<std::uint64_t>& outstanding)
    : device_(device), events_(events), owner_(owner), outstanding_(outstanding) {
  constexpr std::uint64_t kLegacyStream = 1;  // cudaStreamLegacy: the default stream by another name
  add_lasting({});
  add_lasting({kLegacyStream});
}

void CudaPending::add_lasting(StreamId stream) {
  std::lock_guard const lock(lock_);
  streams_[stream.value].lasting = true;
}

CudaPending::Stream& CudaPending::at(StreamId stream) {
  if (last_ == nullptr || last_stream_ != stream) {
    last_ = &streams_[stream.value];
    last_stream_ = stream;
  }
  return *last_;
}

CudaPending::Batch& CudaPending::open_batch(Stream& stream) {
  if (stream.batches.empty() || stream.batches.back().state != Event::none) {
    stream.batches.emplace_back().number = ++last_number_;
  }
  return stream.batches.back();
}

void CudaPending::note(StreamId stream, std::uint64_t bytes, ReturnSink* sink, std::optional<std::uint64_t>& full,
                       bool& crowded) {
  std::lock_guard const lock(lock_);
  auto& frees = at(stream);
  auto* batch = &open_batch(frees);
  auto const crammed = !batch->sinks.add(sink, bytes);
  if (crammed) [[unlikely]] {
    // Too many sinks for one batch. The next one gets its event at once, which stands for both.
    batch = &frees.batches.emplace_back();
    batch->number = ++last_number_;
    static_cast<void>(batch->sinks.add(sink, bytes));
  }
  batch->bytes += bytes;
  ++batch->frees;
  if (frees.lasting && batch->frees < kFreesInBatch && !crammed) [[likely]]
    return;
  batch->state = Event::being_recorded;
  full = batch->number;
  crowded = frees.batches.size() >= kCrowd;
}

bool CudaPending::note_in_open_batch(StreamId stream, std::uint64_t bytes, ReturnSink* sink) noexcept {
  std::lock_guard const lock(lock_);
  if (last_ == nullptr || last_stream_ != stream || !last_->lasting || last_->batches.empty()) return false;
  auto& batch = last_->batches.back();
  if (batch.state != Event::none || batch.frees + 1 >= kFreesInBatch || !batch.sinks.add(sink, bytes)) return false;
  batch.bytes += bytes;
  ++batch.frees;
  return true;
}

void CudaPending::add(StreamId stream, std::uint64_t bytes, ReturnSink* sink) noexcept {
  if (note_in_open_batch(stream, bytes, sink)) [[likely]]
    return;
  std::optional<std::uint64_t> full;
  bool crowded = false;
  try {
    note(stream, bytes, sink, full, crowded);
    if (!full) [[likely]]
      return;
    // A failure leaves the batch without an event: whoever reaps tries again, and tells.
    static_cast<void>(record(stream, *full));
    if (crowded) static_cast<void>(take_finished(stream));
  } catch (std::bad_alloc const&) {
    // A failure after it was noted concerns only when the bytes come back.
    if (full) return;
    static_cast<void>(device_.call([&](CudaApi& api) { return api.stream_synchronize(stream.value); }));
    outstanding_.fetch_sub(bytes, std::memory_order_relaxed);
    if (sink != nullptr) sink->returned(bytes);
  }
}

Result<void> CudaPending::record(StreamId stream, std::uint64_t number) {
  EventRef event;
  std::optional<Error> failure;
  try {
    auto made = std::make_shared<RecordedEvent>(owner_);
    // Also on a stream that was destroyed: its handle is kept (CudaStreams).
    if (auto recorded = events_.record(stream)) {
      made->set(*recorded);
      event = std::move(made);
    } else {
      failure = std::move(recorded.error());
    }
  } catch (std::bad_alloc const&) {
    failure.emplace();  // without words: they would need memory, too
    failure->kind = ErrorKind::io;
    failure->layer = Layer::resource;
  }
  {
    std::lock_guard const lock(lock_);
    // It may be gone: with a later batch of the stream that another thread saw come.
    if (auto const on = streams_.find(stream.value); on != streams_.end()) {
      auto& batches = on->second.batches;
      if (auto const found = std::ranges::find(batches, number, &Batch::number); found != batches.end()) {
        found->state = event == nullptr ? Event::none : Event::recorded;
        found->event = std::move(event);
      }
    }
  }
  if (failure) return tl::make_unexpected(*std::move(failure));
  return success();
}

Result<void> CudaPending::record_all(std::uint64_t up_to) {
  std::vector<Named> without;
  {
    std::lock_guard const lock(lock_);
    for (auto& [value, stream] : streams_) {
      for (auto& batch : stream.batches) {
        if (batch.state != Event::none || batch.number > up_to) continue;
        without.push_back({.stream = {value}, .number = batch.number});
        batch.state = Event::being_recorded;
      }
    }
  }
  std::optional<Error> failure;
  for (auto const& batch : without) {
    if (auto recorded = record(batch.stream, batch.number); !recorded && !failure) failure = std::move(recorded.error());
  }
  if (failure) return tl::make_unexpected(*std::move(failure));
  return success();
}

CudaPending::Batch const* CudaPending::choose(Stream const& stream, Which which, std::uint64_t up_to, bool& others) {
  Batch const* chosen = nullptr;
  for (auto const& batch : stream.batches) {
    if (batch.number > up_to) break;
    if (batch.state != Event::recorded) {
      others = true;
      continue;
    }
    chosen = &batch;
    if (which == Which::oldest) break;
  }
  return chosen;
}

CudaPending::Due CudaPending::due(Which which, std::uint64_t up_to) {
  Due found;
  std::lock_guard const lock(lock_);
  for (auto const& [value, stream] : streams_) {
    if (auto const* const batch = choose(stream, which, up_to, found.others); batch != nullptr)
      found.recorded.push_back({.stream = {value}, .number = batch->number, .event = batch->event});
  }
  return found;
}

std::optional<CudaPending::Named> CudaPending::oldest(StreamId stream) {
  bool others = false;
  std::lock_guard const lock(lock_);
  auto const found = streams_.find(stream.value);
  auto const* const batch = found == streams_.end() ? nullptr : choose(found->second, Which::oldest, UINT64_MAX, others);
  if (batch == nullptr) return std::nullopt;
  return Named{.stream = stream, .number = batch->number, .event = batch->event};
}

std::uint64_t CudaPending::settle(Named const& batch) {
  std::uint64_t bytes = 0;
  std::deque<Batch> taken;  // its events are given back without the lock
  {
    std::lock_guard const lock(lock_);
    auto const found = streams_.find(batch.stream.value);
    if (found == streams_.end()) return 0;  // another thread was here first
    auto& batches = found->second.batches;
    while (!batches.empty() && batches.front().number <= batch.number) {
      taken.push_back(std::move(batches.front()));
      batches.pop_front();
    }
    if (batches.empty() && !found->second.lasting) {
      if (last_ == &found->second) last_ = nullptr;
      streams_.erase(found);
    }
  }
  for (auto const& one : taken) bytes += one.bytes;
  if (bytes == 0) return 0;
  outstanding_.fetch_sub(bytes, std::memory_order_relaxed);
  for (auto const& one : taken) one.sinks.report();
  return bytes;
}

tl::unexpected<Error> CudaPending::failed(int code, StreamId stream) const {
  return tl::make_unexpected(cuda_error(device_.api(), code, "waiting for frees on " + cuda_stream(stream)));
}

Result<std::optional<std::uint64_t>> CudaPending::take_if_finished(Named const& batch) {
  auto const code = device_.quiet([&](CudaApi& api) { return api.event_query(batch.event->value()); });
  if (code == CudaCode::kNotReady) return std::nullopt;
  if (is_gone(code)) return take_everything();
  if (code != CudaCode::kSuccess) return failed(code, batch.stream);
  return settle(batch);
}

Result<std::uint64_t> CudaPending::take_finished() {
  std::uint64_t reaped = 0;
  for (bool more = true; more;) {
    more = false;
    auto const heads = due(Which::oldest, UINT64_MAX).recorded;
    for (auto const& head : heads) {
      auto taken = take_if_finished(head);
      if (!taken) return tl::make_unexpected(std::move(taken.error()));
      if (!*taken) continue;
      reaped += **taken;
      more = true;  // the next one of the stream may have come, too
    }
  }
  return reaped;
}

Result<std::uint64_t> CudaPending::take_finished(StreamId stream) {
  std::uint64_t reaped = 0;
  while (auto const head = oldest(stream)) {
    auto taken = take_if_finished(*head);
    if (!taken) return tl::make_unexpected(std::move(taken.error()));
    if (!*taken) break;
    reaped += **taken;
  }
  return reaped;
}

Result<std::uint64_t> CudaPending::wait_for_all() {
  std::uint64_t up_to = 0;
  {
    std::lock_guard const lock(lock_);
    up_to = last_number_;
  }
  std::uint64_t reaped = 0;
  Backoff pause{kPauses};
  for (;;) {
    if (auto recorded = record_all(up_to); !recorded) {
      if (is_gone(recorded.error().device_code)) return reaped + take_everything();
      return tl::make_unexpected(std::move(recorded.error()));
    }
    auto const left = due(Which::newest, up_to);
    if (left.recorded.empty()) {
      if (!left.others) return reaped;
      pause.once();  // another thread is recording
      continue;
    }
    for (auto const& batch : left.recorded) {
      auto const code = device_.call([&](CudaApi& api) { return api.event_synchronize(batch.event->value()); });
      if (is_gone(code)) return reaped + take_everything();
      if (code != CudaCode::kSuccess) return failed(code, batch.stream);
      reaped += settle(batch);
    }
  }
}

Result<std::uint64_t> CudaPending::wait_for_one() {
  Backoff pause{kPauses};
  for (;;) {
    auto const heads = due(Which::oldest, UINT64_MAX);
    if (heads.recorded.empty() && !heads.others) return 0;
    if (heads.recorded.size() == 1 && !heads.others) {
      auto const& only = heads.recorded.front();
      auto const code = device_.call([&](CudaApi& api) { return api.event_synchronize(only.event->value()); });
      if (is_gone(code)) return take_everything();
      if (code != CudaCode::kSuccess) return failed(code, only.stream);
    }
    auto taken = take_finished();
    if (!taken || *taken != 0) return taken;
    pause.once();
    // What another thread could not record, and frees that came meanwhile on streams that had none.
    if (auto recorded = record_all(UINT64_MAX); !recorded) {
      if (is_gone(recorded.error().device_code)) return take_everything();
      return tl::make_unexpected(std::move(recorded.error()));
    }
  }
}

Result<std::uint64_t> CudaPending::reap(ReapMode mode) {
  if (mode == ReapMode::synchronize) return wait_for_all();
  if (auto recorded = record_all(UINT64_MAX); !recorded) {
    if (is_gone(recorded.error().device_code)) return take_everything();
    return tl::make_unexpected(std::move(recorded.error()));
  }
  auto taken = take_finished();
  if (mode == ReapMode::query || !taken || *taken != 0) return taken;
  return wait_for_one();
}

std::uint64_t CudaPending::take_everything() {
  std::uint64_t bytes = 0;
  std::deque<Batch> taken;
  {
    std::lock_guard const lock(lock_);
    for (auto& [value, stream] : streams_) {
      std::ranges::move(stream.batches, std::back_inserter(taken));
      stream.batches.clear();
    }
  }
  for (auto const& one : taken) bytes += one.bytes;
  outstanding_.fetch_sub(bytes, std::memory_order_relaxed);
  for (auto const& one : taken) one.sinks.report();
  return bytes;
}

}  // namespace headroom::device
