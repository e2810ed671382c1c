// headroom: a flight file that somebody truncates while it is read must not end the reader.
//
// Reading a page that its file does not have any more raises SIGBUS. For mappings that are registered here the handler puts a page of
// zeros in its place, notes that the mapping is damaged, and lets the read go on; whoever reads asks afterwards, and throws away what
// it got. Any other SIGBUS goes to whoever had the signal before, by default the end of the process.
//
// Only for executables of headroom's own: a signal handler is the program's affair, and a library has no business with it.
//
// Thread safety: all of it from any thread; the handler calls nothing but mmap() and reads atomics. A registered mapping must stay
// mapped while it is registered. Cost: none until a fault.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace headroom::exporter {

/// Mappings that can be registered at a time.
inline constexpr std::size_t kGuardedMappings = 8'192;

/// Installs the handler, once a process; later calls change nothing. False when the system refuses.
bool install_truncation_guard() noexcept;

/// Registered until the last copy of the pointer is gone. Null when kGuardedMappings are: then a truncation of this one is not survived,
/// so do not read it.
[[nodiscard]] std::shared_ptr<void const> guard_mapping(std::span<const std::byte> mapping);

/// True once a page of the registered mapping that begins at `first` was missing.
[[nodiscard]] bool is_damaged(std::byte const* first) noexcept;

}  // namespace headroom::exporter
