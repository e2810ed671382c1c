// The allocation path of a manager: claim first, admit after.
#include <algorithm>
#include <bit>
#include <exception>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/directory.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "manager/core.hpp"
#include "manager/errors.hpp"

namespace headroom::manager {
namespace {

using flight::InFlight;
using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

// What is known of a request from its start on.
struct Request {
  Core& core;
  flight::ThreadState& thread;
  AllocArguments const& arguments;
  std::uint64_t start_ticks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint16_t tag = 0;
  flight::TagPlace place;
  std::uint32_t site = 0;
};

ledger::Refusal refusal_of(Request const& request, ErrorKind kind, Layer layer, ClaimResult const& claim) noexcept {
  return {.kind = kind,
          .layer = layer,
          .requested = request.bytes,
          .alignment = request.alignment,
          .claimed = claim.claimed_before,
          .limit_word = claim.limit_word,
          .device_free = {},
          .start_ticks = request.start_ticks,
          .tag = request.place,
          .site = request.site,
          .typed = request.arguments.typed};
}

ClaimResult look(Ledger& ledger) noexcept {
  return {.outcome = ClaimOutcome::refused, .claimed_before = ledger.words().claimed, .limit_word = ledger.limit_word()};
}

// A request that no budget could ever hold, or that makes no sense: refused before anything is touched.
Error refuse_at_once(Request const& request, ErrorKind kind, std::string message) {
  Ledger& ledger = request.core.ledger();
  const ClaimResult claim = look(ledger);
  const LaneSection section{request.thread};
  ledger.book_refusal(section, refusal_of(request, kind, Layer::request, claim));
  Error error = make_error(kind, Layer::request, std::move(message));
  error.requested = request.bytes;
  add_figures(error, ledger, claim);
  return error;
}

Error refuse_over_budget(Request const& request, ClaimResult const& claim) {
  Ledger& ledger = request.core.ledger();
  {
    const LaneSection section{request.thread};
    ledger.book_refusal(section, refusal_of(request, ErrorKind::over_budget, Layer::manager, claim));
  }
  Error error = make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = request.bytes;
  add_figures(error, ledger, claim);
  add_holders(error, ledger);
  return error;
}

// The resource said no: the claim goes back, and the error keeps the layer and words of whoever refused.
Error refuse_by_resource(Request const& request, ClaimResult const& claim, Error error) {
  Ledger& ledger = request.core.ledger();
  {
    const LaneSection section{request.thread};
    ledger.unclaim(request.bytes, section);
    auto refusal = refusal_of(request, error.kind, error.layer, claim);
    refusal.device_free = error.device_free;
    refusal.device_code = error.device_code;
    ledger.book_refusal(section, refusal);
  }
  error.requested = request.bytes;
  add_figures(error, ledger, claim);
  add_holders(error, ledger);
  return error;
}

// No exception leaves the library, whatever a user's resource throws.
Result<Block> ask_resource(Request const& request) noexcept {
  try {
    return request.core.resource().allocate(
        {.bytes = request.bytes, .alignment = request.alignment, .stream = request.arguments.stream, .tag = request.tag});
  } catch (std::exception const& thrown) {
    return fail(ErrorKind::driver, Layer::resource, std::string{"the resource threw: "} + thrown.what());
  } catch (...) {
    return fail(ErrorKind::driver, Layer::resource, "the resource threw something that is no std::exception");
  }
}

}  // namespace

std::optional<Error> allocate(Core& core, AllocArguments const& arguments, std::source_location const& site,
                              Allocation& allocation) {
  if (flight::in_forked_child()) return forked_child_error();
  flight::ThreadState& thread = flight::this_thread();
  Ledger& ledger = core.ledger();
  const std::optional<std::uint64_t> bytes = checked_mul(arguments.count, arguments.element_bytes);
  const std::uint16_t tag = arguments.tag.is_default() ? thread.scoped_tag : arguments.tag.id();
  const Request request{.core = core,
                        .thread = thread,
                        .arguments = arguments,
                        .start_ticks = ticks_now(),
                        .bytes = bytes.value_or(~std::uint64_t{0}),
                        .alignment = std::max(arguments.alignment, kMinimumAlignment),
                        .tag = tag,
                        .place = ledger.tag_place(tag),
                        .site = flight::intern_site(site)};
  if (!bytes) return refuse_at_once(request, ErrorKind::overflow, overflow_message(arguments.count, arguments.element_bytes));
  if (*bytes > ledger::kBytesMask) return refuse_at_once(request, ErrorKind::overflow, too_large_message(*bytes));
  if (!is_power_of_two(arguments.alignment)) {
    return refuse_at_once(request, ErrorKind::invalid_argument, alignment_message(arguments.alignment));
  }
  if (*bytes == 0) {
    const LaneSection section{thread};
    ledger.book_empty(section, arguments.typed);
    allocation.clear();
    return std::nullopt;
  }

  ledger::InFlightScope in_flight{thread, ledger, InFlight::allocating, *bytes, request.start_ticks};
  test_point(TestPoint::allocate_before_claim);
  const ClaimResult claim = ledger.claim(*bytes);
  test_point(TestPoint::allocate_after_claim);
  if (claim.outcome == ClaimOutcome::refused) return refuse_over_budget(request, claim);
  if (claim.outcome == ClaimOutcome::overflow) return refuse_at_once(request, ErrorKind::overflow, too_large_message(*bytes));
  {
    const LaneSection section{thread};
    ledger.judge_pressure(section);
    if (claim.outcome == ClaimOutcome::observed) [[unlikely]] {
      auto observed = refusal_of(request, ErrorKind::over_budget, Layer::manager, claim);
      observed.observed = true;
      ledger.book_refusal(section, observed);
    }
  }

  Result<Block> block = ask_resource(request);
  if (!block) return refuse_by_resource(request, claim, std::move(block.error()));
  test_point(TestPoint::allocate_after_driver);

  const std::uint32_t slot = flight::take_slot(thread);
  test_point(TestPoint::allocate_after_slot);
  const std::uint64_t alloc_word = ledger.admit(*bytes);
  test_point(TestPoint::allocate_after_admit);
  allocation.core = &core;
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
                                                                .typed = arguments.typed});
  return std::nullopt;
}

}  // namespace headroom::manager
