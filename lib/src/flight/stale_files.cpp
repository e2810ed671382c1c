#include "flight/stale_files.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <headroom/flight_reader.hpp>

#include "flight/alive_lock.hpp"

namespace headroom::flight {
namespace {

constexpr std::uint64_t kShareOfFileSystem = 4;
constexpr std::time_t kAbandonedAge = 60;
constexpr std::uint64_t kStatBlock = 512;  // what st_blocks counts, whatever the file system's own blocks are

struct DeadFile {
  std::string path;
  std::uint64_t last_activity_ns = 0;
  std::uint64_t bytes = 0;  // that it really takes
};

// Files that a starter left under their temporary name when it was killed: nobody holds their lock.
void remove_abandoned_starts(std::string const& folder) {
  std::error_code ignored;
  for (auto const& entry : std::filesystem::directory_iterator{folder, ignored}) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') || !name.ends_with(".flight.new")) continue;
    struct stat info{};
    if (lstat(entry.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_mtime + kAbandonedAge > std::time(nullptr))
      continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    if (is_locked_by_other(fd) == false) unlink(entry.path().c_str());
    close(fd);
  }
}

// Those that died last first. Not by the files' own times: stores through a mapping do not move them, so that the process that ran
// longest would look oldest.
std::vector<DeadFile> dead_files(std::string const& folder) {
  std::vector<DeadFile> dead;
  const auto found = find_flights(folder);
  if (!found) return dead;
  for (auto const& flight : *found) {
    const auto view = FlightView::open(flight.path);
    if (!view || view->liveness() != Liveness::dead) continue;
    struct stat info{};
    if (lstat(flight.path.c_str(), &info) != 0) continue;
    dead.push_back(
        {flight.path, view->process().last_activity_realtime_ns, static_cast<std::uint64_t>(info.st_blocks) * kStatBlock});
  }
  std::ranges::sort(dead, [](DeadFile const& a, DeadFile const& b) {
    return a.last_activity_ns != b.last_activity_ns ? a.last_activity_ns > b.last_activity_ns : a.path < b.path;
  });
  return dead;
}

std::uint64_t most_bytes(std::string const& folder, StaleLimits const& limits) noexcept {
  if (limits.bytes) return *limits.bytes;
  struct statvfs space{};
  if (statvfs(folder.c_str(), &space) != 0 || space.f_blocks == 0) return UINT64_MAX;  // or one without a size
  return std::uint64_t{space.f_blocks} * space.f_frsize / kShareOfFileSystem;
}

void remove_dead_files(std::string const& folder, StaleLimits const& limits) {
  const std::uint64_t most = most_bytes(folder, limits);
  const std::time_t oldest = std::time(nullptr) - static_cast<std::time_t>(std::chrono::seconds{limits.age}.count());
  std::uint64_t bytes = 0;
  std::size_t kept = 0;
  bool full = false;  // from the first that is too much on: a small older one must not outlive it
  for (auto const& file : dead_files(folder)) {
    const bool old = static_cast<std::time_t>(file.last_activity_ns / 1'000'000'000) < oldest;
    full = full || kept == limits.files || (kept != 0 && (file.bytes > most || bytes > most - file.bytes));
    if (full || old) {
      unlink(file.path.c_str());
      continue;
    }
    ++kept;
    bytes += file.bytes;
  }
}

}  // namespace

void remove_stale_files(std::string const& folder, StaleLimits const& limits) noexcept {
  try {
    remove_abandoned_starts(folder);
    remove_dead_files(folder, limits);
  } catch (...) {
    return;  // housekeeping of others' files is a courtesy: without memory for it, it waits for the next start
  }
}

}  // namespace headroom::flight
