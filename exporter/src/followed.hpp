// headroom: one process that is being watched: its books, and what happened to it lately.
//
// Figures are read from the books when somebody asks. The last minutes come from whoever calls tick(), up to four times a second.
// Failures with their stories come from the events, which tick() reads while stories are on. They cost memory and a copy of each event,
// so that whoever watches many processes turns them on for a few; what the rings still have from before is read as they are turned on.
// The exporter of a process has one of these; whoever serves a machine has one for each process.
//
// Ownership: keeps its view. Thread safety: tick() and finish() belong to one thread; everything else from any. The lock between them is
// held for reading what is new, or for copying a few stories and the samples that were asked for. Memory: the samples' (samples.hpp),
// and with stories kStories of them with what was done about each. Cost: a tick with stories copies each new event once; a process that
// is quiet costs some microseconds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow.hpp>

#include "samples.hpp"

namespace headroom::exporter {

/// One process at one moment: copies, to be looked at without hurry.
struct Look {
  flight::ProcessInfo process{};
  flight::Liveness liveness = flight::Liveness::unknown;
  flight::ClockMap clock{1, {}};
  std::uint64_t monotonic_ns = 0;                 ///< when it was taken
  std::uint64_t realtime_ns = 0;                  ///< the same
  std::vector<flight::LedgerSnapshot> ledgers{};  ///< managers and device accounts; closed and empty ones only of the dead
  // What follows is empty in a look without details.
  std::vector<flight::HookSnapshot> hooks{};
  std::vector<flight::LaneInfo> lanes{};
  std::vector<flight::InFlightOperation> in_flight{};
  std::vector<follow::FailureStory> failures{};  ///< the last ones, oldest first; none while stories are off
  std::map<Samples::Key, Samples::History> histories{};
  follow::Losses losses{};
  std::uint64_t events_lost = 0;  ///< by the watcher's own reader, since it began
};

class Followed {
public:
  static constexpr std::size_t kStories = 64;       ///< that are kept
  static constexpr std::size_t kStoriesShown = 20;  ///< … and copied for a look

  explicit Followed(flight::FlightView view, bool with_stories = true);

  /// Reads what is new. Errors: those of the source.
  [[nodiscard]] Result<void> tick();
  /// For whoever watches many: without stories a process whose managers hold and held at most what they did at the last tick is read whole
  /// only at every kRestTicks-th call; what else may be new then, failures, budgets and managers, is seen that much later.
  [[nodiscard]] Result<void> tick_at_rest();
  static constexpr std::uint32_t kRestTicks = 4;
  /// Reads what is left of a process that has ended, for a last look. Errors: those of the source.
  [[nodiscard]] Result<void> finish();

  /// From what the rings still have on; nothing is read again if they are on. Errors: those of the source.
  [[nodiscard]] Result<void> begin_stories();
  void end_stories();
  [[nodiscard]] bool has_stories() const;

  /// See Samples::allow.
  void allow_histories(std::size_t managers);
  /// What the last tick found.
  struct Reading {
    std::size_t histories = 0, left_out = 0;  ///< managers that have a past; and those that had no room for one
    std::uint64_t failures = 0;               ///< of the managers that are at work
  };
  [[nodiscard]] Reading last_reading() const;

  struct LookOptions {
    bool with_details = true;
    std::uint64_t since_second = 0;  ///< of the histories: earlier seconds are left out
  };
  [[nodiscard]] Look look(LookOptions options) const;

  [[nodiscard]] flight::FlightView const& view() const noexcept { return view_; }
  /// By this watcher's own reader, since it began.
  [[nodiscard]] std::uint64_t events_lost() const;

private:
  [[nodiscard]] std::uint64_t lost_since_beginning() const;
  [[nodiscard]] Result<void> poll();
  void add(std::span<flight::LedgerSnapshot const> ledgers);
  [[nodiscard]] bool is_as_before() const;

  flight::FlightView view_;
  mutable std::mutex mutex_;            // guards the rest; held for a poll, or for copying
  std::optional<follow::Model> model_;  // while stories are on
  Samples samples_;
  std::uint64_t failures_ = 0;                                              // at the last reading, as the next
  std::vector<std::pair<std::uint32_t, flight::FlightView::Words>> words_;  // by cell
  std::uint32_t rested_ = 0;                                                // ticks since
  bool has_begun_ = false;
  std::uint64_t lost_before_ = 0;  // what had been overwritten before the first tick is no loss of this reader
};

}  // namespace headroom::exporter
