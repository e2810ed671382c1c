#include "node_folders.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <headroom/flight_reader.hpp>

#include "listener.hpp"

namespace headroom::exporter {
namespace {

std::string octal(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777U));
  return text.data();
}

/// All names in a folder; none when it cannot be read.
std::vector<std::string> names_in(std::string const& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, decltype([](DIR* list) { ::closedir(list); })> list{::opendir(folder.c_str())};
  while (dirent const* entry = list ? ::readdir(list.get()) : nullptr) names.emplace_back(entry->d_name);
  return names;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

char const* to_string(FolderState state) noexcept {
  constexpr std::array<char const*, kFolderStateCount> kWords{"watched", "missing", "refused"};
  return kWords[static_cast<std::size_t>(state)];
}

std::string path_of(std::string const& folder, std::string_view name) {
  std::string path = folder;
  return path.append("/").append(name);
}

std::string text_of(int error) { return std::generic_category().message(error); }

bool is_want_of_room(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC; }

std::optional<std::uint64_t> user_in(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  auto const digits = name.substr(before.size());
  std::uint64_t user = 0;
  auto const* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, user);
  return error == std::errc{} && stop == end ? std::optional{user} : std::nullopt;
}

char const* network_of(std::string const& folder) {
  struct Known {
    std::uint64_t magic;
    char const* name;
  };
  constexpr std::array<Known, 10> kNetworks{{{0x6969, "NFS"},
                                             {0xFF534D42, "CIFS"},
                                             {0xFE534D42, "SMB"},
                                             {0x517B, "SMB"},
                                             {0x00C36400, "Ceph"},
                                             {0x0BD00BD0, "Lustre"},
                                             {0x47504653, "GPFS"},
                                             {0x5346414F, "AFS"},
                                             {0x01021997, "9P"},
                                             {0x65735546, "FUSE"}}};
  struct statfs about{};
  if (::statfs(folder.c_str(), &about) != 0) return nullptr;
  // Of 32 bits, and signed on some machines.
  auto const* const found = std::ranges::find(kNetworks, static_cast<std::uint64_t>(about.f_type) & 0xFFFF'FFFFU, &Known::magic);
  return found == kNetworks.end() ? nullptr : found->name;
}

JudgedFolder judge_folder(std::string const& path, bool is_named, std::optional<std::uint64_t> owner) {
  JudgedFolder judged;
  const FileDescriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_named ? 0 : O_NOFOLLOW))};
  struct stat info{};
  if (folder.get() < 0 || ::fstat(folder.get(), &info) != 0) {
    judged.error = errno;
    judged.state = judged.error == ENOENT ? FolderState::missing : FolderState::refused;
    judged.problem = judged.error == ENOTDIR ? "is no folder" : text_of(judged.error);
    return judged;
  }
  judged.owner = info.st_uid;
  if (owner && *owner != info.st_uid) {
    judged.problem = "belongs to user " + std::to_string(info.st_uid) + ", expected " + std::to_string(*owner);
  } else if ((info.st_mode & 0022U) != 0) {
    judged.problem =
        "its mode is " + octal(info.st_mode) +
        ", expected one that lets nobody but its owner write, such as 0750: programs put no flight files into another";
  } else if (::faccessat(folder.get(), ".", R_OK | X_OK, AT_EACCESS) != 0) {
    judged.problem = text_of(errno);
    judged.error = EACCES;
  }
  if (!judged.problem.empty()) judged.state = FolderState::refused;
  return judged;
}

Result<void> check_folder(std::string const& folder) {
  if (folder.empty()) return fail(ErrorKind::invalid_argument, Layer::request, "''; expected a folder of flight files");
  const auto judged = judge_folder(folder, true);
  if (judged.state != FolderState::refused) return success();
  return fail(ErrorKind::io, Layer::request, folder + ": " + judged.problem);
}

std::vector<WantedFolder> wanted_folders(FolderPlaces const& places) {
  std::vector<WantedFolder> wanted;
  wanted.reserve(places.folders.size());
  for (auto const& folder : places.folders) wanted.push_back({.path = without_slash(folder), .owner = {}});
  if (!wanted.empty()) return wanted;
  for (auto& folder : flight::flight_folders()) wanted.push_back({.path = without_slash(std::move(folder)), .owner = {}});
  if (const char* chosen = std::getenv("HEADROOM_DIR"); chosen != nullptr && *chosen != '\0') return wanted;
  const auto add = [&wanted](std::string path, std::optional<std::uint64_t> owner) {
    const bool is_known = std::ranges::any_of(wanted, [&path](WantedFolder const& other) { return other.path == path; });
    if (!is_known) wanted.push_back({.path = std::move(path), .owner = owner, .is_named = false});
  };
  for (auto const& shared : {places.shared_memory, places.common}) {
    for (auto const& name : names_in(shared)) {
      if (const auto user = user_in(name, kUserFolder)) add(path_of(shared, name), user);
    }
  }
  for (auto const& name : names_in(places.runtime)) {
    if (const auto user = user_in(name, "")) add(places.runtime + '/' + name + "/headroom", user);
  }
  // One that all may write to is a folder of folders only.
  if (judge_folder(places.common, false).state == FolderState::watched) add(places.common, std::nullopt);
  return wanted;
}

}  // namespace headroom::exporter
