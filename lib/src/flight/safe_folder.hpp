// Which folder the flight file goes into, and whether that folder can be trusted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace headroom::flight {

struct FolderChoice {
  int fd = -1;            ///< open folder, or −1 when none was good
  std::string path;       ///< absolute: the program may go to another folder before it removes its file
  std::size_t index = 0;  ///< among the candidates
  bool group_can_look = false;
  std::string problem;  ///< why the better ones were not taken; empty when the first was good
};

/// The candidates in order: $HEADROOM_DIR alone when it is set, else /dev/shm/headroom-<uid> and $XDG_RUNTIME_DIR/headroom.
[[nodiscard]] std::vector<std::string> folder_candidates();

/// Opens the first candidate, from number `first` on, that is a directory of ours with no rights for others and at most looks for its
/// group, making it (0700, or 0750 for a group) if it is missing. A folder that the group can look into is as good for who did not ask
/// for one: his file is his alone. A folder of someone else is never used: whoever owns it could swap our file.
[[nodiscard]] FolderChoice open_safe_folder(bool group_readable, std::size_t first = 0);

}  // namespace headroom::flight
