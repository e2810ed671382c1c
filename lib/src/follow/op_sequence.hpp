// headroom: the operations of one ledger in their order.
//
// Every change of a ledger's `alloc` word takes the next number, of which records carry 20 bits. Records come from many lanes and
// may arrive late, so an operation waits here until those before it are there, or until they are given up. What is missing is thus
// known exactly (modulo 2^20), whether it was overwritten, refused or never written.
//
// Thread safety: none. Memory: bounded; with more than kMostWaiting records waiting the missing ones are given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <headroom/flight_format.hpp>

#include "follow/past.hpp"

namespace headroom::follow {

class OpSequence {
public:
  static constexpr unsigned kNumberBits = 64 - flight::kBytesBits;
  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << kNumberBits;
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 18U;

  [[nodiscard]] static constexpr std::uint64_t number_of(std::uint64_t alloc_word) noexcept {
    return alloc_word >> flight::kBytesBits;
  }
  /// By how much `number` is ahead of `other`, the short way round.
  [[nodiscard]] static constexpr std::int64_t ahead(std::uint64_t number, std::uint64_t other) noexcept {
    auto const up = (number - other) & (kNumbers - 1);
    return up < kNumbers / 2 ? static_cast<std::int64_t>(up)
                             : static_cast<std::int64_t>(up) - static_cast<std::int64_t>(kNumbers);
  }

  /// `second`: a second in ticks. A record that is newer by that is no late one, however far back its number seems to be.
  explicit OpSequence(std::uint64_t second) : second_{second} {}

  /// Of one read, in order of their ticks.
  void add(std::uint64_t alloc_word, Step const& step);
  [[nodiscard]] bool started() const noexcept { return started_; }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  [[nodiscard]] std::uint64_t late() const noexcept { return late_; }
  /// Of the operation that comes next, 20 bits.
  [[nodiscard]] std::uint64_t expected_number() const noexcept { return expected_ & (kNumbers - 1); }

  /// Hands out what is complete: begin(word, step, missing, whole) before the first operation of all and after a gap, then
  /// apply(step) for each. `whole`: no other gap is known to follow. What is missing is given up when the record after it is
  /// `patience` old, or at once when `give_up` says so.
  template <class Begin, class Apply>
  void drain(bool give_up, std::uint64_t patience_ticks, std::uint64_t now_ticks, Begin&& begin, Apply&& apply) {
    sort();
    auto const last_gap = last_gap_in_waiting();
    std::size_t next = 0;
    for (; next < waiting_.size(); ++next) {
      auto const& operation = waiting_[next];
      if (!started_) {
        // A thread that was put to sleep may still write of what came before, and the table may not have it yet.
        auto const is_birth = operation.number == kOrigin + 1;
        auto const is_late = now_ticks >= operation.step.ticks && now_ticks - operation.step.ticks >= patience_ticks;
        if (!give_up && !is_birth && !is_late && waiting_.size() <= kMostWaiting) break;
        started_ = true;
        begin(operation.alloc_word, operation.step, std::uint64_t{0}, next >= last_gap);
      } else if (operation.number < expected_) {
        ++late_;
        continue;
      } else if (operation.number > expected_) {
        auto const is_late = now_ticks >= operation.step.ticks && now_ticks - operation.step.ticks >= patience_ticks;
        if (!give_up && !is_late && waiting_.size() - next <= kMostWaiting) break;
        begin(operation.alloc_word, operation.step, operation.number - expected_, next >= last_gap);
      }
      apply(operation.step);
      expected_ = operation.number + 1;
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(next));
  }

private:
  struct Waiting {
    std::uint64_t number = 0;  // unwrapped
    std::uint64_t alloc_word = 0;
    Step step;
  };
  static constexpr std::uint64_t kOrigin = std::uint64_t{1} << 40U;  // room below the first number

  [[nodiscard]] bool is_later_lap(std::uint64_t back, std::uint64_t ticks) const noexcept;
  void sort();
  /// Where the last run of numbers without a gap begins.
  [[nodiscard]] std::size_t last_gap_in_waiting() const noexcept;

  std::uint64_t second_;
  bool started_ = false;
  bool has_reference_ = false;
  std::uint64_t reference_ = kOrigin;  // number of the record added last
  std::uint64_t furthest_ = kOrigin;   // largest number added, and when that was
  std::uint64_t furthest_ticks_ = 0;
  std::uint64_t expected_ = 0;
  std::uint64_t late_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace headroom::follow
