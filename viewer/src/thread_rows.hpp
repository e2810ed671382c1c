// headroom: what each thread of the program is doing right now, or was when it ended. No ImGui. Thread safety: none.
// Cost: a look at the lanes and hooks of the file, and at the failures that are under way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/follow.hpp>

namespace headroom::viewer {

struct ThreadRow {
  std::uint64_t thread = 0;  ///< as the system numbers it; 0 unknown
  std::string name{};
  std::string doing{};                      ///< "asking cuda:0 for 512 MiB"; "idle"
  std::optional<std::uint64_t> since_ns{};  ///< how long it has been at it; absent: idle, or of a program that has ended
  std::string manager{};                    ///< that it is about; "" unknown
  bool is_idle = true;
  bool is_slow = false;  ///< it waits for something, or runs longer than it may
  std::optional<std::uint32_t> lane{};
  std::uint64_t events = 0, journal_events = 0;  ///< that its lane has written
};

/// Threads that hold a lane, in the order of their lanes; then those that run a hook without one.
[[nodiscard]] std::vector<ThreadRow> thread_rows(follow::Model const& model);

/// Resident bytes of this process, of which the model's past is a part; 0 where the system does not tell.
[[nodiscard]] std::uint64_t own_memory_bytes();

}  // namespace headroom::viewer
