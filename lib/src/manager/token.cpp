#include "manager/token.hpp"

#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "manager/errors.hpp"

namespace headroom::manager {
namespace {

using ledger::ClaimOutcome;
using ledger::ClaimResult;

constexpr int kTriesBesideOthers = 3;

bool has_others_under_way(std::uint64_t state) noexcept { return (state & ~(Token::kRestMask | Token::kClosed)) != 0; }
bool is_over(std::uint64_t state) noexcept { return (state & ~Token::kRestMask) == Token::kClosed; }

ClaimResult refused(Token const& token, std::uint64_t state) noexcept {
  return {.outcome = ClaimOutcome::refused,
          .claimed_before = token.total - (state & Token::kRestMask),
          .limit_word = ledger::pack_limit(token.total, true, false)};
}

// Called once in a reservation's life: nothing is under way and nothing can begin.
void drop_rest(Token& token, std::uint64_t rest) noexcept {
  if (token.total == 0 || flight::in_forked_child()) return;
  Route& route = *token.route;
  flight::ThreadState& thread = flight::this_thread();
  const ledger::InFlightScope in_flight{thread, route.ledger(), flight::InFlight::dropping, rest, ticks_now()};
  // The budget below first: whoever finds room here must find it there.
  if (route.has_runtime()) route.resource().unreserve(rest);
  const flight::LaneSection section{thread};
  route.ledger().drop_reservation(section, rest);
}

}  // namespace

ClaimResult take_from(Token& token, std::uint64_t bytes) noexcept {
  std::uint64_t state = token.state.load(std::memory_order_relaxed);
  for (int tries = 0;;) {
    if ((state & Token::kClosed) != 0) return refused(token, state);
    if (bytes > (state & Token::kRestMask)) {
      if (tries++ == kTriesBesideOthers || !has_others_under_way(state)) return refused(token, state);
      std::this_thread::yield();
      state = token.state.load(std::memory_order_relaxed);
      continue;
    }
    if (token.state.compare_exchange_weak(state, state + Token::kOneUnderWay - bytes, std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
      return {.outcome = ClaimOutcome::granted};
    }
  }
}

ClaimResult spend_claim(ledger::Ledger& ledger, std::uint64_t bytes) noexcept {
  ledger.spend(bytes);
  const std::uint64_t claimed = ledger.cell().claim.load(std::memory_order_relaxed) & ledger::kBytesMask;
  return {.outcome = ClaimOutcome::granted, .claimed_before = claimed - bytes, .limit_word = ledger.limit_word()};
}

void finish_taking(Token& token, std::uint64_t returned) noexcept {
  const std::uint64_t change = returned - Token::kOneUnderWay;
  const std::uint64_t state = token.state.fetch_add(change, std::memory_order_acq_rel) + change;
  if (is_over(state)) drop_rest(token, state & Token::kRestMask);
}

void release_token(Token& token) noexcept {
  if (token.route == nullptr) return;
  const std::uint64_t before = token.state.fetch_or(Token::kClosed, std::memory_order_acq_rel);
  if ((before & Token::kClosed) == 0 && is_over(before | Token::kClosed)) drop_rest(token, before & Token::kRestMask);
}

void end_token(Token& token) noexcept {
  if (token.route == nullptr) return;
  release_token(token);
  token.route->drop_handle();
  token.route = nullptr;
}

void move_token(Token& from, Token& to) noexcept {
  to.route = std::exchange(from.route, nullptr);
  to.total = std::exchange(from.total, 0);
  to.state.store(from.state.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
}

void merge_tokens(Token& from, Token& into) noexcept {
  into.state.fetch_add(from.state.exchange(0, std::memory_order_acq_rel) & Token::kRestMask, std::memory_order_acq_rel);
  end_token(from);
}

Error refuse_overspent(Token const& token, Request const& request, ClaimResult const& claim) {
  const bool released = (token.state.load(std::memory_order_relaxed) & Token::kClosed) != 0;
  const ErrorKind kind = released ? ErrorKind::invalid_argument : ErrorKind::over_budget;
  ledger::Ledger& ledger = request.route.ledger();
  if (!request.arguments.again) {
    const flight::LaneSection section{request.thread};
    ledger.book_refusal(section, refusal_of(request, kind, Layer::request, claim));
  }
  Error error = make_error(kind, Layer::request, words([&] {
                             return released ? "the reservation of " + std::to_string(token.total) +
                                                   " bytes was released: it gives nothing more"
                                             : "of the reservation's " + std::to_string(token.total) + " bytes " +
                                                   std::to_string(token.total - claim.claimed_before) + " are left";
                           }));
  error.requested = request.bytes;
  add_figures(error, ledger, claim);
  return error;
}

Error empty_token_error() noexcept {
  return make_error(ErrorKind::invalid_argument, Layer::request, words([] {
                      return std::string{"the reservation is empty: it was moved from, or never made by reserve_bytes"};
                    }));
}

}  // namespace headroom::manager
