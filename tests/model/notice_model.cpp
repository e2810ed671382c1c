// Notices of pressure: each change is told once, in order, by one thread at a time, and none stays behind
// (lib/src/guard/notice_queue.hpp). Numbers come from a word that each change moves on, as the pressure word does. Even two threads of
// one change each have too many orders to try all.
#include "guard/notice_queue.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using guard::Noted;
using guard::NoticeQueue;

using Word = RelacyAtomics::Word;

/// In which order a thread does things. All but the first are wrong.
enum class How : std::uint8_t { as_designed, delivers_before_noting };

enum class Seen : std::uint8_t { told_own, told_anothers, left_to_another, dropped };

/// `threads` threads of `changes` changes each.
template <class Atomics, How how, unsigned threads, unsigned changes, std::uint64_t places>
struct Notices : rl::test_suite<Notices<Atomics, how, threads, changes, places>, static_cast<int>(threads)> {
  static constexpr bool kOverflows = places < threads * changes;
  static constexpr std::array<char const*, kOverflows ? 4 : 3> kSeen = [] {
    std::array<char const*, kOverflows ? 4 : 3> seen{"a thread told its own change", "a thread told another's",
                                                     "a change was left"};
    if constexpr (kOverflows) seen[3] = "a change was dropped";
    return seen;
  }();

  NoticeQueue<Atomics, places> queue;
  Word numbers{0};
  // The model's own; changed by who delivers, which is one thread at a time: that is what `telling` checks.
  bool telling = false;
  std::uint64_t last = 0;
  std::uint64_t told = 0;
  std::uint64_t dropped = 0;

  void before() { queue.clear(); }

  void thread(unsigned /*index*/) {
    for (unsigned i = 0; i < changes; ++i) {
      const std::uint64_t number = RelacyAtomics::fetch_add_seq_cst(numbers, 1) + 1;
      if (how == How::delivers_before_noting) deliver(number);
      queue.note({.number = number, .from = PressureLevel::none, .to = PressureLevel::low});
      if (how == How::as_designed) deliver(number);
    }
  }

  void deliver(std::uint64_t own) {
    const std::uint64_t before_this = told;
    static_cast<void>(queue.deliver(
        1'000,
        [&](Noted const& change) {
          require(!telling, "one thread at a time");
          telling = true;
          rl::ctx().sched();
          require(change.number > last, "in order, and none twice");
          require(change.to == PressureLevel::low, "whole");
          saw(change.number == own ? Seen::told_own : Seen::told_anothers);
          last = change.number;
          ++told;
          telling = false;
        },
        [&](std::uint64_t count) {
          if constexpr (kOverflows) saw(Seen::dropped);
          dropped += count;
        }));
    if (told == before_this) saw(Seen::left_to_another);
  }

  void after() {
    require(last == threads * changes, "the newest was told");
    require(told + dropped == threads * changes, "each was told or dropped");
    require(kOverflows || dropped == 0, "none was dropped while there was room");
  }
};

constexpr std::array kCases{
    at_random<Notices<RelacyAtomics, How::as_designed, 2, 1, 4>>("notice.small", 1'000'000),
    at_random<Notices<RelacyAtomics, How::as_designed, 3, 2, 8>>("notice.large", 2'000'000),
    at_random<Notices<RelacyAtomics, How::as_designed, 3, 2, 2>>("notice.overflow", 2'000'000),
    twin<Notices<RelacyAtomics, How::delivers_before_noting, 2, 1, 4>>("notice.twin_delivers_before_noting"),
    twin<Notices<AcquireReleaseAtomics, How::as_designed, 2, 1, 4>>("notice.twin_acquire_release"),
    twin<Notices<RelaxedAtomics, How::as_designed, 2, 1, 4>>("notice.twin_no_order"),
};
constexpr std::array kAudited{
    at_random<Notices<AuditedAtomics, How::as_designed, 3, 1, 4>>("notice", 1'000'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
