#include "node_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "truncation_guard.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kMostFiles = 4'096;  // names that are remembered of a folder; no other folder pays for one that is too full
constexpr std::size_t kMostNames = 65'536;  // … and read of it
constexpr std::size_t kMostBegun = 256;
constexpr std::chrono::seconds kBegunFor{10};  // until a file that never got its name is let go
constexpr std::string_view kBegunEnding = ".new";
constexpr std::uint32_t kFileEvents = IN_MOVED_TO | IN_CREATE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kParentEvents = IN_MOVED_TO | IN_CREATE;

bool is_flight_name(std::string_view name) { return !name.starts_with('.') && name.ends_with(".flight"); }

/// ".NAME.flight.new", which is going to be "NAME.flight".
bool is_begun_name(std::string_view name) {
  return name.starts_with('.') && name.ends_with(kBegunEnding) &&
         is_flight_name(name.substr(1, name.size() - 1 - kBegunEnding.size()));
}

std::string_view last_part(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string parent_of(std::string const& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

char const* to_string(Skip reason) noexcept {
  constexpr std::array<char const*, kSkipCount> kWords{"unreadable", "broken",   "unsupported", "foreign",
                                                       "duplicate",  "vanished", "truncated",   "too_many"};
  return kWords[static_cast<std::size_t>(reason)];
}

NodeWatch::NodeWatch(Options options, Sink sink)
    : options_(std::move(options)), sink_(std::move(sink)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!options_.network_of) options_.network_of = network_of;
  if (!options_.use_inotify) return;
  inotify_ = FileDescriptor{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  if (inotify_.get() < 0) {
    say("no inotify (" + text_of(errno) + "): folders are listed every " + std::to_string(options_.list_every_without.count()) +
        " ms instead, and a shorter job may be missed");
  }
}

void NodeWatch::say(std::string const& line) const {
  if (options_.log) options_.log(line);
}

int NodeWatch::add_watch(std::string const& path, std::uint32_t events) {
  if (inotify_.get() < 0) return -1;
  const int watch = inotify_add_watch(inotify_.get(), path.c_str(), events | IN_ONLYDIR);
  // A folder that vanished, or that we may not read, says nothing about the others.
  if (watch < 0 && is_want_of_room(errno)) {
    say(path + ": cannot be watched (" + text_of(errno) + "): folders are listed every " +
        std::to_string(options_.list_every_without.count()) + " ms instead, and a shorter job may be missed");
    inotify_.reset();  // one way for all: a second that works half would only hide the first
    watches_.clear();
    parents_.clear();
    for (auto& [folder_path, folder] : folders_) folder.watch = -1;
  }
  return watch;
}

void NodeWatch::look_at(WantedFolder const& wanted, Folder& folder) {
  auto const& path = wanted.path;
  auto judged = judge_folder(path, wanted.is_named, wanted.owner);
  // Without descriptors now, in a moment perhaps: what is known of it stays.
  if (is_want_of_room(judged.error)) {
    if (std::exchange(folder.problem, judged.problem) != judged.problem) say(path + ": cannot be looked at: " + judged.problem);
    return;
  }
  folder.is_private = !wanted.is_named && judged.error == EACCES;
  folder.state = judged.state;
  folder.owner = judged.owner;
  if (judged.state != FolderState::watched) {
    if (folder.watch >= 0) {
      (void)inotify_rm_watch(inotify_.get(), folder.watch);
      watches_.erase(std::exchange(folder.watch, -1));
    }
    const std::string problem = judged.state == FolderState::missing ? std::string{} : std::move(judged.problem);
    if (!folder.is_private && !problem.empty() && problem != folder.problem) say(path + ": refused: " + problem);
    folder.problem = problem;
    return;
  }
  folder.problem.clear();
  auto const* const network = options_.network_of(path);
  if (network != nullptr && !std::exchange(folder.is_remote, true)) {
    say(path + ": lies on a network file system (" + network + "), which tells nobody of new files: it is listed every " +
        std::to_string(options_.list_every_without.count()) +
        " ms instead, a shorter job may be missed, and whether a process of another machine lives cannot be seen; expected a "
        "folder on "
        "tmpfs");
  }
  folder.is_remote = network != nullptr;
  if (folder.watch < 0 && !folder.is_remote) {
    folder.watch = add_watch(path, kFileEvents);
    if (folder.watch >= 0) watches_[folder.watch] = path;
  }
}

void NodeWatch::watch_parents() {
  const auto watch = [this](std::string const& parent) {
    if (parents_.contains(parent)) return;
    if (const int number = add_watch(parent, kParentEvents | IN_MASK_ADD); number >= 0) parents_[parent] = number;
  };
  if (options_.places.folders.empty()) {
    for (auto const& parent : {options_.places.shared_memory, options_.places.runtime, options_.places.common}) watch(parent);
  }
  for (auto const& [path, folder] : folders_) {
    if (inotify_.get() < 0) return;
    if (folder.state == FolderState::missing) watch(parent_of(path));
  }
}

void NodeWatch::refresh_folders() {
  const auto wanted = wanted_folders(options_.places);
  for (auto at = folders_.begin(); at != folders_.end();) {
    auto& [path, folder] = *at;
    if (std::ranges::any_of(wanted, [&path](WantedFolder const& one) { return one.path == path; })) {
      ++at;
      continue;
    }
    if (folder.watch >= 0) watches_.erase(folder.watch);
    forget_files(path, folder, [](std::string_view) { return false; });
    at = folders_.erase(at);
  }
  std::array<std::uint64_t, kFolderStateCount> states{};
  for (auto const& one : wanted) {
    auto& folder = folders_[one.path];
    look_at(one, folder);
    // One that nobody named and that is not there, or not for us, is nothing to count.
    const bool is_none = folder.is_private || (!one.is_named && folder.state == FolderState::missing);
    if (!is_none) ++states[static_cast<std::size_t>(folder.state)];
  }
  watch_parents();
  for (std::size_t i = 0; i < states.size(); ++i) folder_states_[i].store(states[i], std::memory_order_relaxed);
}

void NodeWatch::list_all() {
  must_list_ = false;
  std::erase_if(begun_, [now = Clock::now()](auto const& entry) { return now - entry.second.since > kBegunFor; });
  refresh_folders();  // first watched, then listed: what comes in between is seen twice, and nothing is missed
  for (auto& [path, folder] : folders_) {
    if (folder.state == FolderState::watched) list(path, folder);
  }
}

/// Those of the folder itself, but for the ones that stay.
void NodeWatch::forget_files(std::string const& path, Folder& folder, std::function<bool(std::string_view)> const& stays) {
  const std::string prefix = path + '/';
  for (auto at = files_.lower_bound(prefix); at != files_.end() && at->first.starts_with(prefix);) {
    const auto name = std::string_view{at->first}.substr(prefix.size());
    // One with a slash is of a folder in this folder, which is listed by itself.
    if (name.find('/') != std::string_view::npos || stays(name)) {
      ++at;
      continue;
    }
    at = files_.erase(at);
    --folder.files;
  }
}

void NodeWatch::list(std::string const& path, Folder& folder) {
  std::vector<std::string> names;
  {
    const std::unique_ptr<DIR, decltype([](DIR* list) { ::closedir(list); })> listed{::opendir(path.c_str())};
    if (!listed) return;  // what is in it is not gone for that
    while (dirent const* entry = ::readdir(listed.get())) {
      if (is_flight_name(entry->d_name)) names.emplace_back(entry->d_name);
      if (names.size() >= kMostNames) break;
    }
  }
  std::ranges::sort(names);
  forget_files(path, folder, [&names](std::string_view name) { return std::ranges::binary_search(names, name); });
  if (folder.files < kMostFiles) folder.was_too_full = false;
  for (auto const& name : names) {
    if (stopping_.load(std::memory_order_relaxed)) return;
    take(path_of(path, name), folder, false);
  }
}

void NodeWatch::skip(std::string const& path, File& file, Skip reason, std::string const& why) {
  if (Clock::now() - file.first_seen < options_.time_to_finish || std::exchange(file.is_counted, true)) return;
  count(reason);
  say((why.starts_with(path) ? "" : path + ": ") + why + "; not served");
}

void NodeWatch::take(std::string const& path, Folder& folder, bool just_appeared) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    // One that was listed before its event was read is known.
    if (just_appeared && errno == ENOENT && !files_.contains(path)) take_held(path);
    return;
  }
  const FileId id{info.st_dev, info.st_ino};
  auto found = files_.find(path);
  if (found == files_.end()) {
    if (folder.files >= kMostFiles) {
      if (!std::exchange(folder.was_too_full, true)) {
        count(Skip::too_many);
        say(path + ": there are more than " + std::to_string(kMostFiles) +
            " files in its folder; not served, as long as there are");
      }
      return;
    }
    ++folder.files;
  }
  if (found == files_.end() || found->second.id != id) {
    found = files_.insert_or_assign(path, File{.id = id, .first_seen = Clock::now()}).first;
  }
  File& file = found->second;
  if (file.is_done) return;
  if (!S_ISREG(info.st_mode) || info.st_uid != folder.owner) {
    file.first_seen = {};  // no time will change that
    return skip(path, file, Skip::foreign,
                S_ISREG(info.st_mode)
                    ? "belongs to user " + std::to_string(info.st_uid) + ", its folder to " + std::to_string(folder.owner)
                    : "is no regular file");
  }
  open(path, folder, file);
}

