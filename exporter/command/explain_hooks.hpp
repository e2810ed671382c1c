// headroom: what hooks did about one request, as `headroom explain` tells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headroom/follow.hpp>

#include "command/explanation.hpp"

namespace headroom::command {

/// All turns of one hook for one request.
struct HookSum {
  std::string name;
  std::uint64_t runs = 0, throws = 0, large = 0, busy = 0, running = 0, elsewhere = 0;
  std::uint64_t estimate = 0, reported = 0;
  std::uint64_t freed = 0;        ///< by its own thread
  std::int64_t fell = 0;          ///< what its manager had claimed, meanwhile: whoever did it
  bool fall_is_known = true;      ///< the second record of every run is there
  std::uint64_t ns = 0;           ///< of its runs, or of the waits for those on other threads
  std::uint64_t overhead = 0;     ///< what it needs to run
  std::uint64_t since_ticks = 0;  ///< when the run began that has not ended; 0: not known
  bool overran = false;

  /// What it promised went, though not by its own thread: a worker of the hook frees like this.
  [[nodiscard]] bool others_freed() const noexcept {
    return reported > freed && fell > 0 && static_cast<std::uint64_t>(fell) >= reported;
  }
};

/// In the order in which they were asked first.
[[nodiscard]] std::vector<HookSum> sum_up(follow::FailureStory const& story);

/// "two hooks were asked: …", or that none ran; empty where nothing can be said.
[[nodiscard]] std::string hooks_in_prose(Scene const& scene, follow::FailureStory const& story);

}  // namespace headroom::command
