// The words of enumerations in a post-mortem, and back. Stable, as the numbers in flight files are: append only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <headroom/flight_format.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/pressure.hpp>

namespace headroom::dump {

inline constexpr std::array<std::string_view, 36> kEventKindWords{"none",
                                                                  "allocate",
                                                                  "free",
                                                                  "resource_allocate",
                                                                  "resource_free",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "",
                                                                  "refusal",
                                                                  "free_failed",
                                                                  "peak",
                                                                  "pressure",
                                                                  "hook_begin",
                                                                  "hook_end",
                                                                  "hook_skip",
                                                                  "budget",
                                                                  "reserve",
                                                                  "reserve_drop",
                                                                  "policy",
                                                                  "thread_attach",
                                                                  "thread_detach",
                                                                  "mark",
                                                                  "write_off",
                                                                  "observed",
                                                                  "resource_refusal",
                                                                  "resource_free_failed",
                                                                  "trim",
                                                                  "hook_overrun"};
static_assert(kEventKindWords[static_cast<std::size_t>(flight::EventKind::hook_overrun)] == "hook_overrun");
static_assert(kEventKindWords[static_cast<std::size_t>(flight::EventKind::refusal)] == "refusal");
static_assert(kEventKindWords[static_cast<std::size_t>(flight::EventKind::write_off)] == "write_off");

inline constexpr std::array<std::string_view, flight::kPolicyStepCount> kPolicyStepWords{
    "none",      "retried", "waited", "reservation_given", "checkpoint", "checkpoint_shared", "checkpoint_failed",
    "recovered", "gave_up", "begun"};
/// What can begin, by its step: a wait for another thread's run of a hook, a wait for room, the checkpoint callback.
inline constexpr std::array<std::string_view, 5> kBegunWords{"hook_elsewhere", "", "wait", "", "checkpoint"};
static_assert(static_cast<std::size_t>(flight::PolicyStep::waited) == 2 &&
              static_cast<std::size_t>(flight::PolicyStep::checkpoint) == 4);
inline constexpr std::array<std::string_view, flight::kOomPolicyCount> kPolicyWords{"fail", "retry_after_free", "wait_and_retry",
                                                                                    "checkpoint_and_fail"};
inline constexpr std::array<std::string_view, 6> kInFlightWords{"none",      "allocating", "freeing",
                                                                "reserving", "spending",   "dropping"};
inline constexpr std::array<std::string_view, 5> kProcessStateWords{"starting", "live", "closing", "closed", "failed"};
inline constexpr std::array<std::string_view, 3> kLivenessWords{"living", "dead", "unknown"};
inline constexpr std::array<std::string_view, 4> kSlotStateWords{"free", "live", "freeing", "failed"};
inline constexpr std::array<std::string_view, 3> kLedgerStateWords{"free", "open", "closed"};
inline constexpr std::array<std::string_view, 5> kExporterStateWords{"none", "serving", "port_taken", "failed", "stopped"};
inline constexpr std::array<std::string_view, 5> kPressureWords{"none", "low", "medium", "high", "critical"};
inline constexpr std::array<std::string_view, 4> kClockWords{"unknown", "monotonic", "tsc", "cntvct"};

/// "unknown" for a number of a later version.
template <class Enum, std::size_t N>
[[nodiscard]] constexpr std::string_view word_of(std::array<std::string_view, N> const& words, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < N && !words[index].empty() ? words[index] : "unknown";
}

template <class Enum, std::size_t N>
[[nodiscard]] constexpr std::optional<Enum> value_of(std::array<std::string_view, N> const& words,
                                                     std::string_view word) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    if (words[i] == word && !word.empty()) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace headroom::dump