void NodeWatch::open(std::string const& path, Folder& folder, File& file) {
  auto view = flight::FlightView::open(path);
  if (!view) {
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) {
      files_.erase(path);
      --folder.files;
      return take_held(path);
    }
  }
  serve(path, file, std::move(view));
}

void NodeWatch::hold(std::string const& folder_path, Folder const& folder, std::string const& name) {
  if (begun_.size() >= kMostBegun) return;
  FileDescriptor file{::open((folder_path + '/' + name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != folder.owner) return;
  const auto path = folder_path + '/' + name.substr(1, name.size() - 1 - kBegunEnding.size());
  begun_.insert_or_assign(path, Begun{.file = std::move(file), .since = Clock::now()});
}

/// Of a file that was there and is gone: it was opened in time, or missed.
void NodeWatch::take_held(std::string const& path) {
  auto begun = begun_.extract(path);
  struct stat info{};
  if (begun.empty() || ::fstat(begun.mapped().file.get(), &info) != 0) return count(Skip::vanished);
  File file{.id = {info.st_dev, info.st_ino}, .first_seen = Clock::now()};
  serve(path, file, flight::FlightView::open(begun.mapped().file.release(), path));
  if (!file.is_done && !file.is_counted) count(Skip::vanished);
}

void NodeWatch::serve(std::string const& path, File& file, Result<flight::FlightView> view) {
  if (!view) {
    const auto reason = view.error().kind == ErrorKind::parse         ? Skip::broken
                        : view.error().kind == ErrorKind::unsupported ? Skip::unsupported
                                                                      : Skip::unreadable;
    return skip(path, file, reason, view.error().message);
  }
  std::shared_ptr<void const> guard;
  if (options_.guards_mappings) {
    guard = guard_mapping(view->memory());
    if (!guard) return skip(path, file, Skip::too_many, "more files than can be guarded");
  }
  // The guard goes after the mapping's last reader, and before the mapping.
  const std::shared_ptr<flight::FlightView const> held{new flight::FlightView{std::move(*view)},
                                                       [guard = std::move(guard)](flight::FlightView const* it) mutable {
                                                         guard.reset();
                                                         delete it;
                                                       }};
  switch (sink_(held, path, file.id)) {
    case NodeBooks::Arrival::too_many: return skip(path, file, Skip::too_many, "more processes than can be served");
    case NodeBooks::Arrival::broken: return skip(path, file, Skip::broken, "was truncated while it was opened");
    case NodeBooks::Arrival::taken:
    case NodeBooks::Arrival::found_dead:
    case NodeBooks::Arrival::is_known: break;
  }
  file.is_done = true;
}

/// Something has appeared beside the folders. In /dev/shm that is mostly somebody's shared memory.
bool NodeWatch::may_be_folder(std::string_view name) const {
  const auto is_missing = [name](auto const& entry) {
    return entry.second.state == FolderState::missing && last_part(entry.first) == name;
  };
  return user_in(name, kUserFolder) || user_in(name, "") || std::ranges::any_of(folders_, is_missing);
}

void NodeWatch::read_events() {
  alignas(inotify_event) std::array<char, 65'536> buffer{};
  // Somebody who makes events without end must not keep us from ending, or from listing the other folders.
  constexpr int kMostReads = 16;
  for (int reads = 0; reads < kMostReads && !stopping_.load(std::memory_order_relaxed); ++reads) {
    const auto size = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(size);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const std::string name{event.len == 0 ? "" : buffer.data() + at + sizeof event};
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) must_list_ = true;
      const auto folder = watches_.find(event.wd);
      if (folder == watches_.end()) {
        if (may_be_folder(name)) must_list_ = true;
        if ((event.mask & IN_IGNORED) != 0) {
          std::erase_if(parents_, [watch = event.wd](auto const& entry) { return entry.second == watch; });
        }
        continue;
      }
      if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) != 0) {
        if (auto const known = folders_.find(folder->second); known != folders_.end()) known->second.watch = -1;
        if ((event.mask & IN_MOVE_SELF) != 0) (void)inotify_rm_watch(inotify_.get(), event.wd);
        watches_.erase(folder);
        must_list_ = true;
        continue;
      }
      const auto known = folders_.find(folder->second);
      if (known == folders_.end()) continue;
      const bool has_its_name = (event.mask & IN_MOVED_TO) != 0;
      if (is_flight_name(name)) {
        const std::string path = known->first + '/' + name;
        take(path, known->second, has_its_name);
        if (has_its_name) begun_.erase(path);
      } else if ((event.mask & IN_CREATE) != 0 && is_begun_name(name)) {
        hold(known->first, known->second, name);
      }
    }
  }
}

