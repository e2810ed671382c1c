// Every interleaving that the books' protocols were made for, one thread stopped exactly between two steps (base/test_point.hpp).
// Steps within protocol.hpp have hardly any points: there a policy of atomics does what another thread would do at that instant.
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "base/atomics.hpp"
#include "base/test_point.hpp"
#include "flight/recorder.hpp"
#include "ledger/protocol.hpp"
#include "ledger/waiting.hpp"
#include "managers.hpp"
#include "standstill.hpp"

namespace headroom::test {
namespace {

using flight::kBytesMask;
using flight::Word;
using ledger::ClaimOutcome;
using ledger::pack_limit;
using Steps = ledger::Protocol<StdAtomics>;

// ── Within one step: what happens at the n-th access to a word ──

struct OtherThread : StdAtomics {
  static inline Word const* at = nullptr;
  static inline int countdown = 0;
  static inline void (*acts)() = nullptr;

  static void arm(Word const& word, int nth, void (*what)()) {
    at = &word;
    countdown = nth;
    acts = what;
  }
  static void touch(Word const& word) {
    if (&word == at && countdown > 0 && --countdown == 0) acts();
  }
  static std::uint64_t load_seq_cst(Word const& word) noexcept {
    touch(word);
    return StdAtomics::load_seq_cst(word);
  }
  static bool cas_seq_cst(Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    touch(word);
    return StdAtomics::cas_seq_cst(word, expected, desired);
  }
  static std::uint64_t fetch_add_seq_cst(Word& word, std::uint64_t value) noexcept {
    touch(word);
    return StdAtomics::fetch_add_seq_cst(word, value);
  }
};
using Interrupted = ledger::Protocol<OtherThread>;

Word claim_word{0};
Word limit_word{0};
Word pressure_word{0};
const Word margin_word{1};  // no margin: levels follow the bytes alone

TEST(Interleaving, a_refusal_whose_word_moved_and_came_back_to_the_same_bytes_looks_again) {
  claim_word = 80;
  limit_word = pack_limit(100, true, false);
  // Between the first and the second look 80 bytes go and come back: the bytes are the same, the version is not.
  OtherThread::arm(claim_word, 2, [] {
    Steps::give_back(claim_word, 80);
    EXPECT_EQ(Steps::claim(claim_word, limit_word, 80).outcome, ClaimOutcome::granted);
  });
  const auto result = Interrupted::claim(claim_word, limit_word, 30);
  EXPECT_EQ(result.outcome, ClaimOutcome::refused);
  EXPECT_EQ(result.claimed_before, 80U);
  EXPECT_EQ(claim_word.load() >> 44, 2U) << "the refusal itself changes nothing";
}

TEST(Interleaving, a_claim_between_the_limits_store_and_its_bump_is_judged_by_the_new_limit) {
  claim_word = 40;
  limit_word = pack_limit(100, true, false);
  OtherThread::arm(claim_word, 1, [] { EXPECT_EQ(Steps::claim(claim_word, limit_word, 20).outcome, ClaimOutcome::refused); });
  Interrupted::set_limit(limit_word, claim_word, pack_limit(50, true, false));
  EXPECT_EQ(claim_word.load(), 40 + flight::kNumberOne);
}

TEST(Interleaving, a_budget_raised_between_look_and_refusal_is_not_missed_by_the_next_claim) {
  claim_word = 80;
  limit_word = pack_limit(100, true, false);
  OtherThread::arm(claim_word, 2, [] { Steps::set_limit(limit_word, claim_word, pack_limit(200, true, false)); });
  EXPECT_EQ(Interrupted::claim(claim_word, limit_word, 30).outcome, ClaimOutcome::granted);
  EXPECT_EQ(claim_word.load() & kBytesMask, 110U);
}

TEST(Interleaving, a_pressure_judged_on_old_figures_is_judged_again) {
  claim_word = 95;
  limit_word = pack_limit(100, true, false);
  pressure_word = 0;
  // Between the look at the ledger and the CAS another thread gives everything back and judges: it finds nothing to change yet.
  OtherThread::arm(pressure_word, 2, [] {
    Steps::give_back(claim_word, 95);
    Steps::judge_pressure(pressure_word, claim_word, limit_word, margin_word, [](Steps::Transition const&) { ADD_FAILURE(); });
  });
  int told = 0;
  Interrupted::judge_pressure(pressure_word, claim_word, limit_word, margin_word,
                              [&](Interrupted::Transition const&) { ++told; });
  EXPECT_EQ(static_cast<PressureLevel>(pressure_word.load() & 0xFF), pressure_level(0, 100)) << "right at rest";
  EXPECT_EQ(told, 2) << "up on the old figures, and down again at the second look";
  EXPECT_EQ(pressure_word.load() >> 8, 2U);
}

TEST(Interleaving, a_pressure_changed_by_another_between_look_and_cas_is_left_to_it) {
  claim_word = 95;
  limit_word = pack_limit(100, true, false);
  pressure_word = 0;
  OtherThread::arm(pressure_word, 2, [] {
    Steps::judge_pressure(pressure_word, claim_word, limit_word, margin_word, [](Steps::Transition const&) {});
  });
  Interrupted::judge_pressure(pressure_word, claim_word, limit_word, margin_word,
                              [](Interrupted::Transition const&) { ADD_FAILURE(); });
  EXPECT_EQ(pressure_word.load() >> 8, 1U) << "one transition, told once";
}

#ifdef HEADROOM_TEST_POINTS

// ── Between the steps of a manager ──

class AllocatingAtEveryPoint : public AtEveryPoint {};
class FreeingAtEveryPoint : public AtEveryPoint {};

TEST_P(AllocatingAtEveryPoint, books_obey_the_invariants_and_others_go_on) {
  std::optional<TrackedBuffer<std::byte>> buffer;
  stand_still(300, [&] { buffer = manager_.alloc<std::byte>(300).value(); });
  expect_end(1300, 0);
}

INSTANTIATE_TEST_SUITE_P(Points, AllocatingAtEveryPoint,
                         testing::Values(Standstill{TestPoint::allocate_before_claim, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::allocate_after_claim, 1300, 1000, 1000, 0},
                                         Standstill{TestPoint::allocate_after_driver, 1300, 1000, 1000, 0},
                                         Standstill{TestPoint::allocate_after_slot, 1300, 1000, 1000, 0},
                                         Standstill{TestPoint::allocate_after_admit, 1300, 1300, 1000, 0},
                                         Standstill{TestPoint::book_before_peak, 1300, 1300, 1000, 0},
                                         Standstill{TestPoint::book_before_publish, 1300, 1300, 1000, 0},
                                         Standstill{TestPoint::book_before_record, 1300, 1300, 1300, 0},
                                         Standstill{TestPoint::operation_before_end, 1300, 1300, 1300, 0},
                                         Standstill{TestPoint::claim_before_exchange, 1000, 1000, 1000, 0}));

TEST_P(FreeingAtEveryPoint, books_obey_the_invariants_and_others_go_on) {
  auto buffer = manager_.alloc<std::byte>(300).value();
  stand_still(300, [&] { EXPECT_TRUE(buffer.release()); });
  expect_end(1000, 0);
}

INSTANTIATE_TEST_SUITE_P(Points, FreeingAtEveryPoint,
                         testing::Values(Standstill{TestPoint::free_before_driver, 1300, 1300, 1300, 0},
                                         Standstill{TestPoint::free_after_driver, 1300, 1300, 1300, 0},
                                         Standstill{TestPoint::free_after_slot, 1300, 1300, 1000, 0},
                                         Standstill{TestPoint::free_after_retire, 1300, 1000, 1000, 0},
                                         Standstill{TestPoint::unclaim_before_wake, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::unclaim_before_judge, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::free_after_unclaim, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::operation_before_end, 1000, 1000, 1000, 0}));

TEST(Interleaving, a_request_refused_beside_a_claim_that_fails_is_granted_after_all) {
  // 1: the first claim stands before its driver, 2: the second request was refused once, 3: the first request is over
  static std::atomic<int> step;
  step = 0;
  auto host = host_manager(MemoryBudget::with_limit(1000));
  host.resource->faults().add({.operation = FaultOperation::allocate, .min_bytes = 800, .max_bytes = 800});
  test_point_handler.store([](TestPoint at) noexcept {
    if (at == TestPoint::allocate_after_claim && step == 0) {
      step = 1;
      step.notify_all();
      step.wait(1);
    }
    // The first request takes its claim back before the second one looks again.
    if (at == TestPoint::claim_before_retry && step == 1) {
      step = 2;
      step.notify_all();
      step.wait(2);
    }
  });
  std::thread first{[&] {
    EXPECT_FALSE(host.manager.alloc<std::byte>(800));
    step = 3;
    step.notify_all();
  }};
  step.wait(0);
  auto second = host.manager.alloc<std::byte>(900);
  first.join();
  test_point_handler.store(nullptr);
  EXPECT_TRUE(second) << "900 of 1,000 bytes were free: only a claim in flight stood in the way";
  EXPECT_EQ(host.manager.stats().refusals, 1U);
}

TEST(Interleaving, a_peak_reset_between_admission_and_raise_does_not_end_below_allocated) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::optional<TrackedBuffer<std::byte>> buffer;
  while_stopped_at(
      TestPoint::book_before_peak, [&] { buffer = manager.alloc<std::byte>(300).value(); },
      [&] {
        manager.reset_peak();
        EXPECT_EQ(manager.peak_bytes(), 300U);
      });
  EXPECT_EQ(manager.peak_bytes(), 300U);
}

TEST(Interleaving, a_lower_limit_is_in_force_before_anyone_was_told) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  while_stopped_at(
      TestPoint::budget_before_wake, [&] { manager.set_budget(MemoryBudget::with_limit(100)); },
      [&] {
        EXPECT_FALSE(manager.alloc<std::byte>(101));
        EXPECT_TRUE(manager.alloc<std::byte>(100));
      });
}

