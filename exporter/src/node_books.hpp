// headroom: what a node exporter knows of processes, and sums that hold.
//
//   arrive() ──▶ living ──(its lock is gone)──▶ kept ──(keep_dead is over)──▶ sums by name
//                  │ (nobody can tell: unknown; counters only)          ▲
//                  ╰──(truncated by somebody)──────────────────────────-╯
//
// The promise: for every counter that Totals has and every process name, Σ of the series + headroom_exited_*_total is what these
// processes counted since they were first seen living or began after the exporter, at every scrape; it never falls, nothing is counted
// twice, and a run that comes again is not counted again. A process that ended is read a last time, from its mapping: its file may be
// gone by then. A closed manager's counters stay until another takes its place or name.
//
// Bounds (NodeLimits), each with a count of what is beyond it: processes with series of their own, processes mapped at all, ended ones
// kept, names (the rest is "other"), runs remembered.
//
// Thread safety: every member from any thread. The lock inside is held while files are read, not while anything is written or sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>

#include "fair_mutex.hpp"
#include "families.hpp"
#include "node_totals.hpp"

namespace headroom::exporter {

/// How a process ended, as far as anybody can tell.
enum class Ending : std::uint8_t { exited, killed, unknown };
inline constexpr std::size_t kEndingCount = 3;
[[nodiscard]] char const* to_string(Ending ending) noexcept;

/// A file as the file system knows it.
struct FileId {
  std::uint64_t device = 0, inode = 0;
  friend auto operator<=>(FileId const&, FileId const&) = default;
};

struct NodeLimits {
  std::size_t series = 1'024;  ///< processes with series of their own
  std::size_t mapped = 4'096;  ///< processes known at all; each costs a descriptor, and NodeService lowers it to what there are
  std::size_t kept = 512;      ///< ended ones whose counters are still served
  std::size_t names = 256;     ///< process names in sums; the rest is "other"
  std::size_t corpses = 256;   ///< files of killed processes that wait for their post-mortem
  std::size_t runs = 16'384;   ///< runs that are over, and remembered so that none is counted twice
};

class NodeBooks {
public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    NodeLimits limits;
    std::chrono::nanoseconds keep_dead{std::chrono::minutes{5}};
    /// A process that was dead before is in no sum. By the clock that nobody sets where the file is of this boot, else by the other.
    std::uint64_t began_monotonic_ns = 0, began_realtime_ns = 0;
    std::string boot_id, host;  ///< of this machine: whether a file's lock would be seen here
    /// A closed manager's counters have series until another takes its place; if not, they are in the sums at once.
    bool keeps_closed = true;
    // For tests; the defaults ask the file itself.
    std::function<flight::Liveness(flight::FlightView const&)> liveness;
    /// False once anything in the mapping may be other than its writer left it.
    std::function<bool(flight::FlightView const&)> is_whole;
    std::function<bool(std::string const& path, FileId id)> is_there;
    /// After a file was read that is not shown: so that its pages need not stay in this process.
    std::function<void(flight::FlightView const&)> let_go;
  };
  explicit NodeBooks(Options options);

  enum class Arrival : std::uint8_t {
    taken,
    found_dead,  ///< it ended before the exporter began
    is_known,    ///< the run is served, or was
    too_many,
    broken,  ///< truncated between its opening and its first reading
  };
  /// A file that was just mapped.
  Arrival arrive(std::shared_ptr<flight::FlightView const> view, std::string path, FileId id, Clock::time_point now);

  /// A killed process: what is left of it, once its counters were taken.
  struct Corpse {
    std::shared_ptr<flight::FlightView const> view;
    std::string path;
    FileId id;
    bool was_found = false;  ///< it was dead before the exporter began: somebody may have seen to it already
  };
  /// Sees who ended and whose time is over. Returns the killed since the last call, whose counters are in the books; `notices` gets a
  /// line for each process of which something went wrong.
  [[nodiscard]] std::vector<Corpse> look(Clock::time_point now, std::vector<std::string>& notices);

  /// Who is known now, for others who watch the same processes: one that was folded or damaged is not there.
  struct Known {
    FileId id;
    std::uint64_t run = 0;
    std::shared_ptr<flight::FlightView const> view{};  ///< null once it has ended
    bool trusts_lock = true;                           ///< else its end cannot be seen in its lock
    std::optional<Ending> ending{};                    ///< absent while it lives, for all that is known
  };
  [[nodiscard]] std::vector<Known> known();

