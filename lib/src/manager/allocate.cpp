// The allocation path of a manager: claim first, admit after. Where the bytes come from, the budget or a reservation, is the only
// difference between the two ways in.
#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/directory.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "manager/errors.hpp"
#include "manager/failure_observer.hpp"
#include "manager/request.hpp"
#include "manager/route.hpp"
#include "manager/shortage.hpp"
#include "manager/token.hpp"

namespace headroom::manager {
namespace {

using flight::InFlight;
using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

// Bytes claimed for this request alone.
struct FromBudget {
  static constexpr InFlight kOperation = InFlight::allocating;
  static constexpr bool kReserved = false;

  static ClaimResult take(Request const& request) noexcept {
    test_point(TestPoint::allocate_before_claim);
    const ClaimResult claim = request.route.ledger().claim(request.bytes);
    test_point(TestPoint::allocate_after_claim);
    return claim;
  }
  static bool gives_nothing() noexcept { return false; }
  static Error refuse(Request const& request, ClaimResult const& claim) {
    return claim.outcome == ClaimOutcome::refused
               ? refuse_over_budget(request, claim)
               : refuse_at_once(request, ErrorKind::overflow, too_large_message(request.bytes));
  }
  static void taken(Request const& request, ClaimResult const& claim) noexcept {
    {
      const LaneSection section{request.thread};
      request.route.ledger().judge_pressure(section);
    }
    if (claim.outcome == ClaimOutcome::observed) [[unlikely]]
      book_observed(request, claim);
  }
  static void give_back(Request const& request) noexcept {
    const LaneSection section{request.thread};
    request.route.ledger().unclaim(request.bytes, section);
  }
};

// Bytes that a reservation claimed: the claim stays as it is, so no pressure changes and nobody is woken.
struct FromToken {
  static constexpr InFlight kOperation = InFlight::spending;
  static constexpr bool kReserved = true;
  Token& token;
  bool took = false;