TEST(Interleaving, a_waiter_that_announces_itself_after_the_bytes_came_back_finds_them) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto& cell = flight::recorder.ledgers[manager.ledger_cell().value()];
  using Wait = ledger::WaitProtocol<StdAtomics>;
  auto buffer = manager.alloc<std::byte>(1000).value();
  while_stopped_at(
      TestPoint::unclaim_before_wake, [&] { EXPECT_TRUE(buffer.release()); },
      [&] {
        Wait::announce(cell.waiters);
        EXPECT_TRUE(manager.check_budget(1000)) << "so it need not sleep";
      });
  Wait::leave(cell.waiters);
}

TEST(Interleaving, bytes_that_come_back_between_announcement_and_sleep_end_the_sleep_at_once) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto& cell = flight::recorder.ledgers[manager.ledger_cell().value()];
  using Wait = ledger::WaitProtocol<StdAtomics>;
  static std::optional<TrackedBuffer<std::byte>> held;
  held = manager.alloc<std::byte>(1000).value();
  Wait::announce(cell.waiters);
  const std::uint64_t seen = Wait::epoch(cell.epoch);
  ASSERT_FALSE(manager.check_budget(1));
  test_point_handler.store([](TestPoint at) noexcept {
    if (at == TestPoint::wait_before_sleep) std::thread{[] { held.reset(); }}.join();
  });
  // A sleep that misses them outlasts this test's time by far.
  ledger::sleep_on_epoch(cell.epoch, seen, std::chrono::steady_clock::now() + std::chrono::hours{24});
  test_point_handler.store(nullptr);
  EXPECT_EQ(Wait::epoch(cell.epoch), seen + 1);
  EXPECT_TRUE(manager.check_budget(1000));
  Wait::leave(cell.waiters);
}

