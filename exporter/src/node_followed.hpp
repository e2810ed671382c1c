// headroom: the processes of a machine, as its page shows them: who lives, what each did lately, and who ended a moment ago.
//
// NodeBooks keep counters true; this keeps what people look at. Who is there and who has ended it learns from the books, so that both
// say the same. Each living process is a Followed (followed.hpp), read once a second for its last minutes; of one that is at rest only
// every fourth reading is whole, so that hundreds of them cost next to nothing. Those that somebody looks at and, where there is room,
// those whose requests failed last are read four times a second, with stories of their failures. Whoever is looked at for the first time
// has the failures that its rings still hold. Of a process that ended its figures stay as they were at its end, of the newest ones with
// details, until the books let go of it.
//
// Bounds (Limits): processes, processes with stories, managers with a past in all of them, ended ones, and those of them with details.
// Each has a count of what is beyond it. Memory: 30 KiB for each manager with a past, some 300 KiB for each process with stories.
//
// A file that somebody truncates while it is read is let go of at once, and nothing that was read of it since is shown.
//
// Thread safety: tick() on one thread; everything else from any. No lock is held while a file is read, but a process's own (followed.hpp)
// and the one that lets processes turn stories on one after the other: the first reading of full rings takes memory for a moment.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <headroom/flight_reader.hpp>

#include "followed.hpp"
#include "node_books.hpp"

namespace headroom::exporter {

class NodeFollowed {
public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    std::size_t processes = 1'024;           ///< living ones that are listed
    std::size_t stories = 16;                ///< … whose failures are followed
    std::size_t histories = 320;             ///< managers that have a past, in all processes
    std::size_t ended = 64;                  ///< that are still listed
    std::size_t ended_details = 16;          ///< … with their details
    std::size_t ended_managers = 256;        ///< … and managers in all of those
    std::chrono::seconds keep_stories{10};   ///< since somebody looked: nobody else takes the place within that time
    std::chrono::seconds rest_stories{600};  ///< since somebody looked or a request failed: then they end
  };
  struct Options {
    Limits limits;
    /// False once anything in the mapping may be other than its writer left it.
    std::function<bool(flight::FlightView const&)> is_whole;
    /// After a file was read: so that its pages need not stay in this process.
    std::function<void(flight::FlightView const&)> let_go;
  };
  explicit NodeFollowed(Options options);

  /// One living process.
  struct Process {
    Process(FileId file, std::uint64_t run_number, std::shared_ptr<flight::FlightView const> mapped);
    const FileId id;
    const std::uint64_t run;
    const std::string name;  ///< `PID-RUN`: state_id()
    const std::uint64_t started_realtime_ns;
    const std::shared_ptr<flight::FlightView const> view;
    Followed followed;
    /// Written by tick(), read by looks; relaxed: a flag. Until the first tick nobody knows.
    std::atomic<bool> trusts_lock{false};
    // Guarded by NodeFollowed::mutex_: when somebody last looked, when a request last failed, and whether it has a place among those with
    // stories.
    Clock::time_point asked{}, failed{};
    bool has_place = false;
    // Of tick() alone.
    std::uint64_t phase = 0;                  // of the four ticks in a second, the one at which it is read
    std::optional<std::uint64_t> failures{};  // at the last reading
  };
  /// One that ended.
  struct Ended {
    FileId id;
    std::uint64_t run = 0;
    std::string name;
    std::uint64_t realtime_ns = 0;        ///< when it was seen to have ended
    std::string figures;                  ///< process_json() without details, as text
    std::shared_ptr<Look const> details;  ///< as of then; null beyond the newest
  };

  /// A file that was just mapped, and that the books have taken.
  void arrive(std::shared_ptr<flight::FlightView const> view, FileId id);
  /// Four times a second. `known` asks the books, when this is ready to hear what they say.
  void tick(std::function<std::vector<NodeBooks::Known>()> const& known, Clock::time_point now);

  /// Newest first.
  [[nodiscard]] std::vector<std::shared_ptr<Process>> living() const;
  [[nodiscard]] std::vector<std::shared_ptr<Ended const>> ended() const;
  /// Somebody looks at it: it gets stories, if it has none. False when others have all places, who were looked at a moment ago.
  [[nodiscard]] bool attend(Process& process, Clock::time_point now);
  /// Figures of now; nothing when its file was damaged.
  [[nodiscard]] std::optional<Look> look(Process& process, Followed::LookOptions options);

  /// What is beyond the limits.
  struct LeftOut {
    std::uint64_t processes = 0, ended = 0;  ///< that are not listed
    std::uint64_t histories = 0;             ///< managers without a past
  };
  [[nodiscard]] LeftOut left_out() const;
  /// Errors of sources so far.
  [[nodiscard]] std::uint64_t errors() const noexcept { return errors_.load(std::memory_order_relaxed); }

private:
  using Key = std::pair<FileId, std::uint64_t>;  // an inode may come again, in another run
  using Living = std::map<Key, std::shared_ptr<Process>>;

  enum class Interest : std::uint8_t { asked, failed };
  [[nodiscard]] bool take_place(Process& process, Interest interest, Clock::time_point now);
  [[nodiscard]] bool find_place(Process& process, Interest interest, Clock::time_point now, std::shared_ptr<Process>& loser);
  [[nodiscard]] bool is_whole(Process const& process, std::uint64_t run) const;
  void learn(std::vector<NodeBooks::Known> const& known, std::vector<std::shared_ptr<Process>> const& before);
  void forget_ended(std::set<Key> const& kept);
  void end(Process& process, Ending ending);
  void add_ended(Ended ended);
  void forget(Process const& process);
  void sample(Process& process, Clock::time_point now, std::size_t& room);
  void rest(Process& process, Clock::time_point now);
  void count_failed(Result<void> const& read) noexcept;

  Options options_;
  std::mutex opening_;        // see above
  mutable std::mutex mutex_;  // guards what follows; held for copies and changes of lists
  Living living_;
  std::deque<std::shared_ptr<Ended const>> ended_;  // newest first
  LeftOut left_out_;
  std::uint64_t arrived_ = 0;
  std::uint64_t turn_ = 0;                // of tick() alone
  std::atomic<std::uint64_t> errors_{0};  // any thread, relaxed: a count
};

}  // namespace headroom::exporter
