// headroom: failures with their whole story, put together from the journal.
//
// What a thread does about a refused request stands in the journal right after the refusal, on the same thread: hooks, policy, and
// what came of it. A hook or a callback may ask for memory itself and be refused: requests nest, and what is recorded next names its
// request by size. Stories are bounded in number; the oldest are forgotten first. Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow_answers.hpp>

namespace headroom::follow {

class Stories {
public:
  using NameOf = std::function<std::string(std::uint32_t id)>;
  Stories(std::size_t most, NameOf name_of) : most_{most}, name_of_{std::move(name_of)} {}

  /// Events of the journal, each thread's in its order.
  void add(flight::Event const& event);
  /// Journal records were lost: whatever was open before cannot be told to its end.
  void note_loss() { threads_.clear(); }
  /// A failure that a history recorded: nothing more is known of it.
  void add(FailureStory story);

  [[nodiscard]] std::deque<FailureStory> const& all() const noexcept { return stories_; }
  [[nodiscard]] std::uint64_t forgotten() const noexcept { return forgotten_; }

private:
  /// What is not told to its end yet, by thread: numbers of stories, the innermost last.
  struct Thread {
    std::vector<std::uint64_t> open;
    std::uint64_t last_head = 0;        // story of the refusal whose second half comes next
    std::uint64_t last_hook_story = 0;  // … of the hook's run whose second half comes next
    std::size_t last_hook_turn = 0;
  };

  [[nodiscard]] FailureStory* find(std::uint64_t number) noexcept;
  [[nodiscard]] FailureStory* innermost(Thread& thread, std::uint64_t requested);
  FailureStory& begin(Thread& thread, flight::Event const& event);
  void end(Thread& thread, std::uint64_t number);
  void refused(flight::Event const& event);
  void hook_began(flight::Event const& event);
  void hook_ended(flight::Event const& event);
  void hook_skipped(flight::Event const& event);
  void policy_acted(flight::Event const& event);

  std::size_t most_;
  NameOf name_of_;
  std::deque<FailureStory> stories_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::uint64_t told_ = 0;  // number of the newest
  std::uint64_t forgotten_ = 0;
};

}  // namespace headroom::follow
