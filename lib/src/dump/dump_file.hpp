// A post-mortem as a file: complete under its name, or not there. Nothing here allocates, throws or leaves errno changed.
//
// It is written under a temporary name in the same folder and renamed. It is not synced to the disk: after a power cut, which a program
// seldom survives to be asked about, the file may be empty; the wait would be the failing request's.
#pragma once

#include <cstdint>
#include <span>

#include "dump/workspace.hpp"
#include "dump/writer.hpp"

namespace headroom::dump {

/// What a file descriptor would do to the thread while it is written: a signal that ends the program at RLIMIT_FSIZE, a cancellation
/// half way, another errno. None of it happens while this lives.
class QuietWriting {
public:
  QuietWriting() noexcept;
  ~QuietWriting();
  QuietWriting(QuietWriting const&) = delete;
  QuietWriting& operator=(QuietWriting const&) = delete;

private:
  int errno_before_;
  int cancel_state_ = 0;
  bool masked_ = false;       // SIGXFSZ was not blocked before
  bool was_pending_ = false;  // … and pending already: then it is not ours to take away
};

struct FileOutcome {
  int error = 0;         ///< errno of what went wrong first; 0: the file is there
  bool reduced = false;  ///< … without events and with the largest live allocations only, since the whole found no room
};

/// Names are relative to `folder` (AT_FDCWD too). `temporary` must not exist yet.
[[nodiscard]] FileOutcome write_file(int folder, char const* temporary, char const* name, WriteRequest const& request,
                                     Workspace& workspace) noexcept;

/// Live allocations in a reduced dump.
inline constexpr std::uint64_t kReducedLive = 1'000;

}  // namespace headroom::dump
