#include "flight/safe_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::flight {
namespace {

// "" when `fd` is a folder that only we (and, if asked for, our group's readers) can use.
std::string distrust(int fd, bool group_readable) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return std::strerror(errno);
  if (info.st_uid != geteuid())
    return "it belongs to user " + std::to_string(info.st_uid) + ", expected " + std::to_string(geteuid());
  const mode_t forbidden = group_readable ? 0027 : 0077;
  if ((info.st_mode & forbidden) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return std::string{"its mode is "} + mode + ", expected " + (group_readable ? "0750" : "0700");
  }
  if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) return std::strerror(errno);
  return {};
}

bool can_group_look(int fd) noexcept {
  struct stat info{};
  return fstat(fd, &info) == 0 && (info.st_mode & 0050) == 0050;
}

}  // namespace

std::vector<std::string> folder_candidates() {
  if (const char* chosen = std::getenv("HEADROOM_DIR"); chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> folders{"/dev/shm/headroom-" + std::to_string(geteuid())};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    folders.push_back(std::string{runtime} + "/headroom");
  }
  return folders;
}

FolderChoice open_safe_folder(bool group_readable, std::size_t first) {
  FolderChoice choice;
  auto const folders = folder_candidates();
  for (choice.index = first; choice.index < folders.size(); ++choice.index) {
    auto const& folder = folders[choice.index];
    std::string problem;
    const mode_t mode = group_readable ? 0750 : 0700;
    const bool made = mkdir(folder.c_str(), mode) == 0;
    if (!made && errno != EEXIST) problem = std::strerror(errno);
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
      problem = distrust(fd, group_readable);
      if (problem.empty()) {
        // The umask may have taken the group's rights away, which it did not mean to: they were asked for by name.
        if (made) static_cast<void>(fchmod(fd, mode));
        choice.group_can_look = can_group_look(fd);
        choice.fd = fd;
        choice.path = folder;
        return choice;
      }
      close(fd);
    } else if (problem.empty()) {
      problem = std::strerror(errno);
    }
    if (!choice.problem.empty()) choice.problem += "; ";
    choice.problem.append(folder).append(": ").append(problem);
  }
  return choice;
}

}  // namespace headroom::flight
