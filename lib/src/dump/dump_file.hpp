// A post-mortem as a file: complete under its name, or not there. Nothing here allocates, throws or leaves errno changed.
//
// It is written under a temporary name in the same folder and renamed. It is not synced to the disk: after a power cut, which a program
// seldom survives to be asked about, the file may be empty; the wait would be the failing request's.
#pragma once

#include <cstdint>
#include <span>

#include "base/quiet_writing.hpp"
#include "dump/workspace.hpp"
#include "dump/writer.hpp"

namespace headroom::dump {

struct FileOutcome {
  int error = 0;         ///< errno of what went wrong first; 0: the file is there
  bool reduced = false;  ///< … without events and with the largest live allocations only, since the whole found no room
};

/// Names are relative to `folder` (AT_FDCWD too). `temporary` must not exist yet.
[[nodiscard]] FileOutcome write_file(int folder, char const* temporary, char const* name, WriteRequest const& request,
                                     Workspace& workspace) noexcept;

/// Into what is there already and cannot be renamed over: a device, a pipe. 0, or errno of what went wrong first.
[[nodiscard]] int write_into(char const* name, WriteRequest const& request, Workspace& workspace) noexcept;

/// Live allocations in a reduced dump.
inline constexpr std::uint64_t kReducedLive = 1'000;

}  // namespace headroom::dump
