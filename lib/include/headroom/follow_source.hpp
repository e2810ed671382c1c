// headroom: where a model of the past gets its facts from.
// Layer: follow
//
// A Source tells what a program's books say now and which events are new. Those that come with the library: the flight file of a
// living or dead process, the same over a view that is open already, a recorded history, and a post-mortem (post_mortem_source in
// post_mortem_reader.hpp). Whoever can fill these plain structs (a test, another format) feeds a model just as well: derive from
// Source.
//
// Rules for a Source: events of one ledger carry the `alloc` word as the flight format defines it (allocated after, operation
// number; the first operation of a ledger is number 1), whether or not a flight file is behind it. A figure that is not known stays
// absent. read() may return as little as it likes at a time, as long as it says that there is more; the books are those after it.
//
// Ownership: a model owns its source. Thread safety: one thread at a time. Cost: a flight source maps its file and copies each
// event once; a history source keeps what is live.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_answers.hpp>

namespace headroom {
class TraceReader;
struct TorchSnapshot;
}  // namespace headroom

namespace headroom::follow {

/// What kind of file is behind a model: what its figures can mean depends on it.
enum class SourceKind : std::uint8_t { flight, history, dump };

/// A stretch of a device's address space that a ledger's blocks lie in. With the regions known, the holes between blocks are too.
struct AddressRegion {
  std::uint64_t begin = 0;  ///< first address
  std::uint64_t bytes = 0;
};

/// What one read brought.
struct News {
  std::vector<flight::Event> events;  ///< appended, in any order within one read
  std::vector<flight::Gap> gaps;      ///< appended
  bool more = false;                  ///< there is more to read at once; a read that ends with false read all there is
  bool ended = false;                 ///< the program has ended, and nothing will follow what was read
};

class Source {
public:
  virtual ~Source() = default;
  Source() = default;
  Source(Source const&) = delete;
  Source& operator=(Source const&) = delete;

  [[nodiscard]] virtual SourceKind kind() const = 0;
  /// What people call it: a path.
  [[nodiscard]] virtual std::string title() const = 0;
  /// Appends what is new to `news`. Errors: io, parse; what was read before one stays good.
  [[nodiscard]] virtual Result<void> read(News& news) = 0;

  [[nodiscard]] virtual flight::ProcessInfo process() const = 0;
  [[nodiscard]] virtual flight::Liveness liveness() const = 0;
  [[nodiscard]] virtual flight::ClockMap clock() const = 0;
  /// Now in the ticks of the events, as well as it is known: never before the newest event that read() has returned.
  [[nodiscard]] virtual std::uint64_t now_ticks() const = 0;

  /// The books as they are now, closed ledgers too.
  [[nodiscard]] virtual std::vector<flight::LedgerSnapshot> ledgers() const = 0;
  virtual void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const = 0;
  /// Whether for_each_live() visits every block that has a slot: only then does a block's absence mean anything.
  [[nodiscard]] virtual bool live_is_whole() const { return true; }
  /// Names of tags, sites and hooks by the ids that events carry.
  [[nodiscard]] virtual std::optional<flight::DirectoryName> name(std::uint32_t id) const = 0;

  // What not every source knows.
  [[nodiscard]] virtual std::vector<flight::HookSnapshot> hooks() const { return {}; }
  [[nodiscard]] virtual std::vector<flight::FirstFailureInfo> first_failures() const { return {}; }
  /// The failure that the file was written about; its events may be missing from what read() returns.
  [[nodiscard]] virtual std::optional<FailureStory> failure() const { return {}; }
  [[nodiscard]] virtual std::vector<flight::LaneInfo> lanes() const { return {}; }
  [[nodiscard]] virtual std::vector<flight::InFlightOperation> in_flight() const { return {}; }
  /// Of an event that the last read() returned, the stream it was for; absent: not recorded. A flight file knows it of what is live alone.
  [[nodiscard]] virtual std::optional<std::uint64_t> stream_of(flight::Event const& /*event*/) const { return {}; }
  /// No event that read() returns is older, where that is known before the first one and not simply the first one's: where a history of
  /// several devices comes device after device.
  [[nodiscard]] virtual std::optional<std::uint64_t> first_ticks() const { return {}; }
  /// What Event::thread() stands for, where a history numbers its threads anew.
  [[nodiscard]] virtual std::uint64_t thread_id(std::uint32_t thread) const { return thread; }
  /// The stack of a site, outermost frame first and the site last, as "function;function". Where no stacks are recorded: its name.
  [[nodiscard]] virtual std::string stack_of(std::uint32_t site) const {
    auto found = name(site);
    return found ? std::move(found->label) : std::string{};
  }
  /// What a snapshot of PyTorch holds besides its history (torch_snapshot.hpp); null for everything else.
  [[nodiscard]] virtual TorchSnapshot const* torch_snapshot() const { return nullptr; }
  /// Empty: not known. A flight file does not tell them, and a history's blocks are not as large as those in its segments.
  [[nodiscard]] virtual std::vector<AddressRegion> regions(std::uint32_t /*ledger*/) const { return {}; }
  /// Records that could be read, and records that were gone before.
  [[nodiscard]] virtual std::uint64_t accepted() const { return 0; }
  [[nodiscard]] virtual std::uint64_t lost() const { return 0; }
};

/// Follows a view that is open already (of this process, too).
[[nodiscard]] std::unique_ptr<Source> flight_source(flight::FlightView view);
/// Of a view over bytes to which nobody writes any more, such as those that came through a pipe: all of it is read at once, and nothing
/// follows, whatever is known of the process.
[[nodiscard]] std::unique_ptr<Source> flight_copy_source(flight::FlightView view);
/// Opens a flight file. Errors: those of FlightView::open.
[[nodiscard]] Result<std::unique_ptr<Source>> open_flight_source(std::string path);

/// Reads a recorded history (see trace.hpp): one ledger without a budget for each device that it is read for ("history" of a CSV, "device
/// 0" of a snapshot; it turns up with its first record), the time of its records in microseconds as ticks. What is from before the
/// history is allocated at the time of its first entry. Records that do not fit are counted in what its process() and ledgers() cannot
/// say: unmatched frees change nothing. A snapshot's annotations are marks, of value 1 where a span begins and 0 where it ends; word 3
/// is one more than their device.
/// Errors: those of TraceReader::open; read() has those of TraceReader, and overflow where more than 16 TiB would be live.
[[nodiscard]] Result<std::unique_ptr<Source>> open_history_source(std::string path);
/// The same of a history that is open already, from where its reader stands.
[[nodiscard]] std::unique_ptr<Source> history_source(TraceReader reader);

}  // namespace headroom::follow
