// Second lives of blocks whose free failed. See release.cpp.
#pragma once

#include <headroom/manager.hpp>

namespace headroom::manager {

/// Free again. Errors: what the resource says (the block is back in quarantine), double_free when another thread was faster.
[[nodiscard]] Result<void> retry(Allocation const& allocation);
/// Gives the bytes back without asking the device; false when another thread was faster.
[[nodiscard]] bool write_off(Allocation const& allocation);
/// Takes a block out of the figures of failed frees.
void forget_failure(Allocation const& allocation) noexcept;

}  // namespace headroom::manager
