// A request for memory on its way, and the ways in which it ends without any. Each refusal is booked once, then told.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/buffer.hpp>
#include <headroom/error.hpp>

#include "flight/directory.hpp"
#include "flight/thread_state.hpp"
#include "ledger/ledger.hpp"
#include "manager/route.hpp"

namespace headroom::manager {

/// What is known of a request from its start on.
struct Request {
  Route& route;
  flight::ThreadState& thread;
  AllocArguments const& arguments;
  std::uint64_t start_ticks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint16_t tag = 0;
  flight::TagPlace place;
  std::uint32_t site = 0;
  bool counted = true;  ///< false: a reservation, which is no request for memory, or one that was counted before
};

[[nodiscard]] ledger::Refusal refusal_of(Request const& request, ErrorKind kind, Layer layer,
                                         ledger::ClaimResult const& claim) noexcept;
/// What an observing budget let pass.
void book_observed(Request const& request, ledger::ClaimResult const& claim) noexcept;

/// A request that no budget could ever hold, or that makes no sense: refused before anything is touched.
[[nodiscard]] Error refuse_at_once(Request const& request, ErrorKind kind, std::string message);
[[nodiscard]] Error refuse_over_budget(Request const& request, ledger::ClaimResult const& claim);
/// The resource said no, and the bytes went back to where they came from: the error keeps the layer, words and figures of whoever
/// refused.
[[nodiscard]] Error refuse_by_resource(Request const& request, ledger::ClaimResult const& claim, Error error);

}  // namespace headroom::manager
