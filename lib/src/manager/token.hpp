// The steps of a reservation's state word. See reservation.hpp for what it holds.
//
//   allocate   InFlightScope · take_from · spend_claim · (driver) · admit … · scope ends · finish_taking(0)
//              refused:                                  (driver says no) · unspend · refusal · scope ends · finish_taking(bytes)
//   release    closed := 1; whoever finds it closed with nothing under way drops the rest: stack, then ledger
#pragma once

#include <cstdint>
#include <source_location>

#include <headroom/error.hpp>
#include <headroom/reservation.hpp>

#include "ledger/ledger.hpp"
#include "manager/request.hpp"

namespace headroom::manager {

/// The token of a reservation, for what stands upon managers.
struct TokenAccess {
  [[nodiscard]] static Token& of(GpuMemoryReservation& reservation) noexcept { return reservation.token_; }
};

/// As GpuMemoryManager::reserve_bytes. `again`: a shortage is no event, since no request was refused.
[[nodiscard]] Result<GpuMemoryReservation> make_reservation(Route& route, std::uint64_t bytes, bool again,
                                                            std::source_location const& site);

/// Takes `bytes` of the rest and counts one allocation under way. Refused: claimed_before and limit are the reservation's used and
/// total bytes. Beside allocations that may still fail and give back, it tries again up to 3 times, as a claim does.
[[nodiscard]] ledger::ClaimResult take_from(Token& token, std::uint64_t bytes) noexcept;
/// The ledger's side: the bytes are this request's claim now. What the claim was before it, for the books.
[[nodiscard]] ledger::ClaimResult spend_claim(ledger::Ledger& ledger, std::uint64_t bytes) noexcept;
/// The allocation under way is over; `returned` bytes of it come back to the rest.
void finish_taking(Token& token, std::uint64_t returned) noexcept;

/// The rest of `from` becomes part of the rest of `into`, and `from` ends. Both are of one route; nobody else knows `from`, and nobody
/// releases `into` meanwhile. The ledger's bytes stay claimed throughout.
void merge_tokens(Token& from, Token& into) noexcept;

[[nodiscard]] Error refuse_overspent(Token const& token, Request const& request, ledger::ClaimResult const& claim);
[[nodiscard]] Error empty_token_error() noexcept;

}  // namespace headroom::manager
