#include "node_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
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
#include <sys/vfs.h>
#include <unistd.h>

#include "truncation_guard.hpp"

namespace headroom::exporter {
namespace {

constexpr std::string_view kUserFolder = "headroom-";
constexpr std::size_t kMostFiles = 4'096;  // names that are remembered of a folder; no other folder pays for one that is too full
constexpr std::size_t kMostNames = 65'536;  // … and read of it
constexpr std::size_t kMostBegun = 256;
constexpr std::chrono::seconds kBegunFor{10};  // until a file that never got its name is let go
constexpr std::string_view kBegunEnding = ".new";
constexpr std::uint32_t kFileEvents = IN_MOVED_TO | IN_CREATE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kParentEvents = IN_MOVED_TO | IN_CREATE;

std::string text_of(int error) { return std::generic_category().message(error); }

bool is_flight_name(std::string_view name) { return !name.starts_with('.') && name.ends_with(".flight"); }

/// ".NAME.flight.new", which is going to be "NAME.flight".
bool is_begun_name(std::string_view name) {
  return name.starts_with('.') && name.ends_with(kBegunEnding) &&
         is_flight_name(name.substr(1, name.size() - 1 - kBegunEnding.size()));
}

std::string octal(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777U));
  return text.data();
}

/// A user by number, as in the names of folders that programs make.
std::optional<std::uint64_t> user_of(std::string_view digits) {
  std::uint64_t user = 0;
  auto const* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, user);
  return error == std::errc{} && stop == end ? std::optional{user} : std::nullopt;
}

/// All names in a folder; none when it cannot be read.
std::vector<std::string> names_in(std::string const& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, decltype([](DIR* list) { ::closedir(list); })> list{::opendir(folder.c_str())};
  while (dirent const* entry = list ? ::readdir(list.get()) : nullptr) names.emplace_back(entry->d_name);
  return names;
}

std::string path_of(std::string const& folder, std::string_view name) {
  std::string path = folder;
  return path.append("/").append(name);
}

bool is_want_of_room(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC; }

std::string_view last_part(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string parent_of(std::string const& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// File systems whose files may change on another machine, of which inotify hears nothing. FUSE may be anything; most of it is remote.
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

struct Judged {
  FolderState state = FolderState::watched;
  std::uint64_t owner = 0;
  int error = 0;        // of the system
  std::string problem;  // why it is refused
};

/// Looks at the folder itself and not at its name, which may lead elsewhere a moment later.
Judged judge(std::string const& path, bool is_named, std::optional<std::uint64_t> owner = {}) {
  Judged judged;
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

}  // namespace

char const* to_string(Skip reason) noexcept {
  constexpr std::array<char const*, kSkipCount> kWords{"unreadable", "broken",   "unsupported", "foreign",
                                                       "duplicate",  "vanished", "truncated",   "too_many"};
  return kWords[static_cast<std::size_t>(reason)];
}

char const* to_string(FolderState state) noexcept {
  constexpr std::array<char const*, kFolderStateCount> kWords{"watched", "missing", "refused"};
  return kWords[static_cast<std::size_t>(state)];
}

Result<void> NodeWatch::check_folder(std::string const& folder) {
  if (folder.empty()) return fail(ErrorKind::invalid_argument, Layer::request, "''; expected a folder of flight files");
  const auto judged = judge(folder, true);
  if (judged.state != FolderState::refused) return success();
  return fail(ErrorKind::io, Layer::request, folder + ": " + judged.problem);
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

std::vector<NodeWatch::Wanted> NodeWatch::wanted_folders() const {
  std::vector<Wanted> wanted;
  wanted.reserve(options_.folders.size());
  for (auto const& folder : options_.folders) wanted.push_back({.path = without_slash(folder), .owner = {}});
  if (!wanted.empty()) return wanted;
  for (auto& folder : flight::flight_folders()) wanted.push_back({.path = without_slash(std::move(folder)), .owner = {}});
  if (const char* chosen = std::getenv("HEADROOM_DIR"); chosen != nullptr && *chosen != '\0') return wanted;
  const auto add = [&wanted](std::string path, std::optional<std::uint64_t> owner) {
    const bool is_known = std::ranges::any_of(wanted, [&path](Wanted const& other) { return other.path == path; });
    if (!is_known) wanted.push_back({.path = std::move(path), .owner = owner, .is_named = false});
  };
  for (auto const& shared : {options_.shared_memory, options_.common}) {
    for (auto const& name : names_in(shared)) {
      if (!name.starts_with(kUserFolder)) continue;
      if (const auto user = user_of(std::string_view{name}.substr(kUserFolder.size()))) add(path_of(shared, name), user);
    }
  }
  for (auto const& name : names_in(options_.runtime)) {
    if (const auto user = user_of(name)) add(options_.runtime + '/' + name + "/headroom", user);
  }
  // One that all may write to is a folder of folders only.
  if (judge(options_.common, false).state == FolderState::watched) add(options_.common, std::nullopt);
  return wanted;
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

void NodeWatch::look_at(Wanted const& wanted, Folder& folder) {
  auto const& path = wanted.path;
  auto judged = judge(path, wanted.is_named, wanted.owner);
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
  if (options_.folders.empty()) {
    for (auto const& parent : {options_.shared_memory, options_.runtime, options_.common}) watch(parent);
  }
  for (auto const& [path, folder] : folders_) {
    if (inotify_.get() < 0) return;
    if (folder.state == FolderState::missing) watch(parent_of(path));
  }
}

void NodeWatch::refresh_folders() {
  const auto wanted = wanted_folders();
  for (auto at = folders_.begin(); at != folders_.end();) {
    auto& [path, folder] = *at;
    if (std::ranges::any_of(wanted, [&path](Wanted const& one) { return one.path == path; })) {
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
  if (name.starts_with(kUserFolder) && user_of(name.substr(kUserFolder.size()))) return true;
  return user_of(name).has_value() || std::ranges::any_of(folders_, is_missing);
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
