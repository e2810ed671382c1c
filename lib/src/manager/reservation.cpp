// Making a reservation. What it does later is token.cpp.
#include <string>
#include <utility>

#include <headroom/manager.hpp>

#include "base/clock.hpp"
#include "base/thrown_error.hpp"
#include "device/guarded.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"
#include "manager/errors.hpp"
#include "manager/request.hpp"
#include "manager/token.hpp"

namespace headroom {
namespace {

using ledger::ClaimOutcome;
using ledger::ClaimResult;
using manager::Request;
using manager::Route;

// No exception leaves the library, whatever a user's resource throws.
Result<void> reserve_below(Route& route, std::uint64_t bytes) noexcept {
  auto reserved = device::guarded([&] { return route.resource().reserve(bytes); });
  if (!reserved && reserved.error().kind == ErrorKind::unsupported) {
    Error& error = reserved.error();
    error.layer = Layer::runtime;
    error.message = words([&] {
      return "the runtime has no finite budget to reserve of: put a GlobalDeviceBudget on its stack (" + error.message + ")";
    });
  }
  return reserved;
}

// The budget's "no", or the books': nothing is claimed anywhere when this is called.
Error refuse(Request const& request, ClaimResult const& claim) {
  return claim.outcome == ClaimOutcome::overflow
             ? refuse_at_once(request, ErrorKind::overflow, manager::too_large_message(request.bytes))
             : refuse_over_budget(request, claim);
}

bool is_granted(ClaimResult const& claim) noexcept {
  return claim.outcome == ClaimOutcome::granted || claim.outcome == ClaimOutcome::observed;
}

std::optional<Error> reserve(Request const& request) {
  ledger::Ledger& ledger = request.route.ledger();
  // A hopeless reservation disturbs nobody: the budget below is not asked for it.
  const ClaimResult look = ledger.look(request.bytes);
  if (!is_granted(look)) return refuse(request, look);
  if (request.route.has_runtime()) {
    auto below = reserve_below(request.route, request.bytes);
    if (!below) return refuse_by_resource(request, look, std::move(below.error()));
  }
  const ClaimResult claim = ledger.reserve(request.bytes);
  if (!is_granted(claim)) {
    if (request.route.has_runtime()) request.route.resource().unreserve(request.bytes);
    return refuse(request, claim);
  }
  {
    const flight::LaneSection section{request.thread};
    ledger.book_reservation(section, request.bytes);
  }
  if (claim.outcome == ClaimOutcome::observed) book_observed(request, claim);
  return std::nullopt;
}

}  // namespace

namespace manager {

// `again`: nobody asked for it just now, so that a refusal for lack of memory is no event.
Result<GpuMemoryReservation> make_reservation(Route& route, std::uint64_t bytes, bool again, std::source_location const& site) {
  if (flight::in_forked_child()) return tl::unexpected{forked_child_error()};
  flight::ThreadState& thread = flight::this_thread();
  ledger::Ledger& ledger = route.ledger();
  const AllocArguments arguments{.count = bytes, .typed = false, .again = again};
  const Request request{.route = route,
                        .thread = thread,
                        .arguments = arguments,
                        .start_ticks = ticks_now(),
                        .bytes = bytes,
                        .tag = thread.scoped_tag,
                        .place = ledger.tag_place(thread.scoped_tag),
                        .site = flight::intern_site(site),
                        .counted = false};
  if (bytes > ledger::kBytesMask) {
    return tl::unexpected{refuse_at_once(request, ErrorKind::overflow, too_large_message(bytes))};
  }
  if (bytes != 0) {
    const ledger::InFlightScope in_flight{thread, ledger, flight::InFlight::reserving, bytes, request.start_ticks};
    if (auto error = reserve(request)) return tl::unexpected{std::move(*error)};
  }
  Result<GpuMemoryReservation> reservation{tl::in_place};
  Token& token = TokenAccess::of(*reservation);
  route.add_handle();
  token.route = &route;
  token.total = bytes;
  token.state.store(bytes, std::memory_order_release);
  return reservation;
}

}  // namespace manager

Result<GpuMemoryReservation> GpuMemoryManager::reserve_bytes(std::uint64_t bytes, std::source_location const& site) const {
  return manager::make_reservation(*route_, bytes, false, site);
}

}  // namespace headroom
