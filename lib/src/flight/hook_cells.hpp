// Cells of the flight file for hooks. Taking one and giving it back takes a mutex (hooks are registered rarely); counting in it takes
// none.
#pragma once

#include <cstdint>
#include <string_view>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// Where a hook is counted. Without a cell of its own it counts in `other`, and has no name in its events but that one.
struct HookPlace {
  std::uint32_t entry = 0;   ///< directory id
  HookCell* cell = nullptr;  ///< never null once taken
  bool own = false;
};

/// A cell under the name: zeroed, or that of an ended hook of this name and ledger while another one of it lives, whose figures go on.
/// `other` when all cells or names are taken. The recorder must be up.
[[nodiscard]] HookPlace take_hook_cell(std::uint32_t ledger_entry, std::string_view name, std::int32_t priority);
/// Nobody counts in it any more. Its figures stay in the file while another hook of its name and ledger lives, marked as ended. Does
/// nothing with `other`, nor in a forked child, and needs no memory.
void give_hook_cell_back(HookPlace const& place) noexcept;

}  // namespace headroom::flight
