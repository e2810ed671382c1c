// headroom: from a stack of resources to the account that limits it.
#pragma once

#include <cstdint>
#include <optional>

#include <headroom/device_account.hpp>

namespace headroom::device {

/// The budget in a stack; null when it has none. Valid as long as the stack.
[[nodiscard]] GlobalDeviceBudget const* budget_in(DeviceResource const& top) noexcept;

/// The flight file's cell of the account above whatever allocates from `top`: LedgerCell::parent_cell is this + 1. Absent when the
/// stack has no GlobalDeviceBudget, or its account no cell. Set it before the first operation, and to 0 when a cell is used again.
[[nodiscard]] std::optional<std::uint32_t> account_cell_of(DeviceResource const& top) noexcept;

}  // namespace headroom::device
