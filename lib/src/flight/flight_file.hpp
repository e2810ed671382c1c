// Makes the memory of the flight file: a file in a safe folder when there is one, anonymous memory when not. Never fails: a program
// must not end because its telemetry found no place.
#pragma once

#include <cstdint>
#include <string>

#include "flight/geometry.hpp"

namespace headroom::flight {

struct FileRequest {
  std::string program;  ///< for the file's name
  std::uint64_t pid = 0;
  std::uint64_t run = 0;
  bool anonymous = false;  ///< HEADROOM_FLIGHT=off
  bool group_readable = false;
  Sizes sizes{};
};

struct FlightMemory {
  std::byte* base = nullptr;  ///< zeroed, page aligned; null only when even anonymous memory was refused
  Geometry geometry{};
  Backing backing = Backing::anonymous;
  AliveBy alive_by = AliveBy::ofd_lock;
  int fd = -1;                 ///< holds the lock that says "alive"; −1 for anonymous memory
  int reading_fd = -1;         ///< a second, read-only open: what a forked child maps, so that its mapping does not hold the lock
  int folder_fd = -1;          ///< until publish_file: the folder that was checked, whatever lies at its path by then
  std::string temporary_path;  ///< until publish_file
  std::string path;
};

/// Takes the memory and holds the lock. `notice` receives one sentence when the file could not be had, or not for the group; a
/// smaller one is said by the header alone.
[[nodiscard]] FlightMemory make_flight_memory(FileRequest const& request, std::string& notice);

/// Gives a complete file its name, and the folder back. On failure the memory goes on under its temporary name, which readers ignore.
void publish_file(FlightMemory& memory, std::string& notice);

}  // namespace headroom::flight