  ClaimResult take(Request const& request) noexcept {
    const ClaimResult result = take_from(token, request.bytes);
    if (result.outcome != ClaimOutcome::granted) return result;
    took = true;
    return spend_claim(request.route.ledger(), request.bytes);
  }
  /// Not even nothing: the reservation was released.
  [[nodiscard]] bool gives_nothing() const noexcept {
    return (token.state.load(std::memory_order_relaxed) & Token::kClosed) != 0;
  }
  Error refuse(Request const& request, ClaimResult const& claim) const { return refuse_overspent(token, request, claim); }
  static void taken(Request const& /*request*/, ClaimResult const& /*claim*/) noexcept {}
  // The token's rest follows when the operation is over: see allocate(Token&).
  static void give_back(Request const& request) noexcept { request.route.ledger().unspend(request.bytes); }
};

// Inlined by force into the two ways in: see make_owner.
template <class Funds>
[[gnu::always_inline]] inline std::optional<Error> allocate_out_of(Funds& funds, Route& route, AllocArguments const& arguments,
                                                                   std::source_location const& site, Allocation& allocation) {
  if (flight::in_forked_child()) return forked_child_error();
  flight::ThreadState& thread = flight::this_thread();
  Ledger& ledger = route.ledger();
  const std::optional<std::uint64_t> bytes = checked_mul(arguments.count, arguments.element_bytes);
  const std::uint16_t tag = arguments.tag.is_default() ? thread.scoped_tag : arguments.tag.id();
  const Request request{.route = route,
                        .thread = thread,
                        .arguments = arguments,
                        .start_ticks = ticks_now(),
                        .bytes = bytes.value_or(~std::uint64_t{0}),
                        .alignment = std::max(arguments.alignment, kMinimumAlignment),
                        .tag = tag,
                        .place = ledger.tag_place(tag),
                        .site = flight::intern_site(site),
                        .counted = !arguments.again};
  if (arguments.needs_runtime && !route.has_runtime())
    return refuse_at_once(request, ErrorKind::no_runtime, no_runtime_message());
  if (!bytes) return refuse_at_once(request, ErrorKind::overflow, overflow_message(arguments.count, arguments.element_bytes));
  if (*bytes > ledger::kBytesMask) return refuse_at_once(request, ErrorKind::overflow, too_large_message(*bytes));
  if (!is_power_of_two(arguments.alignment)) {
    return refuse_at_once(request, ErrorKind::invalid_argument, alignment_message(arguments.alignment));
  }
  if (*bytes == 0) {
    if (funds.gives_nothing()) [[unlikely]]
      return funds.refuse(request, funds.take(request));
    const LaneSection section{thread};
    ledger.book_empty(section, arguments.typed);
    allocation.clear();
    return std::nullopt;
  }

  ledger::InFlightScope in_flight{thread, ledger, Funds::kOperation, *bytes, request.start_ticks};
  const ClaimResult claim = funds.take(request);
  if (claim.outcome != ClaimOutcome::granted && claim.outcome != ClaimOutcome::observed) return funds.refuse(request, claim);
  funds.taken(request, claim);

  const AllocRequest asked{.bytes = *bytes,
                           .alignment = request.alignment,
                           .stream = arguments.stream,
                           .tag = tag,
                           .reserved = Funds::kReserved && route.has_runtime()};
  Result<Block> block = ask_for_block(route.resource(), asked);
  if (!block) [[unlikely]] {
    block = ask_again_if_short(route, asked, request.place, std::move(block));
  }
  if (!block) [[unlikely]] {
    funds.give_back(request);
    return refuse_by_resource(request, claim, std::move(block.error()));
  }
  test_point(TestPoint::allocate_after_driver);

  const std::uint32_t slot = flight::take_slot(thread);
  test_point(TestPoint::allocate_after_slot);
  const std::uint64_t alloc_word = ledger.admit(*bytes);
  test_point(TestPoint::allocate_after_admit);
  route.note_live(thread);
  allocation.route = &route;
  allocation.pointer = block->pointer;
  allocation.bytes = *bytes;
  allocation.stream = block->stream.value;
  allocation.generation = block->generation;
  allocation.slot = slot;
  allocation.site = request.site;
  allocation.tag = tag;
  allocation.tag_entry = request.place.entry;
  allocation.tag_cell = request.place.cell;
  allocation.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  const LaneSection section{thread};
  allocation.slot_generation = ledger.book_allocation(section, {.bytes = *bytes,
                                                                .alignment = request.alignment,
                                                                .address = reinterpret_cast<std::uintptr_t>(block->pointer),
                                                                .stream = arguments.stream.value,
                                                                .start_ticks = request.start_ticks,
                                                                .end_ticks = ticks_now(),
                                                                .alloc_word = alloc_word,
                                                                .claimed_before = claim.claimed_before,
                                                                .tag = request.place,
                                                                .site = request.site,
                                                                .slot = slot,
                                                                .typed = arguments.typed,
                                                                .counted = request.counted});
  return std::nullopt;
}

// Over budget is an answer that programs live with; a device without memory seldom is.
void tell_if_device_is_out(Error const& error, Route& route, AllocArguments const& arguments,
                           std::source_location const& site) noexcept {
  if (error.kind != ErrorKind::device_out_of_memory || arguments.guarded) return;
  tell_of_failure(error, route.ledger(), arguments.tag, site);
}

}  // namespace

std::optional<Error> allocate(Route& route, AllocArguments const& arguments, std::source_location const& site,
                              Allocation& allocation) {
  FromBudget budget;
  std::optional<Error> error = allocate_out_of(budget, route, arguments, site, allocation);
  if (error) [[unlikely]]
    tell_if_device_is_out(*error, route, arguments, site);
  return error;
}

std::optional<Error> allocate(Token& token, AllocArguments const& arguments, std::source_location const& site,
                              Allocation& allocation) {
  if (token.route == nullptr) return empty_token_error();
  FromToken funds{.token = token};
  std::optional<Error> error = allocate_out_of(funds, *token.route, arguments, site, allocation);
  // After the operation ended: the last one at a released reservation gives its rest back, an operation of its own.
  if (funds.took) finish_taking(token, error ? checked_mul(arguments.count, arguments.element_bytes).value_or(0) : 0);
  if (error) [[unlikely]]
    tell_if_device_is_out(*error, *token.route, arguments, site);
  return error;
}

}  // namespace headroom::manager
