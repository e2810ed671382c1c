// headroom: how one ring of a lane is read.
//
// A ring of N slots has one writer and any number of readers that it does not know. The writer announces blocks of B slots in
// `reserve` before it touches them and publishes each record through `head`; a reader copies a record and then asks `reserve`
// whether the copy can have been overwritten. The proof is in lib/src/flight/README.md. Nothing is written here, ever.
//
// The protocol is a template over an atomics policy (base/atomics.hpp), so that a model checker compiles this very file. Broken
// twins need no second copy of it: hand in `head` in the place of `reserve`, a word that stays 0, or a policy without orders.
//
// Thread safety: a RingReader is a bundle of references; cursors belong to the caller. Cost: 3 + W loads for a record, no
// waiting.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom::flight {

/// Where a reader stands in one ring. accepted + lost = next − start holds after every call, exactly.
struct RingCursor {
  std::uint64_t next = 0;  ///< number of the record to be read next
  std::uint64_t lost = 0;  ///< records that were skipped: overwritten before they could be read, or damaged
};

enum class RingRead : std::uint8_t {
  nothing,    ///< every published record was read
  accepted,   ///< `out` is record number next − 1, whole
  overtaken,  ///< the writer was faster: the cursor moved on, what it passed was added to `lost`
  damaged,    ///< the slot holds something else than it must: counted as lost. Cannot happen with a sound writer
};

/// `Slots(i)` yields something that [w] turns into the word w of slot i; `record_words` is 8 in flight files, less in models.
template <class Atomics, std::size_t record_words, class Slots>
class RingReader {
public:
  using Word = typename Atomics::Word;
  using Words = std::array<std::uint64_t, record_words>;

  /// `slot_count` is a power of two. The references must outlive the reader.
  RingReader(Word const& head, Word const& reserve, Slots slots, std::uint64_t slot_count) noexcept
      : head_{head}, reserve_{reserve}, slots_{slots}, slot_count_{slot_count} {}

  /// One step of a reader beside a living writer. Bounded: never loops.
  [[nodiscard]] RingRead read(RingCursor& cursor, Words& out) const {
    // Acquire: pairs with the release store of head, so that all words of every record below it are visible.
    auto const head = Atomics::load_acquire(head_);
    if (cursor.next >= head) return RingRead::nothing;
    // Relaxed is enough: this load only saves copying what the second one would refuse. A sound writer has reserve ≥ head here;
    // the larger of the two keeps the number of steps below N whatever a damaged file says.
    auto const reserve = Atomics::load_relaxed(reserve_);
    skip_to(cursor, floor_of(reserve > head ? reserve : head));
    if (cursor.next >= head) return RingRead::overtaken;

    copy(cursor.next, out);

    // Relaxed, but after the acquire loads of the copy: a word of a later record m brings along every store before it, so that
    // this load sees a reserve ≥ m + 1 > next + N. It must be `reserve`: head moves only after the words were overwritten.
    auto const reserve_after = Atomics::load_relaxed(reserve_);
    if (reserve_after > cursor.next && reserve_after - cursor.next > slot_count_) {
      skip_to(cursor, floor_of(reserve_after));
      return RingRead::overtaken;
    }
    return take(cursor, out);
  }

  /// One step after the writer is gone and the memory quiet: [head − N + 1, head) are intact, which are up to B − 1 records more
  /// than a living ring yields. Never use it beside a living writer: it validates nothing but the number.
  [[nodiscard]] RingRead read_quiet(RingCursor& cursor, Words& out) const {
    auto const head = Atomics::load_acquire(head_);
    if (cursor.next >= head) return RingRead::nothing;
    skip_to(cursor, quiet_floor(head));
    copy(cursor.next, out);
    return take(cursor, out);
  }

  /// The record that a dead writer completed but did not publish: slot head mod N is the only one that can be torn, and as word 0
  /// is stored last, it is whole if that carries the number `head`. Moves no cursor: it was never counted as written.
  [[nodiscard]] bool read_uncommitted(Words& out) const {
    auto const head = Atomics::load_acquire(head_);
    copy(head, out);
    return carries(out, head);
  }

  /// The oldest record that a reader who starts now may find, beside a living writer and after a dead one.
  [[nodiscard]] std::uint64_t oldest() const {
    auto const head = Atomics::load_acquire(head_);
    auto const reserve = Atomics::load_relaxed(reserve_);
    auto const floor = floor_of(reserve > head ? reserve : head);
    return floor < head ? floor : head;
  }
  [[nodiscard]] std::uint64_t oldest_quiet() const { return quiet_floor(Atomics::load_acquire(head_)); }
  [[nodiscard]] std::uint64_t written() const { return Atomics::load_acquire(head_); }
  [[nodiscard]] std::uint64_t slots() const noexcept { return slot_count_; }
  /// Where record `number` lies, or lay.
  [[nodiscard]] auto slot(std::uint64_t number) const { return slots_(number & (slot_count_ - 1)); }

private:
  // Word 0 keeps 48 bits of the number: they last 32 days at 10^8 events a second and then start again, while head never wraps.
  static constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << 48) - 1;

  static void skip_to(RingCursor& cursor, std::uint64_t floor) noexcept {
    if (cursor.next >= floor) return;
    cursor.lost += floor - cursor.next;
    cursor.next = floor;
  }

  /// Kind is never 0, so that memory that was never written is no record number 0.
  static bool carries(Words const& words, std::uint64_t number) noexcept {
    return (words[0] & kNumberMask) == (number & kNumberMask) && (words[0] >> 56) != 0;
  }

  [[nodiscard]] std::uint64_t floor_of(std::uint64_t end) const noexcept { return end > slot_count_ ? end - slot_count_ : 0; }
  [[nodiscard]] std::uint64_t quiet_floor(std::uint64_t head) const noexcept {
    return head >= slot_count_ ? head - slot_count_ + 1 : 0;
  }

  void copy(std::uint64_t number, Words& out) const {
    auto&& slot = slots_(number & (slot_count_ - 1));
    // Each acquire: pairs with the release store of that word, see the second load of reserve.
    for (std::size_t i = 0; i < record_words; ++i) out[i] = Atomics::load_acquire(slot[i]);
  }

  RingRead take(RingCursor& cursor, Words const& words) const noexcept {
    auto const number = cursor.next++;
    if (carries(words, number)) return RingRead::accepted;
    ++cursor.lost;
    return RingRead::damaged;
  }

  Word const& head_;
  Word const& reserve_;
  Slots slots_;
  std::uint64_t slot_count_;
};

}  // namespace headroom::flight
