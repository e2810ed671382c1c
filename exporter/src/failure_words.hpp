// headroom: a failure and what was done about it, in plain words: what the status page shows.
//
// Pure functions over one story; names are those of the program and may be anything, so whoever shows them must treat them as text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/follow_answers.hpp>

namespace headroom::exporter {

/// "812 ms", "3.2 s", "4 min 10 s", "3 h 5 min", "2 d 4 h".
[[nodiscard]] std::string duration_in_words(std::uint64_t nanoseconds);

struct FailureWords {
  std::string what;               ///< who asked for how much, and who said no
  std::vector<std::string> done;  ///< hooks and steps of the policy, in the order of time
  std::string outcome;            ///< what came of it
};

/// `duration_ns` turns a difference of the story's ticks into time.
[[nodiscard]] FailureWords failure_in_words(follow::FailureStory const& story,
                                            std::function<std::uint64_t(std::uint64_t)> const& duration_ns);

}  // namespace headroom::exporter
