#include "dump/dump_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headroom::dump {
namespace {

std::string_view variable(char const* name) noexcept {
  char const* const text = std::getenv(name);
  return text != nullptr ? std::string_view{text} : std::string_view{};
}

/// As getdents64 lays them out (linux/dirent.h has no type for users).
struct Entry {
  static constexpr std::size_t kLength = 16, kName = 19;  // offsets of the record's length and name
};

/// Calls visit(name) for every entry, which is zero terminated and valid for the call. readdir() would allocate.
template <class Visit>
void for_each_entry(int folder, std::span<char> scratch, Visit const& visit) noexcept {
  if (lseek(folder, 0, SEEK_SET) < 0) return;
  for (;;) {
    const long listed = syscall(SYS_getdents64, folder, scratch.data(), scratch.size());
    if (listed <= 0) return;
    for (std::size_t at = 0; at < static_cast<std::size_t>(listed);) {
      std::uint16_t length = 0;
      std::memcpy(&length, scratch.data() + at + Entry::kLength, sizeof length);
      if (length == 0) return;
      visit(scratch.data() + at + Entry::kName);
      at += length;
    }
  }
}

/// <program>.<pid>.<8 digits of the run>.<sequence><suffix>, and nothing that a person has named.
bool is_own_name(std::string_view name) noexcept {
  for (const std::string_view suffix : {kTemporarySuffix, kSuffix}) {
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    const auto take_last = [&](std::string_view digits) {
      const std::size_t dot = name.rfind('.');
      const std::string_view part = dot == std::string_view::npos ? std::string_view{} : name.substr(dot + 1);
      const bool good = !part.empty() && part.find_first_not_of(digits) == std::string_view::npos;
      name = name.substr(0, good ? dot : 0);
      return good ? part.size() : 0;
    };
    constexpr std::string_view kDecimal = "0123456789";
    return take_last(kDecimal) != 0 && take_last("0123456789abcdef") == 8 && take_last(kDecimal) != 0 && !name.empty();
  }
  return false;
}

std::int64_t ns_of(timespec const& time) noexcept { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

constexpr int kMostRemovals = 256;  // of one call: the next dump goes on
constexpr std::int64_t kStaleNs = std::int64_t{3'600} * 1'000'000'000;
constexpr std::size_t kNameBytes = 256;  // NAME_MAX + 1

struct Oldest {
  std::array<char, kNameBytes> name{};
  std::int64_t changed_ns = 0;
  [[nodiscard]] bool is_there() const noexcept { return name[0] != '\0'; }
  void take(char const* other, std::int64_t other_ns) noexcept {
    const bool older = !is_there() || other_ns < changed_ns || (other_ns == changed_ns && std::strcmp(other, name.data()) < 0);
    if (!older || std::strlen(other) >= name.size()) return;
    std::strcpy(name.data(), other);  // NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits
    changed_ns = other_ns;
  }
};

}  // namespace

bool FixedPath::add(std::string_view text) noexcept {
  if (text.size() >= text_.size() - size_) {
    clear();
    return false;
  }
  std::memcpy(text_.data() + size_, text.data(), text.size());
  size_ += text.size();
  text_[size_] = '\0';
  return true;
}

bool FixedPath::add_number(std::uint64_t number) noexcept {
  std::array<char, 20> digits{};
  auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return add({digits.data(), static_cast<std::size_t>(end - digits.data())});
}

bool find_dump_folder(FixedPath& folder) noexcept {
  folder.clear();
  if (const auto wanted = variable("HEADROOM_DUMP_DIR"); !wanted.empty()) {
    // The program may change its working directory later.
    std::array<char, kPathBytes> here{};
    const bool rooted =
        wanted.starts_with('/') || (getcwd(here.data(), here.size()) != nullptr && folder.add(here.data()) && folder.add("/"));
    return rooted && folder.add(wanted);
  }
  // Relative ones are to be ignored, says the XDG specification.
  if (const auto state = variable("XDG_STATE_HOME"); state.starts_with('/')) return folder.add(state) && folder.add("/headroom");
  const auto home = variable("HOME");
  return home.starts_with('/') && folder.add(home) && folder.add("/.local/state/headroom");
}

int open_dump_folder(FixedPath const& folder) noexcept {
  const auto open_it = [&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); };
  const int descriptor = open_it();
  if (descriptor >= 0 || errno != ENOENT) return descriptor;
  // Each folder above it, then it. Whoever else makes one meanwhile makes the same.
  FixedPath above = folder;
  for (std::size_t at = 1; at <= folder.view().size(); ++at) {
    if (folder.c_str()[at] != '/' && folder.c_str()[at] != '\0') continue;
    above.data()[at] = '\0';
    const bool made = mkdir(above.c_str(), 0700) == 0 || errno == EEXIST;
    above.data()[at] = '/';
    if (!made && at == folder.view().size()) return -1;
  }
  return open_it();
}

void keep_to_caps(int folder, std::string_view newest, FolderCaps const& caps, std::span<char> scratch) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  for (int i = 0; i < kMostRemovals; ++i) {
    Oldest oldest;
    Oldest stale;
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
    for_each_entry(folder, scratch, [&](char const* name) {
      const std::string_view text{name};
      const bool is_temporary = text.ends_with(kTemporarySuffix);
      if (!is_own_name(text)) return;
      struct stat found{};
      if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid()) return;
      const std::int64_t changed = ns_of(found.st_mtim);
      if (is_temporary) {
        if (ns_of(now) - changed > kStaleNs) stale.take(name, changed);
        return;
      }
      ++files;
      bytes += static_cast<std::uint64_t>(found.st_size);
      if (text != newest) oldest.take(name, changed);
    });
    Oldest const* const goes = stale.is_there() ? &stale : (files > caps.files || bytes > caps.bytes) ? &oldest : nullptr;
    if (goes == nullptr || !goes->is_there()) return;
    // Somebody else may have been faster; what cannot be removed ends this, or it would be found again and again.
    if (unlinkat(folder, goes->name.data(), 0) != 0 && errno != ENOENT) return;
  }
}

}  // namespace headroom::dump
