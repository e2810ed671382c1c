#include "device/use_tracker.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace headroom::device {
namespace {

constexpr std::size_t kSmallestCrowd = 8;

tl::unexpected<Error> over(UsedBlock const& block) {
  return fail(ErrorKind::use_after_free, Layer::resource,
              "the block of generation " + std::to_string(block.generation) + " was freed before its use was declared");
}

// What the driver said, and what it was asked for.
tl::unexpected<Error> failed(Error error, std::string_view what, StreamId stream) {
  error.message = std::string(what) + " stream " + std::to_string(stream.value) + " failed: " + error.message;
  return tl::make_unexpected(std::move(error));
}

}  // namespace

std::size_t UseTracker::Hash::operator()(Key key) const noexcept {
  auto const mixed = (std::bit_cast<std::uint64_t>(key.pointer) ^ (key.generation << 20)) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(mixed ^ (mixed >> 32));
}

bool UseTracker::find_or_make(Shard& shard, UsedBlock const& block, UseHistory*& history) {
  Key const key{block.pointer, block.generation};
  auto [found, made] = shard.blocks.try_emplace(key, block.allocation_stream, shard.clock + 1);
  history = &found->second;
  if (!made) return false;
  ++shard.clock;
  blocks_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Result<void> UseTracker::still_live(UsedBlock const& block) {
  if (events_.is_live(block.pointer, block.generation)) return success();
  forget(block);
  return over(block);
}

Result<void> UseTracker::prepare(UsedBlock const& block, StreamId stream, UseKind kind) {
  auto const own = stream == block.allocation_stream;
  if (own && !any()) return success();
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  Plan plan;
  bool made = false;
  {
    std::lock_guard const lock(shard.mutex);
    if (own && !shard.blocks.contains(key)) return success();
    UseHistory* history = nullptr;
    made = find_or_make(shard, block, history);
    plan = {history->before(stream, kind), shard.clock};
  }
  if (made) {
    if (auto live = still_live(block); !live) return live;
  }
  return carry_out(std::move(plan), block, stream, kind);
}

Result<bool> UseTracker::prepare_free(UsedBlock const& block, StreamId stream) {
  auto const own = stream == block.allocation_stream;
  if (own && !any()) return false;
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  std::optional<Plan> plan;
  {
    std::lock_guard const lock(shard.mutex);
    if (auto const found = shard.blocks.find(key); found != shard.blocks.end()) {
      plan = {found->second.before(stream, UseKind::write), shard.clock};
    }
  }
  if (plan) return carry_out(*std::move(plan), block, stream, UseKind::write).map([] { return true; });
  if (own) return false;
  // Never used on another stream: the work of its own stream is all there is to wait for, and no entry is needed for that.
  auto end = end_of(block.allocation_stream);
  if (!end) return tl::make_unexpected(std::move(end.error()));
  if (*end != nullptr) {
    if (auto waited = events_.wait(stream, (*end)->value()); !waited)
      return failed(std::move(waited.error()), "a wait on", stream);
  }
  return true;
}

Result<void> UseTracker::carry_out(Plan plan, UsedBlock const& block, StreamId stream, UseKind kind) {
  if (plan.waits.empty()) return success();
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  for (auto& awaited : plan.waits) {
    if (awaited.event == nullptr) {
      auto end = end_of(block.allocation_stream);
      if (!end) return tl::make_unexpected(std::move(end.error()));
      awaited.event = *std::move(end);
      std::lock_guard const lock(shard.mutex);
      if (auto const found = shard.blocks.find(key); found != shard.blocks.end())
        found->second.set_allocation_event(awaited.event);
    }
    if (awaited.event == nullptr) continue;  // it has finished
    if (auto waited = events_.wait(stream, awaited.event->value()); !waited) {
      return failed(std::move(waited.error()), "a wait on", stream);
    }
  }
  // Only now may other uses of the stream rely on the waits: they are in its queue.
  bool crowded = false;
  {
    std::lock_guard const lock(shard.mutex);
    auto const found = shard.blocks.find(key);
    if (found == shard.blocks.end()) return over(block);
    found->second.waited(stream, kind, plan.number);
    crowded = found->second.crowded();
  }
  if (crowded) tidy(block);
  return success();
}

Result<void> UseTracker::finish(UsedBlock const& block, StreamId stream, UseKind kind) {
  auto const own = stream == block.allocation_stream;
  if (own && !any()) return success();
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  UseHistory::NewUse use{.stream = stream, .kind = kind};
  {
    std::lock_guard const lock(shard.mutex);
    auto const found = shard.blocks.find(key);
    if (found == shard.blocks.end() && own) return success();
    if (found != shard.blocks.end()) use.covered = found->second.waited_for_all(stream);
    use.ticket = ++shard.clock;
  }
  auto event = record(stream);
  if (!event) return tl::make_unexpected(std::move(event.error()));
  if (*event == nullptr) {
    return fail(ErrorKind::stream_misuse, Layer::resource,
                "stream " + std::to_string(stream.value) + " was destroyed before a use on it was declared");
  }
  use.event = *std::move(event);
  std::vector<EventRef> dropped;  // outlives the lock
  bool made = false;
  bool crowded = false;
  {
    std::lock_guard const lock(shard.mutex);
    UseHistory* history = nullptr;
    made = find_or_make(shard, block, history);
    history->add(use, ++shard.clock, dropped);
    crowded = history->crowded();
  }
  if (made) return still_live(block);
  if (crowded) tidy(block);
  return success();
}

void UseTracker::forget(UsedBlock const& block) noexcept {
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  decltype(shard.blocks)::node_type forgotten;  // its events are given back without the lock
  std::lock_guard const lock(shard.mutex);
  forgotten = shard.blocks.extract(key);
  if (!forgotten.empty()) blocks_.fetch_sub(1, std::memory_order_relaxed);
}

Result<EventRef> UseTracker::record(StreamId stream) {
  auto event = std::make_shared<RecordedEvent>(events_);  // before the driver's, which could not be given back without it
  auto recorded = events_.record(stream);
  if (!recorded) return failed(std::move(recorded.error()), "recording an event on", stream);
  if (!*recorded) return nullptr;
  event->set(**recorded);
  return event;
}

Result<EventRef> UseTracker::end_of(StreamId stream) {
  auto event = record(stream);
  if (!event || *event != nullptr) return event;
  // The stream was ended. Its end was noted before, or it had come already.
  std::lock_guard const lock(ended_mutex_);
  auto const found = ended_.find(stream.value);
  return found == ended_.end() ? nullptr : found->second;
}

Result<void> UseTracker::stream_ends(StreamId stream) {
  auto end = record(stream);
  if (!end) return tl::make_unexpected(std::move(end.error()));
  if (*end == nullptr || events_.done((*end)->value())) return success();
  bool crowded = false;
  {
    std::lock_guard const lock(ended_mutex_);
    ended_[stream.value].swap(*end);  // an older one of this value goes out with `end`: the stream came after it
    crowded = ended_.size() >= ended_crowded_at_;
  }
  if (crowded) tidy_ended();
  return success();
}

Result<void> UseTracker::stream_made(StreamId stream) {
  EventRef end;
  {
    std::lock_guard const lock(ended_mutex_);
    auto const found = ended_.find(stream.value);
    if (found == ended_.end()) return success();
    end = found->second;
  }
  // The event stays until it has come: a thread that found the old stream ended may be about to look for it.
  if (auto waited = events_.wait(stream, end->value()); !waited) return failed(std::move(waited.error()), "a wait on", stream);
  return success();
}

void UseTracker::tidy(UsedBlock const& block) {
  Key const key{block.pointer, block.generation};
  auto& shard = shard_of(key);
  std::vector<UseHistory::Awaited> finished;  // holds its events until the lock is given back
  {
    std::lock_guard const lock(shard.mutex);
    auto const found = shard.blocks.find(key);
    if (found == shard.blocks.end()) return;
    finished = found->second.recorded();
  }
  std::erase_if(finished, [this](auto const& use) { return !events_.done(use.event->value()); });
  std::lock_guard const lock(shard.mutex);
  if (auto const found = shard.blocks.find(key); found != shard.blocks.end()) found->second.drop_finished(finished);
}

void UseTracker::tidy_ended() {
  std::vector<std::pair<std::uint64_t, EventRef>> finished;
  {
    std::lock_guard const lock(ended_mutex_);
    finished.assign(ended_.begin(), ended_.end());
  }
  std::erase_if(finished, [this](auto const& end) { return !events_.done(end.second->value()); });
  std::lock_guard const lock(ended_mutex_);
  for (auto const& [stream, event] : finished) {
    if (auto const found = ended_.find(stream); found != ended_.end() && found->second == event) ended_.erase(found);
  }
  ended_crowded_at_ = std::max(kSmallestCrowd, 2 * ended_.size());
}

}  // namespace headroom::device
