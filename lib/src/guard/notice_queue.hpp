// The queue between the operations that change a pressure state and those who listen: lock-free, bounded, as a template over an
// atomics policy (base/atomics.hpp), so that a model checker compiles this very file.
//
// A ring of words, one for each change, at the place that its number names. Whoever made a change notes it, which never waits, and then
// tries to deliver: from where the last delivery stopped, in the order of the numbers, one thread at a time. A number that is missing
// ends a delivery: its writer is about to note it, and delivers afterwards itself. Of more changes than places the oldest are dropped
// and counted, never the newest.
//
// Why nothing stays behind: a writer notes its change, then tries to take the right to deliver. If another thread has it, that thread
// gives it up later in the one order of seq_cst operations, and looks once more after that. Only changes that listeners made are
// bounded for each delivery, since they may go on for ever: those of other threads are told to the last one, whoever delivers.
#pragma once

#include <array>
#include <cstdint>

#include <headroom/pressure.hpp>

#include "base/test_point.hpp"

namespace headroom::guard {

/// One change, as the queue has it.
struct Noted {
  std::uint64_t number = 0;
  PressureLevel from{};
  PressureLevel to{};
  bool by_listener = false;  ///< made inside one, by the thread that told it something
};

template <class Atomics, std::uint64_t Places>
class NoticeQueue {
public:
  using Word = typename Atomics::Word;

  /// Of one change, by the thread that made it. Numbers begin at 1 and have no gaps but those that skip_to() covers.
  void note(Noted const& change) noexcept {
    // newest_ first: who finds a place taken by a newer change learns there how much was dropped.
    raise(newest_, change.number);
    Word& place = ring_[change.number % Places];
    const std::uint64_t word = pack(change);
    // Upwards only: a writer that slept through a whole round of the ring must not hide a newer change.
    std::uint64_t present = Atomics::load_relaxed(place);
    while (number_of(present) < change.number && !Atomics::cas_seq_cst(place, present, word)) {
    }
  }

  /// Nobody waits for changes up to this number.
  void skip_to(std::uint64_t number) noexcept { raise(delivered_, number); }

  /// Tells what there is, unless another thread is at it. At most `most` changes that listeners made: true when one of these is left
  /// after that many, and with it what came later.
  /// `tell(Noted)` is called by one thread at a time, `dropped(count)` likewise; both may note and deliver.
  template <class Tell, class Dropped>
  [[nodiscard]] bool deliver(std::uint64_t most, Tell&& tell, Dropped&& dropped) noexcept {
    std::uint64_t by_listeners = 0;
    while (has_next()) {
      if (Atomics::exchange_seq_cst(delivering_, 1) != 0) return false;
      Noted change;
      Taken taken = Taken::nothing;
      // Given up now and then, so that under a storm of others' changes one of those others takes over.
      for (std::uint64_t told = 0; told < most; ++told) {
        taken = take_next(change, by_listeners < most, dropped);
        if (taken != Taken::one) break;
        tell(change);
        if (change.by_listener) ++by_listeners;
      }
      test_point(TestPoint::notices_before_give_up);
      Atomics::store_seq_cst(delivering_, 0);
      test_point(TestPoint::notices_after_give_up);
      if (taken == Taken::too_many) return true;
    }
    return false;
  }

  /// For models, whose words begin without a value.
  void clear() noexcept {
    for (Word& place : ring_) Atomics::store_relaxed(place, 0);
    for (Word* word : {&delivered_, &newest_, &delivering_}) Atomics::store_relaxed(*word, 0);
  }

private:
  enum class Taken : std::uint8_t { one, nothing, too_many };

  static constexpr unsigned kNumberShift = 8;
  static constexpr std::uint64_t kByListener = 0x80;
  static constexpr std::uint64_t pack(Noted const& change) noexcept {
    return (change.number << kNumberShift) | (change.by_listener ? kByListener : 0) |
           (std::uint64_t{static_cast<std::uint8_t>(change.from)} << 4) | static_cast<std::uint8_t>(change.to);
  }
  static constexpr std::uint64_t number_of(std::uint64_t word) noexcept { return word >> kNumberShift; }

  static void raise(Word& word, std::uint64_t value) noexcept {
    std::uint64_t present = Atomics::load_relaxed(word);
    while (present < value && !Atomics::cas_seq_cst(word, present, value)) {
    }
  }

  [[nodiscard]] bool has_next() const noexcept {
    const std::uint64_t next = Atomics::load_seq_cst(delivered_) + 1;
    return number_of(Atomics::load_seq_cst(ring_[next % Places])) >= next || Atomics::load_seq_cst(newest_) >= next + Places;
  }

  // Only by who delivers.
  template <class Dropped>
  [[nodiscard]] Taken take_next(Noted& change, bool takes_listeners, Dropped&& dropped) noexcept {
    for (;;) {
      const std::uint64_t next = Atomics::load_seq_cst(delivered_) + 1;
      const std::uint64_t newest = Atomics::load_seq_cst(newest_);
      if (newest >= next + Places) {
        const std::uint64_t oldest = newest - Places + 1;
        dropped(oldest - next);
        raise(delivered_, oldest - 1);
        continue;
      }
      const std::uint64_t word = Atomics::load_seq_cst(ring_[next % Places]);
      if (number_of(word) > next) continue;  // overwritten meanwhile: newest_ tells how far
      if (number_of(word) < next) return Taken::nothing;
      change = {.number = next,
                .from = static_cast<PressureLevel>((word >> 4) & 0x7),
                .to = static_cast<PressureLevel>(word & 0xF),
                .by_listener = (word & kByListener) != 0};
      if (change.by_listener && !takes_listeners) return Taken::too_many;
      raise(delivered_, next);
      return Taken::one;
    }
  }

  // number (56) · by a listener (1) · from (3) · to (4); 0 = nothing yet. Written by note(), read by who delivers or would; seq_cst with delivering_.
  std::array<Word, Places> ring_{};
  // Number of the last change that was told, dropped or skipped. Raised by who delivers and by skip_to(), read by all; seq_cst.
  Word delivered_{0};
  // The newest change. Raised by note() before the change stands in the ring, read by who delivers; seq_cst with the ring.
  Word newest_{0};
  // 1 while a thread delivers. Taken by exchange, given up by a store, both seq_cst: see above.
  Word delivering_{0};
};

}  // namespace headroom::guard