  /// One process as a scrape shows it.
  struct Living {
    std::shared_ptr<flight::FlightView const> view;
    flight::ProcessInfo process;
    std::vector<flight::LedgerSnapshot> ledgers;  ///< those with series
    bool is_certain = true;                       ///< false: nobody can tell whether it lives
    std::string name;                             ///< in sums
    Totals lifetime, shown;
  };
  struct Kept {
    Labels labels;
    Ending ending{};
    std::uint64_t live_bytes = 0;
    std::shared_ptr<std::vector<std::pair<Metric, prometheus::ClientMetric>> const> samples;  ///< without those labels
  };
  struct Sums {
    Totals exited;  ///< of whom has no series, and what others have beyond theirs
    std::array<std::uint64_t, kEndingCount> died{};
  };
  struct Reading {
    std::vector<Living> living;        ///< of the last read_some()
    std::vector<Kept> kept;            ///< complete once everybody was read, as are the sums
    std::map<std::string, Sums> sums;  ///< by process name
    std::uint64_t certain = 0, uncertain = 0;
    std::uint64_t folded = 0, folded_allocated_bytes = 0, found_dead = 0, folded_early = 0, corpses_dropped = 0;
    std::uint64_t truncated = 0, duplicates = 0;

  private:
    friend class NodeBooks;
    struct Waiting {
      std::string key, name;
    };
    std::vector<Waiting> waiting_;             // living when it began, and not yet read
    std::shared_ptr<void const> in_progress_;  // see folded_lately_
  };
  /// Begins a scrape, with who has ended seen as ended. The living are read in portions, so that a scrape needs little memory at a time
  /// and newcomers do not wait for all of it: until read_some() returns false, `reading.living` holds the next ones.
  [[nodiscard]] Reading begin(Clock::time_point now);
  bool read_some(Reading& reading, std::size_t most, Clock::time_point now);
  /// All at once.
  [[nodiscard]] Reading read(Clock::time_point now);
  /// Who could not be shown after all, since its file was found damaged: what it had counted is in `reading` from here on.
  static void withdraw(Reading& reading, Living const& living);

private:
  struct Cell {
    std::uint64_t generation = 0;
    bool is_hidden = false;  // another manager has its name: its counters are in the sums, and stay there
    Totals now;              // of this generation: without counters, as far as seen
    Totals before;           // of earlier generations, likewise
    Totals counters;         // of all generations
  };
  struct Process {
    std::shared_ptr<flight::FlightView const> view;  // null once it has ended
    std::string path;
    FileId id;
    std::uint64_t run = 0;
    Labels labels;
    std::string name;
    bool has_series = true;
    bool trusts_lock = true;  // else its end cannot be seen
    std::map<std::uint32_t, Cell> cells;
    Totals lifetime, shown;
    // Once it has ended:
    std::optional<Clock::time_point> ended;
    Ending ending{};
    std::uint64_t live_bytes = 0;
    std::shared_ptr<std::vector<std::pair<Metric, prometheus::ClientMetric>> const> samples;
  };
  using Key = std::string;  // its labels as text: two series of one key would cost a scrape
  enum class Fate : std::uint8_t { lives, ended, damaged };

  struct Figures {
    flight::ProcessInfo process;
    std::vector<flight::LedgerSnapshot> ledgers;  // shown ones
    std::uint64_t allocated = 0;
  };
  [[nodiscard]] std::optional<Figures> read_process(Process& process) const;
  [[nodiscard]] std::vector<flight::LedgerSnapshot> shown_ledgers(Process& process,
                                                                  std::vector<flight::LedgerSnapshot> ledgers) const;
  [[nodiscard]] flight::Liveness liveness_of(Process const& process) const;
  [[nodiscard]] std::optional<Ending> ending_of(Process const& process) const;
  void end(Process& process, Ending ending, Clock::time_point now);
  void fold(std::map<Key, Process>::iterator process);
  void damage(std::map<Key, Process>::iterator process);
  void see_endings(Clock::time_point now);
  void expire(Clock::time_point now);
  void remember(Key const& key, bool is_counted);
  void add_corpse(Process const& process, bool was_found);
  static void add_ended(Reading& reading, Process const& process);
  [[nodiscard]] Sums& sums_of(std::string const& name);
  [[nodiscard]] std::string bounded_name(std::string const& name);

  Options options_;
  FairMutex mutex_;  // guards all below
  std::map<Key, Process> processes_;
  std::map<std::string, Sums> sums_;
  std::map<Key, bool> over_;    // runs that were folded (true: they are in the sums) or found dead (false)
  std::deque<Key> over_order_;  // oldest first
  // What was folded while a scrape was in progress that may still count it among the living; forgotten when there is none. Scrapes hold
  // a copy of the token.
  std::map<Key, Totals> folded_lately_;
  std::shared_ptr<void const> token_ = std::make_shared<int>(0);
  std::vector<Corpse> corpses_;
  std::vector<std::string> notices_;
  std::size_t with_series_ = 0, kept_ = 0;
  std::uint64_t found_dead_ = 0, folded_early_ = 0, corpses_dropped_ = 0, truncated_ = 0, duplicates_ = 0;
};

}  // namespace headroom::exporter
