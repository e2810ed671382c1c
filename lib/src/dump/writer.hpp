// One post-mortem, section by section, from a mapped flight file to a stream of JSON.
//
// Reads with the readers' protocols and allocates nothing, so that the failing process itself can run it. Order: what a person asks
// first stands first, and what is large last, so that a file that was cut still tells the story. `end` is written last: a dump
// without it is truncated.
//
// Files: write_process.cpp (who, when, devices), write_ledgers.cpp (managers, tags), write_hooks.cpp (hooks, in flight), write_failure.cpp
// (the failure and its story), write_live.cpp (sites, live allocations), write_events.cpp (events, lanes).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/post_mortem.hpp>

#include "dump/json_stream.hpp"
#include "dump/story.hpp"
#include "dump/workspace.hpp"
#include "flight/clock_line.hpp"
#include "flight/mapping.hpp"

namespace headroom::dump {

/// Why one is written: the words of `reason.kind`.
enum class ReasonKind : std::uint8_t { allocation_failed, device_out_of_memory, requested };

/// The request that failed just now, on this thread, with what the caller of the request is told.
struct KnownFailure {
  Error const& error;
  std::uint32_t ledger_cell = 0;
  std::uint32_t tag = 0;   ///< directory id
  std::uint32_t site = 0;  ///< directory id
  std::uint32_t thread = 0;
};

struct WriteRequest {
  flight::MappedFlight const& mapped;
  flight::Liveness liveness = flight::Liveness::unknown;
  ReasonKind kind = ReasonKind::requested;
  std::string_view reason;
  KnownFailure const* failure = nullptr;  ///< null: the newest one that the journals tell of
  PostMortemOptions options;
  std::string_view events_left_out;  ///< why there are none, where that was not asked for
  std::uint64_t sequence = 0;        ///< of the process's own, from 1; 0: none of those
  PostMortemCounts counts;           ///< those before it
};

class Writer {
public:
  Writer(WriteRequest const& request, Workspace& workspace, JsonStream& json) noexcept;
  /// The stream has the error, if there is one.
  void write() noexcept;

private:
  using Shape = JsonStream::Shape;

  void survey() noexcept;  // one pass over the directory and one over the live table
  void write_head() noexcept;
  void write_process() noexcept;
  void write_clock() noexcept;
  void write_devices() noexcept;
  void write_device(std::uint32_t id) noexcept;
  void write_memory_of_device(std::uint32_t id) noexcept;
  void write_ledgers() noexcept;
  void write_ledger(std::uint32_t cell) noexcept;
  [[nodiscard]] bool read_ledger(std::uint32_t cell, flight::LedgerSnapshot& ledger, std::size_t& tags) noexcept;
  void write_books(flight::LedgerSnapshot const& ledger) noexcept;
  void write_tallies(flight::LedgerSnapshot const& ledger) noexcept;
  void write_guard(flight::GuardTallies const& guard) noexcept;
  std::size_t sum_tags_of(flight::LedgerSnapshot const& ledger, std::uint64_t& left_out) noexcept;
  void write_tags(std::size_t count, std::uint64_t peak) noexcept;
  void write_counters(flight::CounterSums const& counters) noexcept;
  void write_hooks() noexcept;
  void write_in_flight() noexcept;
  void write_failure() noexcept;
  void write_known_failure(KnownFailure const& failure) noexcept;
  void write_figures(Error const& error) noexcept;
  void write_story(Story const& story) noexcept;
  void write_recorded_figures(Story const& story) noexcept;
  void write_turns(Story const& story) noexcept;
  void write_turn(RecordWords const* begin, RecordWords const* end) noexcept;
  void write_skip(RecordWords const& words) noexcept;
  void write_policy_step(RecordWords const& words) noexcept;
  std::string_view write_policy_steps(Story const& story) noexcept;
  void write_first_failures() noexcept;
  void write_sites() noexcept;
  void write_names() noexcept;
  void write_live() noexcept;
  void write_live_row(flight::LiveAllocation const& allocation) noexcept;
  void write_events() noexcept;
  void write_event(std::uint32_t ring, RingState const& state) noexcept;
  void write_lanes() noexcept;
  void write_ring(std::uint32_t lane, flight::Ring ring) noexcept;
  void write_end() noexcept;

  [[nodiscard]] bool next_record(std::uint32_t ring) noexcept;
  [[nodiscard]] bool is_quiet() const noexcept;  // nobody writes the rings any more
  [[nodiscard]] bool wants_events() const noexcept;
  void write_label(std::string_view name, std::uint32_t id) noexcept;
  void write_optional_id(std::string_view name, std::uint32_t id) noexcept;
  void write_histogram(std::string_view name, std::span<std::uint64_t const> buckets) noexcept;

  WriteRequest const& request_;
  flight::MappedFlight const& mapped_;
  Workspace& work_;
  JsonStream& json_;
  flight::ClockLine clock_;
  std::uint32_t places_ = 0;  // directory entries in use, as far as they fit
  std::uint64_t places_left_out_ = 0;
  std::size_t live_listed_ = 0;  // keys in work_.live
  std::uint64_t live_count_ = 0, live_bytes_ = 0, live_busy_ = 0;
  std::uint64_t slots_left_out_ = 0, syncs_left_out_ = 0, lanes_left_out_ = 0, tags_left_out_ = 0, ledgers_left_out_ = 0;
  std::uint64_t events_listed_ = 0, events_recorded_ = 0;
  bool in_own_process_ = false;
};

/// Fixed bytes of the file as text: up to the first NUL.
template <std::size_t N>
[[nodiscard]] std::string_view text_of(char const (&field)[N]) noexcept {
  const std::string_view all{field, N};
  return all.substr(0, all.find('\0'));
}
template <std::size_t N>
[[nodiscard]] std::string_view text_of(std::array<char, N> const& field) noexcept {
  const std::string_view all{field.data(), N};
  return all.substr(0, all.find('\0'));
}

}  // namespace headroom::dump
