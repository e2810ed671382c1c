// Bytes claimed ahead of their use. `unspent` names them, so that an audit and a post-mortem can tell them from a claim that was lost:
// claimed − Σ live − unspent is what operations in flight hold. Every step therefore moves `unspent` while the claim holds the bytes.
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/emit.hpp"
#include "ledger/ledger.hpp"

namespace headroom::ledger {

using namespace flight;  // NOLINT(google-build-using-namespace): the ledger is written in the flight file's terms

namespace {

Draft reservation_draft(EventKind kind, std::uint64_t bytes, std::uint64_t claim_word, std::uint32_t record_id,
                        PressureLevel pressure, std::uint32_t thread) noexcept {
  Draft draft;
  draft.words[0] = pack_kind(kind);
  draft.words[1] = ticks_now();
  draft.words[3] = pack_bytes(bytes, 0);
  draft.words[4] = claim_word;
  draft.words[5] = Subject{.ledger = record_id, .pressure = pressure}.pack();
  draft.words[7] = pack_duration(0, thread);
  return draft;
}

}  // namespace

ClaimResult Ledger::reserve(std::uint64_t bytes) noexcept {
  test_point(TestPoint::reserve_before_claim);
  const ClaimResult result = claim(bytes);
  if (result.outcome == ClaimOutcome::refused || result.outcome == ClaimOutcome::overflow) return result;
  test_point(TestPoint::reserve_after_claim);
  cell_->unspent.fetch_add(bytes, std::memory_order_acq_rel);
  cell_->unspent_reservations.fetch_add(1, std::memory_order_relaxed);
  test_point(TestPoint::reserve_after_unspent);
  return result;
}

void Ledger::book_reservation(LaneSection const& section, std::uint64_t bytes) noexcept {
  note_taken(section.thread(), bytes);
  judge_pressure(section);
  emit(section, EventKind::reserve,
       reservation_draft(EventKind::reserve, bytes, cell_->claim.load(std::memory_order_relaxed), record_id(), pressure_state(),
                         section.thread().thread_id));
}

void Ledger::spend(std::uint64_t bytes) noexcept {
  test_point(TestPoint::spend_before_unspent);
  cell_->unspent.fetch_sub(bytes, std::memory_order_acq_rel);
  test_point(TestPoint::spend_after_unspent);
}

bool Ledger::try_spend(std::uint64_t bytes) noexcept {
  test_point(TestPoint::spend_before_unspent);
  std::uint64_t unspent = cell_->unspent.load(std::memory_order_relaxed);
  do {
    if (unspent < bytes) return false;
  } while (!cell_->unspent.compare_exchange_weak(unspent, unspent - bytes, std::memory_order_acq_rel, std::memory_order_relaxed));
  test_point(TestPoint::spend_after_unspent);
  return true;
}

void Ledger::unspend(std::uint64_t bytes) noexcept { cell_->unspent.fetch_add(bytes, std::memory_order_acq_rel); }

void Ledger::drop_reservation(LaneSection const& section, std::uint64_t rest) noexcept {
  test_point(TestPoint::drop_before_unspent);
  cell_->unspent.fetch_sub(rest, std::memory_order_acq_rel);
  cell_->unspent_reservations.fetch_sub(1, std::memory_order_relaxed);
  test_point(TestPoint::drop_after_unspent);
  note_freed(section.thread(), rest);
  unclaim(rest, section);
  test_point(TestPoint::drop_after_unclaim);
  emit(section, EventKind::reserve_drop,
       reservation_draft(EventKind::reserve_drop, rest, cell_->claim.load(std::memory_order_relaxed), record_id(),
                         pressure_state(), section.thread().thread_id));
}

}  // namespace headroom::ledger
