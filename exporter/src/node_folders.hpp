// headroom: in which folders flight files are looked for, and whether a folder is to be trusted.
//
// Those that are named; else HEADROOM_DIR, else what programs of this user take, and of all users, as far as they may be read and belong to
// whom their name says: /dev/shm/headroom-<uid>, /run/user/<uid>/headroom, /run/headroom/headroom-<uid>, /run/headroom. A folder that
// others may write to is refused, as programs refuse it: whoever can write there can swap files.
//
// Thread safety: functions without state of their own; what they tell is of the moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>

namespace headroom::exporter {

enum class FolderState : std::uint8_t { watched, missing, refused };
inline constexpr std::size_t kFolderStateCount = 3;
[[nodiscard]] char const* to_string(FolderState state) noexcept;

struct FolderPlaces {
  std::vector<std::string> folders;  ///< empty: the usual ones
  // Where the usual ones of all users lie: headroom-UID in the first and the last, UID/headroom in the second; the last may be one itself.
  std::string shared_memory = "/dev/shm";
  std::string runtime = "/run/user";
  std::string common = "/run/headroom";
};

struct WantedFolder {
  std::string path;
  std::optional<std::uint64_t> owner;  ///< who it must belong to, of one that nobody named
  bool is_named = true;                ///< by somebody, or this user's own
};
[[nodiscard]] std::vector<WantedFolder> wanted_folders(FolderPlaces const& places);

struct JudgedFolder {
  FolderState state = FolderState::watched;
  std::uint64_t owner = 0;
  int error = 0;        ///< of the system
  std::string problem;  ///< why it is refused
};
/// Looks at the folder itself and not at its name, which may lead elsewhere a moment later.
[[nodiscard]] JudgedFolder judge_folder(std::string const& path, bool is_named, std::optional<std::uint64_t> owner = {});

/// Whether a folder that somebody named can be watched at all; one that is missing can. Errors: io (no folder, not to be trusted, not
/// readable; says what was found and what was expected).
[[nodiscard]] Result<void> check_folder(std::string const& folder);

/// The name of the file system if its files may change on another machine, of which inotify hears nothing; else null. FUSE may be
/// anything; most of it is remote.
[[nodiscard]] char const* network_of(std::string const& folder);

inline constexpr std::string_view kUserFolder =
    "headroom-";  ///< before a user's number, in the names of folders that programs make
/// The number behind `before`, when the name is nothing else.
[[nodiscard]] std::optional<std::uint64_t> user_in(std::string_view name, std::string_view before);

[[nodiscard]] std::string path_of(std::string const& folder, std::string_view name);
[[nodiscard]] std::string text_of(int error);  ///< of the system
/// Descriptors, memory or watches are used up: a thing of the moment, that says nothing of the folder.
[[nodiscard]] bool is_want_of_room(int error);

}  // namespace headroom::exporter
