// The events in the order of the file: whoever has the turn applies its steps until one belongs to another thread, then hands the
// turn over. Everything but the turn itself belongs to whoever has it, so a single recorded thread pays for none of this.
#include <atomic>
#include <optional>
#include <vector>

#include "trace/replay_loops.hpp"
#include "trace/replay_threads.hpp"

namespace headroom::trace {
namespace {

/// Who may go. A flag for each thread on a line of its own, so that a hand-over wakes exactly one.
class Turns {
public:
  explicit Turns(std::size_t threads) : flags_(threads) {}

  void pass_to(std::size_t thread) noexcept {
    auto& word = flags_[thread].word;
    word.store(kGo, std::memory_order_release);
    word.notify_one();
  }

  /// Returns false when the replay is over.
  [[nodiscard]] bool wait(std::size_t thread) noexcept {
    auto& word = flags_[thread].word;
    for (auto spins = 0; spins < kSpins && word.load(std::memory_order_relaxed) == kWait; ++spins) relax_cpu();
    word.wait(kWait, std::memory_order_acquire);
    // Fails only against kOver, which stays: every later wait must see it too.
    auto expected = kGo;
    return word.compare_exchange_strong(expected, kWait, std::memory_order_acquire);
  }

  void end() noexcept {
    for (auto& flag : flags_) {
      flag.word.store(kOver, std::memory_order_release);
      flag.word.notify_one();
    }
  }

private:
  static constexpr int kWait = 0, kGo = 1, kOver = 2;
  struct alignas(64) Flag {
    // Written release by whoever has the turn, read acquire by the flag's thread: carries everything the turn guards with it. An
    // int, since that is what the system's wait works on directly.
    std::atomic<int> word{kWait};
  };
  std::vector<Flag> flags_;
};

/// All members belong to whoever has the turn.
class FileOrder {
public:
  FileOrder(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops, ReplayProgress* progress) noexcept
      : data_{data}, player_{player}, pace_{pace}, loops_{loops}, progress_{progress} {}

  /// Applies the steps of `thread` from here on. Returns whose turn it is then; nothing when the replay is over.
  [[nodiscard]] std::optional<std::uint32_t> advance(std::uint32_t thread) {
    while (true) {
      if (position_ == loops_.end()) {
        if (!loops_.next()) return std::nullopt;
        position_ = 0;
      }
      auto const end = loops_.end();
      auto* const slots = loops_.slots().data();
      auto& tally = loops_.tally();
      for (; position_ != end; ++position_) {
        auto const& step = data_.steps[position_];
        if (step.thread != thread) return step.thread;
        if (!pace_.wait_for(step, position_)) return std::nullopt;
        player_.apply(step, slots[step.slot], tally);
        ++applied_;
        if (progress_ != nullptr) progress_->events.store(applied_, std::memory_order_relaxed);
      }
    }
  }

private:
  TraceHistory::Data const& data_;
  Player& player_;
  Pace& pace_;
  Loops& loops_;
  ReplayProgress* progress_;
  std::size_t position_ = 0;
  std::uint64_t applied_ = 0;
};

}  // namespace

Result<void> run_in_file_order(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops,
                               ReplayProgress* progress) {
  FileOrder order{data, player, pace, loops, progress};
  if (data.thread_ids.size() <= 1) {
    static_cast<void>(order.advance(0));
    return {};
  }
  Turns turns{data.thread_ids.size()};
  turns.pass_to(data.steps.front().thread);
  auto const body = [&](std::uint32_t thread) {
    while (turns.wait(thread)) {
      if (auto const next = order.advance(thread)) {
        turns.pass_to(*next);
      } else {
        turns.end();
      }
    }
  };
  return run_threads(data, body);
}

}  // namespace headroom::trace
