// headroom: failures with their whole story, put together from the journal.
//
// What a thread does about a refused request stands in the journal after the refusal, on the same thread: hooks, policy, and what came of
// it. A hook, a callback or a listener may ask for memory itself and be refused: requests nest. What is recorded next names its request
// by ledger, size and error, and says how long it took, so that it began after that request's refusal and not after an inner one's.
//
// Bounded: stories, turns and steps in all of them, and threads that are followed; the oldest are forgotten first. Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow_answers.hpp>

namespace headroom::follow {

class Stories {
public:
  using NameOf = std::function<std::string(std::uint32_t id)>;
  using DurationOf = std::function<std::uint64_t(std::uint64_t ticks)>;  // in ns
  Stories(std::size_t most, NameOf name_of, DurationOf duration_of)
      : most_{most}, name_of_{std::move(name_of)}, duration_of_{std::move(duration_of)} {}

  /// Events of the journal, each thread's in its order.
  void add(flight::Event const& event);
  /// Journal records of this lane were lost between those that were added and those that will be: what its threads had open cannot be
  /// told to its end. Threads without a lane of their own may have written in it, too.
  void note_loss(std::uint32_t lane);

  /// The last `most`, oldest first.
  [[nodiscard]] std::vector<FailureStory> last(std::size_t most) const;
  [[nodiscard]] std::uint64_t forgotten() const noexcept { return forgotten_; }

private:
  struct Told {
    FailureStory story;
    bool is_later_try = false;  // of the request of another story, where it is told: no story of its own
  };

  /// A thread, and what it has not been told to the end of: numbers of stories, the innermost last.
  struct Thread {
    std::vector<std::uint64_t> open;
    std::uint32_t lane = 0;             // of its newest record
    std::uint64_t last_ticks = 0;       // of its newest record that it does not write while a request is dealt with
    std::uint64_t last_head = 0;        // story of the refusal whose second half comes next
    bool last_head_is_later = false;    // … which was another error that a later try met
    std::uint64_t last_hook_story = 0;  // story of the hook's run whose second half comes next
    std::size_t last_hook_turn = 0;
  };
  using MayTake = std::function<bool(FailureStory const&)>;

  [[nodiscard]] Told* told(std::uint64_t number) noexcept;
  [[nodiscard]] FailureStory* find(std::uint64_t number) noexcept;
  [[nodiscard]] Thread* known_thread(std::uint32_t id) noexcept;
  Thread& thread_of(flight::Event const& event);
  void cut(Thread const& thread);
  void forget_oldest();

  [[nodiscard]] FailureStory* innermost(Thread& thread, MayTake const& may_take);
  [[nodiscard]] FailureStory* dealing(Thread& thread, flight::Event const& event, std::uint64_t requested);
  [[nodiscard]] FailureStory* tried_again(Thread& thread, flight::Event const& event);
  [[nodiscard]] bool took(FailureStory const& story, flight::Event const& event) const;
  void end_inner(Thread& thread, std::size_t outer);
  void end_callbacks_around(Thread& thread, FailureStory& story);
  FailureStory& begin(Thread& thread, flight::Event const& event);
  void add_turn(FailureStory& story, HookTurnStory turn);

  void refused(flight::Event const& event);
  void refusal_figures(flight::Event const& event);
  void hook_began(flight::Event const& event);
  void hook_ended(flight::Event const& event);
  void hook_figures(flight::Event const& event);
  void hook_skipped(flight::Event const& event);
  void hook_overran(flight::Event const& event);
  void policy_acted(flight::Event const& event);

  std::size_t most_;
  NameOf name_of_;
  DurationOf duration_of_;
  std::deque<Told> stories_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::size_t parts_ = 0;   // turns and steps of all stories
  std::uint64_t told_ = 0;  // number of the newest
  std::uint64_t forgotten_ = 0;
};

}  // namespace headroom::follow
