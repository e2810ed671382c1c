// A request to a device account on its way, and the ways in which it ends without memory. Each refusal is booked once, then told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <headroom/device_account.hpp>

#include "device/account_core.hpp"
#include "device/device_figures.hpp"
#include "ledger/ledger.hpp"

namespace headroom::device {

/// What is known of a request from its start on.
struct AccountRequest {
  AccountCore& core;
  GlobalDeviceBudget const& budget;
  flight::ThreadState& thread;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint64_t start_ticks = 0;
  flight::TagPlace tag{};
  bool reserved = false;  ///< its bytes come from a reservation, and go back there
};

/// What the line allowed when a request was stopped at it.
struct Line {
  std::uint64_t room = 0;       ///< bytes of the device that the request might have taken
  std::uint64_t footprint = 0;  ///< and those that it would have
};

/// Blocks and requests come from anyone; a number that is no tag's counts as untagged.
[[nodiscard]] flight::TagPlace place_of(ledger::Ledger& ledger, std::uint16_t tag) noexcept;
[[nodiscard]] ledger::Refusal refusal_of(AccountRequest const& request, ErrorKind kind, Layer layer,
                                         ledger::ClaimResult const& claim) noexcept;
/// What a look at the ledger would say now.
[[nodiscard]] ledger::ClaimResult present_claim(ledger::Ledger const& ledger) noexcept;

/// Takes the request's bytes from the budget by `claim`, after making room if need be; the error, booked, if they cannot be had.
[[nodiscard]] std::optional<Error> take(AccountRequest const& request, AccountCore::Claim claim, ledger::ClaimResult& result);

/// Refused here: booked, with all figures.
[[nodiscard]] Error refuse(AccountRequest const& request, ErrorKind kind, ledger::ClaimResult const& claim, std::string message,
                           DeviceFigures const& figures = {});
/// The stack below said no, and the bytes go back: its error stays as it is, but for figures that it lacks.
[[nodiscard]] Error refuse_below(AccountRequest const& request, Error error);
/// The device has memory, and it is to be kept: a limit like any other. `limit` is where the line stood, counted in claimed bytes.
[[nodiscard]] Error refuse_at_line(AccountRequest const& request, Line const& line, std::string const& what_was_tried);

}  // namespace headroom::device
