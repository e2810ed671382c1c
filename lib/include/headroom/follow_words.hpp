// headroom: what a model tells, in plain words: failures and what was done about them, what threads are doing.
// Layer: follow
//
// What the status page, the command and the viewer say in sentences, so that all three say the same. Pure functions over plain values.
// Names are those of the program and may be anything: whoever shows them must treat them as text. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/flight_format.hpp>
#include <headroom/follow_answers.hpp>

namespace headroom::follow {

/// "812 ms", "3.2 s", "4 min 10 s", "3 h 5 min", "2 d 4 h".
[[nodiscard]] std::string duration_in_words(std::uint64_t nanoseconds);

struct FailureWords {
  std::string what;               ///< who asked for how much, and who said no
  std::vector<std::string> done;  ///< hooks and steps of the policy, in the order of time
  std::string outcome;            ///< what came of it
};

/// `duration_ns` turns a difference of the story's ticks into time.
[[nodiscard]] FailureWords failure_in_words(FailureStory const& story,
                                            std::function<std::uint64_t(std::uint64_t)> const& duration_ns);

/// One step of a policy; empty where it says nothing beyond the outcome.
[[nodiscard]] std::string step_in_words(PolicyStory const& step);

/// An operation that has been under way for longer waits for the device: a thread is in one for a microsecond otherwise.
inline constexpr std::uint64_t kWaitsForDeviceNs = 100'000'000;

/// "asking cuda:0 for 2 GiB", "freeing 64 KiB", "idle". `device` is a name, empty when unknown; `is_slow`: it waits for the device.
[[nodiscard]] std::string operation_in_words(flight::InFlight operation, std::uint64_t bytes, std::string_view device,
                                             bool is_slow);

/// What is being done about a request of `bytes` that was refused, as FailureStory::doing has it: "waiting for room for 2 GiB".
[[nodiscard]] std::string shortage_in_words(flight::PolicyStep doing, std::uint64_t bytes);

}  // namespace headroom::follow
