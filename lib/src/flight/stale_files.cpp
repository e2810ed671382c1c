#include "flight/stale_files.hpp"

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/utf8.hpp"
#include "flight/alive_lock.hpp"
#include "flight/file_head.hpp"
#include "flight/flight_name.hpp"
#include "flight/open_file.hpp"
#include "flight/process_identity.hpp"

namespace headroom::flight {
namespace {

constexpr std::uint64_t kShareOfFileSystem = 4;
constexpr std::time_t kAbandonedAge = 60;
constexpr std::uint64_t kStatBlock = 512;  // what st_blocks counts, whatever the file system's own blocks are
constexpr mode_t kAllMayWrite = 0222;

using Moment = std::pair<std::int64_t, std::int64_t>;  // seconds and nanoseconds
Moment moment_of(timespec const& time) noexcept { return {time.tv_sec, time.tv_nsec}; }

struct DeadFile {
  std::string name;
  Moment died;
  std::uint64_t last_sign_ns = 0;
  std::uint64_t bytes = 0;  // that it really takes
};

/// Before anything is removed: what a folder lists while it changes is unspecified.
std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  Descriptor own{openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};  // with an offset of its own
  const std::unique_ptr<DIR, decltype([](DIR* list) { closedir(list); })> list{own.get() < 0 ? nullptr : fdopendir(own.get())};
  if (list == nullptr) return names;
  static_cast<void>(own.take());
  while (dirent const* entry = readdir(list.get())) names.emplace_back(entry->d_name);
  return names;
}

int open_file(int folder, std::string const& name) noexcept {
  return openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

// A file that a starter left under its temporary name when it was killed: nobody holds its lock.
void remove_if_abandoned(int folder, std::string const& name) {
  if (!name.starts_with('.') || !name.ends_with(".flight.new")) return;
  const Descriptor fd{open_file(folder, name)};
  struct stat info{};
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (info.st_mtime + kAbandonedAge > std::time(nullptr)) return;
  if (is_locked_by_other(fd.get()) == false) unlinkat(folder, name.c_str(), 0);
}

/// Which machine this is, cut to what a header has room for.
struct Machine {
  std::string boot = valid_utf8(boot_id(), sizeof FileHeader::boot_id - 1);
  std::string host = valid_utf8(host_name(), sizeof FileHeader::host - 1);

  /// Whether a lock on that file would be seen here. Another boot id on a host of our name is an earlier start of this machine; on
  /// another host it is a machine that shares the folder with us, and some file systems keep its locks to itself.
  [[nodiscard]] bool sees_locks_of(FileHead const& head) const noexcept { return head.boot_id == boot || head.host == host; }
};

/// When the process died, as far as anybody saw. Now, for one that nobody saw dead before, which is noted in the file. Where it cannot be
/// noted, it is now every time: the file then goes by number and size alone.
Moment seen_dead(int fd, struct stat const& info, timespec const& now) noexcept {
  // A time to come is one of a clock that was wrong.
  if ((info.st_mode & S_IWUSR) == 0 && moment_of(info.st_mtim) <= moment_of(now)) return moment_of(info.st_mtim);
  // The time first: who is killed between the two leaves a file that the next one notes again.
  const timespec times[2]{{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, now};
  if (futimens(fd, times) == 0) static_cast<void>(fchmod(fd, info.st_mode & 07777U & ~kAllMayWrite));
  return moment_of(now);
}

// Nothing unless its process is dead for certain.
std::optional<DeadFile> dead_file(int folder, std::string const& name, Machine const& machine, timespec const& now) {
  const Descriptor fd{open_file(folder, name)};
  if (fd.get() < 0) return std::nullopt;
  const auto head = read_head(fd.get());
  // By pid and boot id a process of another pid namespace looks dead.
  if (!head || head->alive_by != AliveBy::ofd_lock || !machine.sees_locks_of(*head)) return std::nullopt;
  struct stat info{};
  if (is_locked_by_other(fd.get()) != false || fstat(fd.get(), &info) != 0) return std::nullopt;
  return DeadFile{.name = name,
                  .died = seen_dead(fd.get(), info, now),
                  .last_sign_ns = last_sign_of_life_ns(fd.get(), *head),
                  .bytes = static_cast<std::uint64_t>(info.st_blocks) * kStatBlock};
}

// Those that died last first.
std::vector<DeadFile> dead_files(int folder, std::vector<std::string> const& names, timespec const& now) {
  const Machine machine;
  std::vector<DeadFile> dead;
  for (auto const& name : names) {
    if (!parse_flight_name(name)) continue;
    if (auto file = dead_file(folder, name, machine, now)) dead.push_back(std::move(*file));
  }
  std::ranges::sort(dead, [](DeadFile const& a, DeadFile const& b) {
    return std::tie(b.died, b.last_sign_ns, a.name) < std::tie(a.died, a.last_sign_ns, b.name);
  });
  return dead;
}

std::uint64_t most_bytes(int folder, StaleLimits const& limits) noexcept {
  if (limits.bytes) return *limits.bytes;
  struct statvfs space{};
  if (fstatvfs(folder, &space) != 0 || space.f_blocks == 0) return UINT64_MAX;  // or one without a size
  return std::uint64_t{space.f_blocks} * space.f_frsize / kShareOfFileSystem;
}

void remove_dead_files(int folder, std::vector<std::string> const& names, StaleLimits const& limits) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::uint64_t most = most_bytes(folder, limits);
  const Moment oldest{now.tv_sec - std::chrono::seconds{limits.age}.count(), now.tv_nsec};
  std::uint64_t bytes = 0;
  std::size_t kept = 0;
  bool full = false;  // from the first that is too much on: a small older one must not outlive it
  for (auto const& file : dead_files(folder, names, now)) {
    const bool too_old = kept != 0 && file.died < oldest;
    full = full || too_old || kept == limits.files || (kept != 0 && (file.bytes > most || bytes > most - file.bytes));
    if (full) {
      unlinkat(folder, file.name.c_str(), 0);
      continue;
    }
    ++kept;
    bytes += file.bytes;
  }
}

}  // namespace

void remove_stale_files(int folder, StaleLimits const& limits) noexcept {
  try {
    const auto names = names_in(folder);
    for (auto const& name : names) remove_if_abandoned(folder, name);
    remove_dead_files(folder, names, limits);
  } catch (...) {
    return;  // housekeeping of others' files is a courtesy: without memory for it, it waits for the next start
  }
}

}  // namespace headroom::flight
