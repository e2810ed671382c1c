#include "flight/flight_file.hpp"

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "flight/alive_lock.hpp"
#include "flight/safe_folder.hpp"
#include "flight/stale_files.hpp"

namespace headroom::flight {
namespace {

// Our share of a tmpfs that others need too: containers often have 64 MiB of it in all.
constexpr std::uint64_t kShareOfTmpfs = 8;

std::byte* map_anonymous(std::uint64_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

FlightMemory anonymous_memory(Sizes const& sizes) noexcept {
  FlightMemory memory;
  memory.geometry = geometry_for(sizes);
  memory.base = map_anonymous(memory.geometry.bytes);
  return memory;
}

// Halves rings and table until the file takes at most our share of the free space; false when even the smallest is too much.
bool fit(Sizes& sizes, int folder_fd) noexcept {
  struct statvfs space{};
  if (fstatvfs(folder_fd, &space) != 0) return true;  // unknown: posix_fallocate will tell
  std::uint64_t share = std::uint64_t{space.f_bavail} * space.f_frsize / kShareOfTmpfs;
  // A file beyond `ulimit -f` is not refused but answered with SIGXFSZ, which ends the program.
  struct rlimit largest{};
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur != RLIM_INFINITY && largest.rlim_cur < share)
    share = largest.rlim_cur;
  while (geometry_for(sizes).bytes > share) {
    if (!sizes.halve()) return false;
  }
  return true;
}

// posix_fallocate returns its error and leaves errno alone. tmpfs may undo everything and say EINTR when a signal arrives, which a
// profiler's timer does more often than 16 MiB take: signals wait.
int reserve(int fd, std::uint64_t bytes) noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  const bool blocked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (blocked) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

std::string file_name(FileRequest const& request) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, ".%" PRIu64 ".%016" PRIx64 ".flight", request.pid, request.run);
  std::string program = request.program.substr(0, 64);
  for (char& c : program) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20) c = '_';
  }
  if (program.empty() || program.front() == '.') program.insert(program.begin(), '_');
  return program + suffix;
}

std::string temporary_name(std::string const& name) { return "." + name + ".new"; }

// The file under a temporary name, locked and mapped; "" or what failed.
std::string make_file(FileRequest const& request, FolderChoice const& folder, FlightMemory& memory) {
  Sizes sizes = request.sizes;
  if (!fit(sizes, folder.fd)) return folder.path + ": too little free space for the smallest flight file";
  memory.geometry = geometry_for(sizes);
  const std::string name = file_name(request);
  memory.path = folder.path + "/" + name;
  const std::string temporary = temporary_name(name);
  memory.temporary_path = folder.path + "/" + temporary;
  const mode_t mode = request.group_readable ? 0640 : 0600;
  const int fd = openat(folder.fd, temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) return memory.temporary_path + ": " + std::strerror(errno);
  // At once: whoever is stopped for a minute on the way must not find his file tidied away.
  memory.alive_by = try_lock_alive(fd) ? AliveBy::ofd_lock : AliveBy::pid_and_boot;
  // Whatever the umask says: the group was asked for by name, and a file that its owner cannot write looks like one of the dead.
  static_cast<void>(fchmod(fd, mode));

  const auto give_up = [&](int error) {
    close(fd);
    unlinkat(folder.fd, temporary.c_str(), 0);
    return memory.temporary_path + ": " + std::strerror(error);
  };
  // A sparse file would end in SIGBUS at a store long after the start.
  if (const int error = reserve(fd, memory.geometry.bytes); error != 0) return give_up(error);
  // Mapped through an open of its own: a mapping keeps its open file, and with it the lock, until the memory is torn down, and with
  // several threads that is up to 150 ms after a killed process was waited for (seen on Linux 6.18).
  const int mapping_fd = openat(folder.fd, temporary.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (mapping_fd < 0) return give_up(errno);
  void* mapped = mmap(nullptr, memory.geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping_fd, 0);
  const int map_error = errno;
  close(mapping_fd);
  if (mapped == MAP_FAILED) return give_up(map_error);
  memory.base = static_cast<std::byte*>(mapped);
  memory.fd = fd;
  memory.reading_fd = openat(folder.fd, temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  memory.folder_fd = folder.fd;
  memory.backing = Backing::file;
  return {};
}

void append_problem(std::string& problems, std::string const& more) {
  if (!problems.empty() && !more.empty()) problems += "; ";
  problems += more;
}

}  // namespace

FlightMemory make_flight_memory(FileRequest const& request, std::string& notice) {
  if (request.anonymous) return anonymous_memory(request.sizes);
  std::string problem;
  // A folder that is full is no reason to go without a file while the next one has room.
  for (std::size_t first = 0;; ++first) {
    const FolderChoice folder = open_safe_folder(request.group_readable, first);
    append_problem(problem, folder.problem);
    if (folder.fd < 0) break;
    remove_stale_files(folder.fd);
    FlightMemory memory;
    const std::string failed = make_file(request, folder, memory);
    if (failed.empty()) {
      if (request.group_readable && !folder.group_can_look) {
        notice =
            "HEADROOM_GROUP=1, but the group cannot look into " + folder.path + ", which was there before; expected mode 0750";
      }
      return memory;
    }
    close(folder.fd);
    append_problem(problem, failed);
    first = folder.index;
  }
  notice = "no flight file (" + problem + "); the books stay in this process's memory, where only its own exporter sees them";
  return anonymous_memory(request.sizes);
}

void publish_file(FlightMemory& memory, std::string& notice) {
  if (memory.backing != Backing::file) return;
  const std::string name = memory.path.substr(memory.path.rfind('/') + 1);
  if (renameat(memory.folder_fd, temporary_name(name).c_str(), memory.folder_fd, name.c_str()) != 0) {
    notice = "the flight file keeps its temporary name " + memory.temporary_path + " (" + std::strerror(errno) + ")";
    memory.path = memory.temporary_path;
  }
  close(std::exchange(memory.folder_fd, -1));
}

}  // namespace headroom::flight