std::chrono::milliseconds NodeWatch::time_between_lists() const {
  const bool any_remote = std::ranges::any_of(folders_, [](auto const& entry) { return entry.second.is_remote; });
  return inotify_.get() >= 0 && !any_remote ? options_.list_every : options_.list_every_without;
}

void NodeWatch::run() noexcept {
  auto next_list = Clock::now();
  while (!stopping_.load(std::memory_order_relaxed)) {
    try {
      if (must_list_ || Clock::now() >= next_list) {
        list_all();
        next_list = Clock::now() + time_between_lists();
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_list - Clock::now());
      std::array<pollfd, 2> entries{{{wake_.get(), POLLIN, 0}, {inotify_.get(), POLLIN, 0}}};
      (void)::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      eventfd_t ignored = 0;
      if (entries[0].revents != 0) (void)eventfd_read(wake_.get(), &ignored);
      if (entries[1].revents != 0) read_events();
    } catch (...) {
      // Without memory for it now, in a moment perhaps.
      must_list_ = true;
      pollfd entry{wake_.get(), POLLIN, 0};
      (void)::poll(&entry, 1, static_cast<int>(options_.list_every_without.count()));
    }
  }
}

void NodeWatch::stop() noexcept {
  stopping_.store(true, std::memory_order_relaxed);
  (void)eventfd_write(wake_.get(), 1);
}

std::array<std::uint64_t, kSkipCount> NodeWatch::skipped() const noexcept {
  std::array<std::uint64_t, kSkipCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = skipped_[i].load(std::memory_order_relaxed);
  return counts;
}

std::array<std::uint64_t, kFolderStateCount> NodeWatch::folders() const noexcept {
  std::array<std::uint64_t, kFolderStateCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = folder_states_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace headroom::exporter
