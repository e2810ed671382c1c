// Second lives of blocks whose free failed. See release.cpp.
#pragma once

#include <headroom/manager.hpp>

namespace headroom::manager {

/// Free again. Errors: what the resource says (the block is back in quarantine), double_free when another thread was faster.
[[nodiscard]] Result<void> retry(Allocation const& allocation);
/// The same for an owner that kept the block, as a raw door does: takes it out of quarantine first, so that a block whose retries keep
/// failing stands there once. Also for blocks that the live table has no slot for, which only their owner can retry.
[[nodiscard]] Result<void> retry_by_owner(Allocation const& allocation);
/// Gives the bytes back without asking the device; false when another thread was faster.
[[nodiscard]] bool write_off(Allocation const& allocation);
/// Takes a block out of the figures of failed frees.
void forget_failure(Allocation const& allocation) noexcept;

}  // namespace headroom::manager
