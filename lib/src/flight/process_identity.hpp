// Who this process is: what the header of a flight file says of it, and what a reader compares to tell the living from the dead.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::flight {

struct ProcessIdentity {
  std::uint64_t pid = 0;
  std::uint64_t uid = 0;
  std::uint64_t start_ticks = 0;  ///< field 22 of /proc/self/stat; 0 unknown
  std::uint64_t run = 0;          ///< 64 random bits
  std::string program, host, command, boot_id;
};

[[nodiscard]] ProcessIdentity identify_process();

/// Which machine this is, and since which start of it, as the header of a flight file says it. Empty when the system does not tell.
[[nodiscard]] std::string boot_id();
[[nodiscard]] std::string host_name();

}  // namespace headroom::flight
