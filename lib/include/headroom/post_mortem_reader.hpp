// headroom: reading post-mortems.
// Layer: dump
//
// What post_mortem.hpp wrote comes back in the structs of flight_reader.hpp, so that whoever works on a flight file works on a dump
// too: ledgers, live allocations, events with all their words; as a follow::Source, a dump feeds a model. A dump that was cut off
// anywhere loads what is whole and says `truncated`; one that is damaged in the middle is an error that names the byte.
//
// Thread safety: plain values. Cost: 0.3 s for a full file; memory is bounded by the limits below, whatever a file says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>

namespace headroom {

inline constexpr std::uint64_t kMostDumpBytes = std::uint64_t{512} << 20;
inline constexpr std::size_t kMostDumpEvents = std::size_t{1} << 21;
inline constexpr std::size_t kMostDumpAllocations = std::size_t{1} << 20;

struct PostMortemDevice {
  std::uint32_t id = 0;
  std::string name, uuid, pci_address;  ///< empty when unknown
  std::int64_t ordinal = -1;            ///< −1 unknown
  /// As the failing request was told, else as a ledger on it saw them last; how long ago is not recorded.
  std::optional<std::uint64_t> total_bytes, free_bytes, outside_bytes;
};

/// One hook's turn for the request that failed.
struct PostMortemHookTurn {
  std::uint32_t hook = 0;  ///< directory id
  std::string name;
  std::string result;  ///< freed, freed_nothing, threw, not_ended, skipped_large, skipped_busy, ran_elsewhere
  bool overran = false;
  std::optional<std::uint64_t> shortfall_bytes, estimate_bytes, reported_bytes, freed_bytes, duration_ns,
      overhead_bytes;  ///< of a skipped one: what it needs to run
};

struct PostMortemPolicyStep {
  std::string step, policy;
  std::string begins;  ///< of "begun", which comes last and has not ended: hook_elsewhere, wait, checkpoint
  std::uint64_t duration_ns = 0, bytes = 0;
  bool granted = false;
};

struct PostMortemHolder {
  std::string name;
  std::uint64_t bytes = 0;
};

struct PostMortemFailure {
  std::optional<std::uint64_t> requested_bytes;
  std::optional<ErrorKind> kind;
  std::optional<Layer> layer;
  std::uint32_t ledger = 0;  ///< cell
  std::string tag, site;     ///< names; empty when unknown
  std::uint64_t thread = 0;
  std::string message;
  std::optional<std::uint64_t> claimed_bytes, required_bytes, limit_bytes, peak_bytes, device_free_bytes, device_total_bytes,
      device_outside_bytes, unspent_bytes, failed_free_bytes;
  std::int64_t device_code = 0;
  std::optional<std::uint64_t> ticks;
  std::vector<PostMortemHolder> holders;  ///< largest first
  std::vector<PostMortemHookTurn> hooks;
  std::vector<PostMortemPolicyStep> policy_steps;
  std::string outcome;  ///< failed, granted_after_all, unknown
};

struct PostMortemSite {
  std::uint32_t id = 0;
  std::string name;
  std::uint64_t line = 0, live_bytes = 0, live_allocations = 0;
};

/// What events name besides: marks, LoggingResources, and hooks, tags and ledgers that are no more.
struct PostMortemName {
  std::uint32_t id = 0;
  std::string kind;                     ///< mark, log, hook, tag, ledger
  std::optional<std::uint64_t> number;  ///< of a log, as its lines carry it
  std::string name;
};

struct PostMortemRing {
  std::uint64_t recorded = 0, listed = 0;
  std::optional<std::uint64_t> first, last;  ///< numbers of what is listed
  std::optional<std::uint64_t> lost;         ///< absent without events
};

struct PostMortemLane {
  std::uint32_t lane = 0;
  bool owned = false;
  std::uint64_t thread = 0;
  std::string thread_name;
  PostMortemRing main, journal;
};

struct PostMortem {
  std::uint64_t version = 0;
  bool truncated = false;  ///< the file ends before the dump does: what is here is whole, what is not may be missing
  bool complete = false;   ///< the writer read everything that it was asked for, and the file ends where the dump does
  std::string reason_kind, reason;
  std::string events_contents;  ///< included, left_out, not_recorded
  std::string events_left_out_because;
  std::uint64_t written_realtime_ns = 0;
  /// The clock of `syncs`, if the dump was written on the machine of its process, before the next boot.
  std::optional<std::uint64_t> written_monotonic_ns;

  flight::ProcessInfo process;
  flight::Liveness liveness = flight::Liveness::unknown;
  std::string flight_path;
  std::uint64_t ticks_per_second = 0;
  std::vector<flight::ClockMap::Sync> syncs;

  std::optional<PostMortemFailure> failure;
  std::vector<PostMortemDevice> devices;
  std::vector<flight::LedgerSnapshot> ledgers;
  std::vector<flight::HookSnapshot> hooks;
  std::vector<flight::InFlightOperation> in_flight;
  std::vector<flight::FirstFailureInfo> first_failures;
  std::vector<PostMortemSite> sites;
  std::vector<PostMortemName> other_names;
  std::uint64_t live_allocations = 0, live_bytes = 0;  ///< of all, listed or not
  std::vector<flight::LiveAllocation> live;            ///< largest first
  std::vector<flight::Event> events;                   ///< by time
  std::vector<PostMortemLane> lanes;
  std::map<std::uint32_t, std::string> names;  ///< by directory id: ledgers, tags, hooks, sites, devices, marks, logs

  [[nodiscard]] flight::ClockMap clock() const { return {ticks_per_second, syncs}; }
  [[nodiscard]] std::string label(std::uint32_t id) const;  ///< "" when there is none
};

/// Whether bytes from the beginning of something (4 KiB are enough) are those of a post-mortem.
[[nodiscard]] bool looks_like_post_mortem(std::string_view beginning) noexcept;

/// `name` begins every message. Errors: parse (what was found where, and what was expected), unsupported (a later version).
[[nodiscard]] Result<PostMortem> read_post_mortem(std::string_view text, std::string_view name);

/// A file; `-` is standard input. Errors: io, and those above.
[[nodiscard]] Result<PostMortem> load_post_mortem(std::string const& path);

/// For a model: the state and the events at the moment when the dump was written, and the failure that it is about. `title` is what
/// people call it. read() has no errors.
[[nodiscard]] std::unique_ptr<follow::Source> post_mortem_source(PostMortem dump, std::string title);

/// What is doubtful in a dump that could be read, a sentence each: it is truncated, its sums do not agree with each other. Empty: it
/// is sound. Only of a process that had ended must all sums agree; of a living one those that were read in one piece.
[[nodiscard]] std::vector<std::string> check_post_mortem(PostMortem const& dump);

}  // namespace headroom
