#include <algorithm>

#include "device/device_figures.hpp"
#include "ledger/protocol.hpp"
#include "manager/errors.hpp"
#include "manager/request.hpp"

namespace headroom::manager {

using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

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
          .typed = request.arguments.typed,
          .counted = request.counted};
}

void book_observed(Request const& request, ClaimResult const& claim) noexcept {
  auto observed = refusal_of(request, ErrorKind::over_budget, Layer::manager, claim);
  observed.observed = true;
  const LaneSection section{request.thread};
  request.route.ledger().book_refusal(section, observed);
}

Error refuse_at_once(Request const& request, ErrorKind kind, std::string message) {
  Ledger& ledger = request.route.ledger();
  const ClaimResult claim = present_claim(ledger);
  {
    const LaneSection section{request.thread};
    ledger.book_refusal(section, refusal_of(request, kind, Layer::request, claim));
  }
  Error error = make_error(kind, Layer::request, std::move(message));
  error.requested = request.bytes;
  add_figures(error, ledger, claim);
  return error;
}

Error refuse_over_budget(Request const& request, ClaimResult const& claim) {
  Ledger& ledger = request.route.ledger();
  Error error = make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = request.bytes;
  if (request.arguments.again) {
    // Many of these may come before one succeeds, and nobody reads them: no holders, no record.
    add_figures(error, ledger, claim);
    return error;
  }
  {
    const LaneSection section{request.thread};
    ledger.book_refusal(section, refusal_of(request, ErrorKind::over_budget, Layer::manager, claim));
  }
  add_figures(error, ledger, claim);
  add_holders(error, ledger);
  return error;
}

Error refuse_by_resource(Request const& request, ClaimResult const& claim, Error error) {
  Ledger& ledger = request.route.ledger();
  error.requested = request.bytes;
  // What a later try meets is news only when it is no shortage, which was booked the first time.
  const bool news = !request.arguments.again || !is_shortage(error);
  if (news) {
    const LaneSection section{request.thread};
    auto refusal = refusal_of(request, error.kind, error.layer, claim);
    take_figures(refusal, error);
    ledger.book_refusal(section, refusal);
  }
  // A budget's "no" is told without a look at the device, which costs a call into its driver; a budget below keeps its own figures.
  if (error.kind == ErrorKind::device_out_of_memory)
    device::add_device_figures(error, device::refresh_figures(ledger, request.route.resource()));
  // A budget below has spoken with figures of its own: ours would make nonsense of them.
  if (error.limit) return error;
  add_figures(error, ledger, claim);
  if (news) add_holders(error, ledger);
  return error;
}

}  // namespace headroom::manager
