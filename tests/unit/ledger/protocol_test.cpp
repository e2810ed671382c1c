// The steps of a ledger, one at a time and stopped in between.
#include <chrono>
#include <thread>

#include "base/atomics.hpp"
#include "base/test_point.hpp"
#include "ledger/protocol.hpp"
#include "ledger/waiting.hpp"
#include "managers.hpp"
#include "stop_at.hpp"

namespace headroom::test {
namespace {

using Steps = ledger::Protocol<StdAtomics>;
using flight::kBytesMask;
using flight::Word;
using ledger::ClaimOutcome;

TEST(Claim, moves_bytes_and_version_together) {
  Word claim{0};
  const Word limit{ledger::pack_limit(100, true, false)};
  EXPECT_EQ(Steps::claim(claim, limit, 60).outcome, ClaimOutcome::granted);
  EXPECT_EQ(claim.load(), 60 + flight::kNumberOne);
  const auto refused = Steps::claim(claim, limit, 41);
  EXPECT_EQ(refused.outcome, ClaimOutcome::refused);
  EXPECT_EQ(refused.claimed_before, 60U);
  EXPECT_EQ(claim.load(), 60 + flight::kNumberOne) << "a refusal never changes the word";
  Steps::give_back(claim, 60);
  EXPECT_EQ(claim.load(), 2 * flight::kNumberOne);
}

TEST(Claim, version_wraps_without_touching_the_bytes) {
  Word claim{(std::uint64_t{0xFFFFF} << 44) | 5};
  const Word limit{ledger::pack_limit(100, true, false)};
  EXPECT_EQ(Steps::claim(claim, limit, 7).outcome, ClaimOutcome::granted);
  EXPECT_EQ(claim.load(), 12U);
  Word last{(std::uint64_t{0xFFFFF} << 44) | 12};
  Steps::give_back(last, 12);
  EXPECT_EQ(last.load(), 0U);
}

TEST(Claim, overflow_is_not_a_refusal) {
  Word claim{0};
  const Word none{ledger::pack_limit(0, false, true)};
  EXPECT_EQ(Steps::claim(claim, none, kBytesMask + 1).outcome, ClaimOutcome::overflow);
  EXPECT_EQ(Steps::claim(claim, none, kBytesMask).outcome, ClaimOutcome::granted);
  EXPECT_EQ(Steps::claim(claim, none, 1).outcome, ClaimOutcome::overflow);
}

// A claim word that changes between the two looks of a refusal: the policy gives bytes back at the first load after the limit's.
struct FreeingAtomics : StdAtomics {
  static inline int loads = 0;
  static inline Word* claim = nullptr;
  static std::uint64_t load_seq_cst(Word const& word) noexcept {
    if (&word == claim && ++loads == 2) Steps::give_back(*claim, 50);
    return StdAtomics::load_seq_cst(word);
  }
};

TEST(Claim, refuses_only_when_the_word_stood_still) {
  Word claim{80};
  const Word limit{ledger::pack_limit(100, true, false)};
  FreeingAtomics::claim = &claim;
  FreeingAtomics::loads = 0;
  EXPECT_EQ(ledger::Protocol<FreeingAtomics>::claim(claim, limit, 40).outcome, ClaimOutcome::granted);
  EXPECT_EQ(claim.load() & kBytesMask, 70U);
}

// A budget lowered between a claim's check and its CAS.
struct LoweringAtomics : StdAtomics {
  static inline Word* claim = nullptr;
  static inline Word* limit = nullptr;
  static inline bool done = false;
  static bool cas_seq_cst(Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    if (&word == claim && !std::exchange(done, true)) Steps::set_limit(*limit, *claim, ledger::pack_limit(50, true, false));
    return StdAtomics::cas_seq_cst(word, expected, desired);
  }
};

TEST(Claim, checked_against_an_old_limit_fails_its_exchange_and_checks_again) {
  Word claim{0};
  Word limit{ledger::pack_limit(100, true, false)};
  LoweringAtomics::claim = &claim;
  LoweringAtomics::limit = &limit;
  LoweringAtomics::done = false;
  EXPECT_EQ(ledger::Protocol<LoweringAtomics>::claim(claim, limit, 80).outcome, ClaimOutcome::refused);
  EXPECT_EQ(claim.load() & kBytesMask, 0U);
}

TEST(Peak, rises_only_on_strictly_more_bytes_and_names_its_operation) {
  Word peak{0};
  EXPECT_TRUE(Steps::raise_peak(peak, (std::uint64_t{3} << 44) | 10));
  EXPECT_FALSE(Steps::raise_peak(peak, (std::uint64_t{9} << 44) | 10));
  EXPECT_EQ(peak.load(), (std::uint64_t{3} << 44) | 10);
}

// An allocation between the two looks of a reset.
struct AllocatingAtomics : StdAtomics {
  static inline Word* alloc = nullptr;
  static std::uint64_t exchange_seq_cst(Word& word, std::uint64_t value) noexcept {
    const std::uint64_t after = Steps::admit(*alloc, 500);
    Steps::raise_peak(word, after);
    return StdAtomics::exchange_seq_cst(word, value);
  }
};

TEST(Peak, reset_never_leaves_it_below_allocated) {
  Word alloc{100};
  Word peak{1000};
  AllocatingAtomics::alloc = &alloc;
  ledger::Protocol<AllocatingAtomics>::reset_peak(peak, alloc);
  EXPECT_EQ(peak.load() & kBytesMask, 600U);
}

TEST(Waiting, a_give_back_wakes_whoever_announced_itself) {
  using Wait = ledger::WaitProtocol<StdAtomics>;
  Word waiters{0};
  Word epoch{0};
  EXPECT_FALSE(Wait::bump_if_awaited(waiters, epoch)) << "nobody waits: no system call";
  Wait::announce(waiters);
  const std::uint64_t seen = Wait::epoch(epoch);
  std::thread giver{[&] {
    if (Wait::bump_if_awaited(waiters, epoch)) ledger::wake_all(epoch);
  }};
  // A sleep that nobody ends outlasts this test's time by far.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours{24};
  while (Wait::epoch(epoch) == seen) ledger::sleep_on_epoch(epoch, seen, deadline);
  giver.join();
  Wait::leave(waiters);
  EXPECT_EQ(Wait::epoch(epoch), seen + 1);
  EXPECT_EQ(waiters.load(), 0U);
}

TEST(Waiting, a_sleep_ends_at_its_deadline) {
  Word epoch{7};
  const auto start = std::chrono::steady_clock::now();
  ledger::sleep_on_epoch(epoch, 7, start + std::chrono::milliseconds{20});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds{15});
  ledger::sleep_on_epoch(epoch, 6, start + std::chrono::hours{1});  // another value: returns at once
}

#ifdef HEADROOM_TEST_POINTS
TEST(Steps, a_claim_in_flight_is_named_by_its_lane_and_counted_as_claimed_not_allocated) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  while_stopped_at(
      TestPoint::allocate_after_claim, [&] { ASSERT_TRUE(manager.alloc<std::byte>(300)); },
      [&] {
        EXPECT_EQ(manager.claimed_bytes(), 300U);
        EXPECT_EQ(manager.allocated_bytes(), 0U);
        const auto ledger = snapshot_of(manager);
        EXPECT_EQ(ledger.in_flight_bytes, 300U);
        EXPECT_EQ(ledger.live_allocations, 0U);
        bool named = false;
        for (auto const& operation : flight::FlightView::of_this_process()->in_flight()) {
          named = named || (operation.operation == flight::InFlight::allocating && operation.bytes == 300 &&
                            operation.ledger == ledger.cell);
        }
        EXPECT_TRUE(named);
      });
  EXPECT_EQ(snapshot_of(manager).in_flight_bytes, 0U);
  EXPECT_TRUE(manager.audit().clean());
}

TEST(Steps, bytes_return_to_the_budget_only_after_the_slot_is_gone_and_allocated_fell) {
  auto manager = null_manager(MemoryBudget::with_limit(300));
  auto buffer = manager.alloc<std::byte>(300).value();
  while_stopped_at(
      TestPoint::free_after_retire, [&] { ASSERT_TRUE(buffer.release()); },
      [&] {
        EXPECT_EQ(manager.allocated_bytes(), 0U);
        EXPECT_EQ(manager.claimed_bytes(), 300U);
        EXPECT_FALSE(manager.check_budget(1));
      });
  EXPECT_TRUE(manager.check_budget(300));
}
#endif

}  // namespace
}  // namespace headroom::test
