// What is known of a physical device, and what of it this process's ledgers do not explain. Off the fast path: it asks the driver.
//
// outside = total − free − slack − Σ allocated, over the accounts of the device and the managers that stand under none. That is the
// context, libraries that allocate for themselves, blocks that were taken from the device's resource around every ledger, and other
// processes; where the resource does not know its slack, also its caches and rounding. Exact while nothing is under way, but for a
// manager of which only an overlay goes through an account: what it takes past the account is outside of it.
#pragma once

#include <cstdint>
#include <optional>

#include <headroom/device.hpp>

#include "ledger/ledger.hpp"

namespace headroom::device {

struct DeviceFigures {
  std::optional<std::uint64_t> total, free, outside;
};

/// The device below `top`. What is unknown is absent.
[[nodiscard]] DeviceFigures figures_of(DeviceResource& top) noexcept;

/// The same number for every stack that ends in one physical device; never 0.
[[nodiscard]] std::uint64_t physical_device(DeviceResource& top) noexcept;

/// Looks, and writes it where readers of the flight file find it: in the ledger, and in the account of the stack if it has one, whose
/// limit is brought up to date. Returns what was seen.
DeviceFigures refresh_figures(ledger::Ledger& ledger, DeviceResource& top) noexcept;
void write_figures(flight::LedgerCell& cell, DeviceFigures const& figures) noexcept;
/// Figures that the error lacks.
void add_device_figures(Error& error, DeviceFigures const& figures) noexcept;

/// What the device uses beyond this one account, at an instant at which no request was on its way; absent when it cannot be told, or
/// when no such instant was met.
[[nodiscard]] std::optional<std::uint64_t> outside_account(DeviceResource const& below, ledger::Ledger const& account) noexcept;

}  // namespace headroom::device
