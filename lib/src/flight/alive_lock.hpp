// headroom: the lock that says "my process lives".
//
// The writer holds an OFD write lock on the whole flight file. The kernel drops it with the last reference to that open file, which
// the writer's one descriptor is: at once after SIGKILL. (The file must not be mapped through it: a mapping is a reference as well.)
// Readers of every pid namespace see the lock, where a pid says nothing. It belongs to the open file and not to the process, so
// that a reader in the same process sees it too, and closing another descriptor of the file does not drop it.
//
// Thread safety: plain system calls, no state. Both keep errno as the call left it.
#pragma once

#include <optional>

#include <fcntl.h>

namespace headroom::flight {
namespace detail {

[[nodiscard]] inline struct flock whole_file_write_lock() noexcept {
  struct flock lock{};  // l_pid must be 0 for OFD commands, l_len 0 is "to the end, wherever it moves"
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace detail

/// Takes the lock; `fd` must be writable and O_CLOEXEC. False: somebody holds it, or the file system has no such locks.
[[nodiscard]] inline bool try_lock_alive(int fd) noexcept {
  auto lock = detail::whole_file_write_lock();
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// Whether another open file holds the lock; a read-only `fd` is enough. Absent when the system cannot say.
[[nodiscard]] inline std::optional<bool> is_locked_by_other(int fd) noexcept {
  auto lock = detail::whole_file_write_lock();
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type != F_UNLCK;
}

}  // namespace headroom::flight
