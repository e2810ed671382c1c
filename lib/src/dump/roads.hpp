// Which of its requests a thread's journal record is about.
//
// What a thread does about a refused request follows the refusal: hooks, steps of the policy, an end. In between, the program's own
// callbacks run (hooks, listeners, the checkpoint) and may ask for memory and be refused themselves, with hooks and an end of their own;
// and a try that meets another error than a shortage books that one too. So refusals lie on a stack, and a record says as far as it can
// whose it is: by size, ledger, tag and result, and by the instant at which the step began that it tells of.
//
// A request for which nothing could be tried has no end in the journal. It lies on the stack until something is recorded for one below.
// One for which something was tried has an end always, before anything is recorded for one below: where that is missing, what seemed to
// be about it was about another. It is set aside, and the journal read again without it.
//
// Thread safety: none. Cost: some compares a record; nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <headroom/flight_format.hpp>
#include <headroom/flight_records.hpp>

namespace headroom::dump {

using RecordWords = std::array<std::uint64_t, flight::kRecordWords>;

[[nodiscard]] constexpr flight::EventKind kind_of(RecordWords const& words) noexcept {
  return static_cast<flight::EventKind>(words[0] >> 56);
}
[[nodiscard]] constexpr bool continues(RecordWords const& words) noexcept { return (words[0] & flight::kFlagContinues) != 0; }
[[nodiscard]] constexpr std::uint32_t thread_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>(words[7]);
}
/// Of word 5: tag (16 bits from 0), ledger (12 from 16), hook (12 from 28), result (12 from 40).
[[nodiscard]] constexpr std::uint32_t tag_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>(words[5] & 0xFFFFU);
}
[[nodiscard]] constexpr std::uint32_t ledger_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>((words[5] >> 16) & 0xFFFU);
}
[[nodiscard]] constexpr std::uint32_t hook_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>((words[5] >> 28) & 0xFFFU);
}
/// 0 = good, else pack_result.
[[nodiscard]] constexpr std::uint32_t result_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>((words[5] >> 40) & 0xFFFU);
}

/// A request, as its refusal's record has it.
struct RefusedRequest {
  std::uint64_t bytes = 0;
  std::uint64_t site = 0;
  std::uint32_t ledger = 0;
  std::uint32_t tag = 0;
  std::uint32_t result = 0;
  friend bool operator==(RefusedRequest const&, RefusedRequest const&) = default;
};

/// Numbers of refusals for which nothing was tried, for all that it looks so.
class SetAside {
public:
  [[nodiscard]] bool has(std::uint64_t number) const noexcept {
    return std::find(numbers_.begin(), numbers_.begin() + count_, number) != numbers_.begin() + count_;
  }
  void add(std::uint64_t number) noexcept {
    if (count_ < static_cast<std::ptrdiff_t>(numbers_.size()) && !has(number))
      numbers_[static_cast<std::size_t>(count_++)] = number;
  }
  [[nodiscard]] std::ptrdiff_t count() const noexcept { return count_; }

private:
  std::array<std::uint64_t, 16> numbers_{};
  std::ptrdiff_t count_ = 0;
};

/// Of one thread. Requests are named by the numbers of their refusals.
class Roads {
public:
  /// `wanted`: a request that is over by now and is looked for.
  explicit Roads(std::uint64_t ticks_per_second, SetAside const& aside, std::optional<RefusedRequest> wanted = {}) noexcept
      : ticks_per_ns_{static_cast<double>(ticks_per_second) / 1e9}, aside_{aside}, wanted_{wanted} {}

  /// The request that the record is about. Records come in the order of their ring.
  std::optional<std::uint64_t> take(std::uint64_t number, RecordWords const& words) noexcept;
  /// Whether the record that was taken last was a request's end.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// Those that were set aside before, and those that should be. More than before: read again.
  [[nodiscard]] SetAside const& aside() const noexcept { return aside_; }
  /// After the last record: the wanted one, else the newest that no other request of the thread led to.
  [[nodiscard]] std::optional<std::uint64_t> newest() const noexcept;

private:
  struct Open {
    std::uint64_t number = 0;
    std::uint64_t ticks = 0;
    RefusedRequest request;
    bool touched = false;  // something was tried: an end will come
    bool in_hook = false;  // … at this moment, by a hook
  };
  static constexpr std::size_t kMost = 32;

  [[nodiscard]] bool is_wanted(Open const& open) const noexcept { return wanted_ && open.request == *wanted_; }
  void push(Open const& open) noexcept;
  template <class Fits>
  [[nodiscard]] Open* innermost(Fits const& fits) noexcept;
  [[nodiscard]] Open* of_step(RecordWords const& words) noexcept;
  std::optional<std::uint64_t> touch(Open* open) noexcept;

  double ticks_per_ns_;
  SetAside aside_;
  std::optional<RefusedRequest> wanted_;
  std::array<Open, kMost> open_{};
  std::size_t count_ = 0;
  std::optional<std::uint64_t> ended_;        // newest with an end that no open one led to
  std::optional<std::uint64_t> wanted_end_;   // newest wanted one with an end
  std::optional<std::uint64_t> wanted_seen_;  // newest wanted one
  bool has_ended_ = false;
};

}  // namespace headroom::dump
