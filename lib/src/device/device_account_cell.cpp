#include "device/device_account_cell.hpp"

namespace headroom::device {

GlobalDeviceBudget const* budget_in(DeviceResource const& top) noexcept {
  DeviceResource const* at = &top;
  for (std::size_t layer = 0; layer < kDeepestStack && at != nullptr; ++layer, at = at->inner()) {
    if (auto const* const budget = dynamic_cast<GlobalDeviceBudget const*>(at)) return budget;
  }
  return nullptr;
}

std::optional<std::uint32_t> account_cell_of(DeviceResource const& top) noexcept {
  auto const* const budget = budget_in(top);
  return budget == nullptr ? std::nullopt : budget->account().ledger_cell();
}

}  // namespace headroom::device
