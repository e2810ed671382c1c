#include "flight/safe_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::flight {
namespace {

// "" when `fd` is a folder in which only we can change anything, and at most our group can look.
std::string distrust(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return std::strerror(errno);
  if (info.st_uid != geteuid())
    return "it belongs to user " + std::to_string(info.st_uid) + ", expected " + std::to_string(geteuid());
  constexpr mode_t kForbidden = 0027;
  if ((info.st_mode & kForbidden) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return std::string{"its mode is "} + mode + ", expected 0700 or 0750";
  }
  if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) return std::strerror(errno);
  return {};
}

bool can_group_look(int fd) noexcept {
  struct stat info{};
  return fstat(fd, &info) == 0 && (info.st_mode & 0050) == 0050;
}

// The umask may have taken the group's rights away, which it did not mean to: they were asked for by name. Where it did not, nothing is
// changed: a folder that inherited its group, and that its files shall inherit it, loses the latter by a chmod of whoever is not in that
// group.
void give_rights(int fd, mode_t mode) noexcept {
  struct stat info{};
  if (fstat(fd, &info) != 0 || (info.st_mode & mode) != mode) static_cast<void>(fchmod(fd, mode));
}

// As it is where nobody knows the current folder.
std::string absolute(std::string const& folder) {
  std::error_code error;
  const auto path = std::filesystem::absolute(folder, error);
  return error ? folder : path.string();
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
    const std::string folder = absolute(folders[choice.index]);
    std::string problem;
    const mode_t mode = group_readable ? 0750 : 0700;
    const bool made = mkdir(folder.c_str(), mode) == 0;
    if (!made && errno != EEXIST) problem = std::strerror(errno);
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
      problem = distrust(fd);
      if (problem.empty()) {
        if (made) give_rights(fd, mode);
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
