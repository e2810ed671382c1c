// headroom: sees flight files as they appear, in many folders.
//
// By inotify, so that the file of a job of 50 ms is open before the job is over; and by listing the folders now and then, which is all
// there is where inotify has no room. A file is opened and mapped on this thread, at once, and nothing else is done on it.
//
// Which folders, and which of them are refused: node_folders.hpp. A file that does not belong to the folder's owner is foreign, and left
// alone. What is missing is waited for.
//
// A program that lives for a millisecond after its file has its name is over before anybody can look. But it has been writing the file
// for longer than that, under a name of its own; so such a file is opened when that appears, and mapped when it has its name, gone or not.
//
// A file that cannot be read is tried again at each listing, counted once by reason and named in the log once; it has two seconds to be
// finished first.
//
// Thread safety: run() and the functions that it calls on one thread; stop() and the counts from any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/flight_reader.hpp>

#include "listener.hpp"
#include "node_books.hpp"
#include "node_folders.hpp"

namespace headroom::exporter {

/// Why a file is not served. The words are values of the label `reason`.
enum class Skip : std::uint8_t { unreadable, broken, unsupported, foreign, duplicate, vanished, truncated, too_many };
inline constexpr std::size_t kSkipCount = 8;
[[nodiscard]] char const* to_string(Skip reason) noexcept;

class NodeWatch {
public:
  using Clock = std::chrono::steady_clock;
  /// A file that was mapped; says what became of it.
  using Sink = std::function<NodeBooks::Arrival(std::shared_ptr<flight::FlightView const> view, std::string path, FileId id)>;

  struct Options {
    FolderPlaces places;
    std::chrono::milliseconds list_every{5'000};        ///< with inotify
    std::chrono::milliseconds list_every_without{250};  ///< where inotify has no room
    std::chrono::milliseconds time_to_finish{2'000};    ///< before a file that cannot be read is counted
    bool guards_mappings = false;                       ///< see truncation_guard.hpp
    bool use_inotify = true;                            ///< tests turn it off
    /// The name of the network file system that a folder lies on, else null; empty: asks the kernel. Tests answer themselves.
    std::function<char const*(std::string const& folder)> network_of;
    std::function<void(std::string const&)> log;  ///< one line; from this thread
  };
  NodeWatch(Options options, Sink sink);

  /// Lists all folders once, watches them first. Then run(), until stop().
  void list_all();
  void run() noexcept;
  /// Acts on what inotify has told since the last call, without waiting; run() does so whenever there is something.
  void read_events();
  void stop() noexcept;

  [[nodiscard]] std::array<std::uint64_t, kSkipCount> skipped() const noexcept;
  [[nodiscard]] std::array<std::uint64_t, kFolderStateCount> folders() const noexcept;

private:
  struct Folder {
    int watch = -1;
    FolderState state = FolderState::missing;
    bool is_private = false;  // another user's, which is none of ours: the usual case, and no problem of anybody
    std::string problem;      // as it was logged
    bool is_remote = false;
    std::uint64_t owner = 0;
    std::size_t files = 0;      // names of it that are remembered
    bool was_too_full = false;  // said once, until it has room again
  };
  struct File {
    FileId id;
    bool is_done = false;  // nothing more to do about it
    bool is_counted = false;
    Clock::time_point first_seen;
  };

  void refresh_folders();
  void look_at(WantedFolder const& wanted, Folder& folder);
  void watch_parents();
  [[nodiscard]] int add_watch(std::string const& path, std::uint32_t events);
  void forget_files(std::string const& path, Folder& folder, std::function<bool(std::string_view)> const& stays);
  void list(std::string const& path, Folder& folder);
  void take(std::string const& path, Folder& folder, bool just_appeared);
  void open(std::string const& path, Folder& folder, File& file);
  void serve(std::string const& path, File& file, Result<flight::FlightView> view);
  void hold(std::string const& folder_path, Folder const& folder, std::string const& name);
  void take_held(std::string const& path);
  void skip(std::string const& path, File& file, Skip reason, std::string const& why);
  void count(Skip reason) noexcept { skipped_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::chrono::milliseconds time_between_lists() const;
  [[nodiscard]] bool may_be_folder(std::string_view name) const;
  void say(std::string const& line) const;

  Options options_;
  Sink sink_;
  FileDescriptor inotify_;
  FileDescriptor wake_;
  std::map<std::string, Folder> folders_;
  std::map<int, std::string> watches_;  // of folders
  std::map<std::string, int> parents_;  // of folders that are missing, and where those of all users lie
  std::map<std::string, File> files_;
  struct Begun {
    FileDescriptor file;
    Clock::time_point since;
  };
  std::map<std::string, Begun> begun_;  // files that are being written, by the path that they will have
  bool must_list_ = false;
  std::atomic<bool> stopping_{false};  // written by stop(), read by run(); relaxed: the descriptor wakes it
  // Written by the watching thread, read by scrapes; relaxed: counts.
  std::array<std::atomic<std::uint64_t>, kSkipCount> skipped_{};
  std::array<std::atomic<std::uint64_t>, kFolderStateCount> folder_states_{};
};

}  // namespace headroom::exporter