TEST(Interleaving, a_slot_between_taking_and_publishing_belongs_to_nobody_else) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::optional<TrackedBuffer<std::byte>> first;
  std::vector<TrackedBuffer<std::byte>> others;
  while_stopped_at(
      TestPoint::allocate_after_slot, [&] { first = manager.alloc<std::byte>(300).value(); },
      [&] {
        for (int i = 0; i < 2000; ++i) others.push_back(manager.alloc<std::byte>(1).value());  // more than a share of the table
        EXPECT_EQ(snapshot_of(manager).live_allocations, 2000U);
      });
  const auto audit = manager.audit();
  EXPECT_EQ(audit.live_allocations, 2001U);
  EXPECT_TRUE(audit.clean()) << audit.to_string();
}

TEST(Interleaving, a_ledger_is_not_reused_while_a_thread_still_writes_about_it) {
  std::optional<GpuMemoryManager> manager{null_manager(MemoryBudget::unlimited())};
  auto buffer = manager->alloc<std::byte>(300).value();
  const auto cell = manager->ledger_cell();
  while_stopped_at(
      TestPoint::free_after_unclaim, [&] { EXPECT_TRUE(buffer.release()); },
      [&] {
        manager.reset();
        const auto next = null_manager(MemoryBudget::unlimited());
        EXPECT_NE(next.ledger_cell(), cell) << "all bytes are back, but the record is not written";
      });
}

TEST(Interleaving, a_failed_free_stays_charged_at_every_step) {
  for (const TestPoint point : {TestPoint::free_failed_before_move, TestPoint::free_failed_before_record}) {
    auto host = host_manager(MemoryBudget::with_limit(1000));
    auto buffer = host.manager.alloc<std::byte>(300).value();
    host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
    while_stopped_at(
        point, [&] { EXPECT_FALSE(buffer.release()); },
        [&] {
          EXPECT_EQ(host.manager.claimed_bytes(), 300U);
          EXPECT_EQ(host.manager.allocated_bytes(), 300U);
          EXPECT_EQ(host.manager.audit().live_bytes, 300U);
        });
    EXPECT_EQ(host.manager.retry_failed_deallocations(), 1U);
    EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  }
}

#endif

}  // namespace
}  // namespace headroom::test
