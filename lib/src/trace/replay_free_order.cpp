// Every recorded thread at its own pace. Kept are its own order, and that an allocation precedes its free. This cannot deadlock:
// a free waits only for a step that stands before it in the file, and in every set of waiting threads the one whose step stands
// first in the file waits for nobody.
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "trace/replay_loops.hpp"
#include "trace/replay_threads.hpp"

namespace headroom::trace {
namespace {

/// A slot for each allocation: with reused slots a thread that runs ahead would allocate into one that is still taken.
struct OwnStep {
  Step step;
  std::size_t position = 0;  // in the file
};

std::vector<std::vector<OwnStep>> split_by_thread(TraceHistory::Data const& data) {
  std::vector<std::vector<OwnStep>> split(data.thread_ids.size());
  std::vector<std::uint32_t> allocation_in(data.slots);
  std::uint32_t allocations = 0;
  for (std::size_t position = 0; position < data.steps.size(); ++position) {
    auto step = data.steps[position];
    if (step.what() == StepAction::allocate) allocation_in[step.slot] = allocations++;
    if (step.what() == StepAction::allocate || step.what() == StepAction::free) step.slot = allocation_in[step.slot];
    split[step.thread].push_back({.step = step, .position = position});
  }
  return split;
}

class FreeOrder {
public:
  FreeOrder(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops, ReplayProgress* progress)
      : player_{player},
        pace_{pace},
        loops_{loops},
        progress_{progress},
        steps_{split_by_thread(data)},
        settled_(loops.slots().size()),
        tallies_(data.thread_ids.size()),
        loop_end_{static_cast<std::ptrdiff_t>(data.thread_ids.size()), EndLoop{this}} {}

  void run(std::uint32_t thread) {
    while (!over_.load(std::memory_order_relaxed)) {
      run_loop(thread);
      loop_end_.arrive_and_wait();
    }
  }

private:
  struct EndLoop {
    FreeOrder* order;
    void operator()() noexcept { order->end_loop(); }
  };

  void run_loop(std::uint32_t thread) {
    auto& slots = loops_.slots();
    auto& tally = tallies_[thread].value;
    std::uint64_t unreported = 0;
    for (auto const& own : steps_[thread]) {
      if (own.position >= loops_.end()) break;
      auto const& step = own.step;
      if (!pace_.wait_for(step, own.position)) break;
      if (step.what() == StepAction::free && !wait_for_allocation(step.slot)) break;
      player_.apply(step, slots[step.slot], tally);
      if (step.what() == StepAction::allocate) settled_[step.slot].store(true, std::memory_order_release);
      if (++unreported == kReportEvery) report(unreported);
    }
    report(unreported);
  }

  /// Returns false when the replay was stopped: the allocation may then never come.
  [[nodiscard]] bool wait_for_allocation(std::uint32_t slot) const {
    for (auto spins = 0; !settled_[slot].load(std::memory_order_acquire); ++spins) {
      if (pace_.stopped()) return false;
      if (spins < kSpins) {
        relax_cpu();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds{50});
      }
    }
    return true;
  }

  void report(std::uint64_t& unreported) noexcept {
    if (progress_ != nullptr) progress_->events.fetch_add(unreported, std::memory_order_relaxed);
    unreported = 0;
  }

  /// In whichever thread arrives last, with all others waiting.
  void end_loop() {
    for (auto& tally : tallies_) loops_.tally().add(std::exchange(tally.value, {}));
    if (pace_.stopped() || !loops_.next()) {
      over_.store(true, std::memory_order_relaxed);
      return;
    }
    for (auto& settled : settled_) settled.store(false, std::memory_order_relaxed);
  }

  static constexpr std::uint64_t kReportEvery = 64;
  struct alignas(64) OwnTally {
    Tally value;
  };

  Player& player_;
  Pace& pace_;
  Loops& loops_;
  ReplayProgress* progress_;
  std::vector<std::vector<OwnStep>> steps_;
  // Written release by the thread that allocates, once its slot is filled or stays empty; read acquire by the thread that frees.
  std::vector<std::atomic<bool>> settled_;
  std::vector<OwnTally> tallies_;
  // Written when a loop ends, before the barrier opens, which orders it; relaxed.
  std::atomic<bool> over_{false};
  std::barrier<EndLoop> loop_end_;
};

}  // namespace

Result<void> run_in_free_order(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops,
                               ReplayProgress* progress) {
  if (data.steps.empty()) return {};
  FreeOrder order{data, player, pace, loops, progress};
  return run_threads(data, [&order](std::uint32_t thread) { order.run(thread); });
}

}  // namespace headroom::trace
