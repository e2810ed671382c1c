// The random search of the models: which thread takes the next step, and which stored value a load sees.
//
// Prefer it to rl::random_scheduler. The generator of that one is good for small seeds only: with 6 or more in bits 32 to 35 of the
// seed no reader was overtaken in 2 M executions. And it gives every thread its even share of steps, so that laps are rare. Here each
// execution draws how long threads go on at a stretch: short ones mix steps finely, long ones stop a thread between two steps
// while another does many, as a real scheduler does. An execution is told by its number alone: that is the seed.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>

#include "relacy_atomics.hpp"

namespace headroom::model {

template <rl::thread_id_t thread_count>
class BurstScheduler : public rl::scheduler<BurstScheduler<thread_count>, rl::scheduler_thread_info, thread_count> {
public:
  using Base = rl::scheduler<BurstScheduler<thread_count>, rl::scheduler_thread_info, thread_count>;
  // NOLINTBEGIN(readability-identifier-naming): names that Relacy asks for
  using shared_context_t = typename Base::shared_context_t;
  struct task_t {};
  // NOLINTEND(readability-identifier-naming)

  BurstScheduler(rl::test_params& params, shared_context_t& shared, rl::thread_id_t dynamic_threads)
      : Base{params, shared, dynamic_threads} {}

  // ── Called by the base ──

  rl::thread_id_t iteration_begin_impl() {
    state_ = this->iter_;
    stay_of_16_ = kStay[draw(std::size(kStay))];
    return any_running();
  }
  bool iteration_end_impl() { return this->iter_ == this->params_.iteration_count; }

  rl::thread_id_t schedule_impl(rl::unpark_reason& reason, unsigned yield) {
    reason = rl::unpark_reason_normal;
    auto const& present = *this->thread_;
    if (yield == 0 && present.state_ == rl::thread_state_running && draw(16) < stay_of_16_) return present.index_;
    const auto running = static_cast<unsigned>(this->running_threads_count);
    if (auto const timed = static_cast<unsigned>(this->timed_thread_count_); timed != 0) {
      const unsigned index = draw(running != 0 ? timed * 4 : timed);
      if (index < timed) return wake(this->timed_threads_[index]->index_, reason, rl::unpark_reason_timeout);
    }
    if (auto const spurious = static_cast<unsigned>(this->spurious_thread_count_); spurious != 0 && running != 0) {
      const unsigned index = draw(spurious * 8);
      if (index < spurious) return wake(this->spurious_threads_[index]->index_, reason, rl::unpark_reason_spurious);
    }
    return any_running();
  }

  unsigned rand_impl(unsigned limit, rl::sched_type /*what*/) { return draw(limit); }
  rl::iteration_t iteration_count_impl() { return this->params_.iteration_count; }
  void get_state_impl(std::ostream& /*out*/) {}
  void set_state_impl(std::istream& /*in*/) {}
  void on_thread_block(rl::thread_id_t /*thread*/, bool /*yield*/) {}
  void thread_finished_impl() {}
  void purge_blocked_threads() {}

private:
  static constexpr unsigned kStay[] = {0, 8, 12, 14, 15};

  rl::thread_id_t any_running() { return this->running_threads[draw(static_cast<unsigned>(this->running_threads_count))]; }
  rl::thread_id_t wake(rl::thread_id_t thread, rl::unpark_reason& reason, rl::unpark_reason why) {
    this->unpark_thread(thread);
    reason = why;
    return thread;
  }

  /// SplitMix64: neighbouring seeds give unrelated sequences.
  unsigned draw(std::size_t limit) noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<unsigned>(((z ^ (z >> 31)) >> 33) % limit);
  }

  std::uint64_t state_ = 0;
  unsigned stay_of_16_ = 0;
};

}  // namespace headroom::model
