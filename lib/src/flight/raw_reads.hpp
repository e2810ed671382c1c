// headroom: what a FlightView reads, piece by piece and without the heap.
//
// For whoever must read when there may be no memory: a post-mortem of the process itself. Texts are bytes as the file has them, valid
// UTF-8 only if its writer was sound; string members of the structs stay empty, so that none of them allocates. FlightView is made
// of these.
//
// Indices are below the size of their table. Thread safety and cost: as FlightView's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <headroom/flight_reader.hpp>

#include "flight/book_readers.hpp"
#include "flight/mapping.hpp"

namespace headroom::flight {

struct ViewAccess {
  [[nodiscard]] static MappedFlight const& mapped(FlightView const& view) noexcept { return *view.mapped_; }
};

struct RawName {
  EntryKind kind = EntryKind::none;
  EntryState state = EntryState::free;
  std::uint32_t generation = 0, parent = 0;
  std::uint64_t number = 0, payload = 0;
  std::array<char, kLabelBytes> label{};  ///< zero padded
};
using RawThreadName = std::array<char, 16>;  ///< zero padded

/// False: no such name. `id` is checked.
[[nodiscard]] bool read_name(MappedFlight const& mapped, std::uint32_t id, RawName& name) noexcept;
[[nodiscard]] std::optional<ClockMap::Sync> read_sync(MappedFlight const& mapped, std::uint32_t index) noexcept;

/// A ledger but for its names, tags, bytes in flight and the three words, which are read last. False: the cell is free.
[[nodiscard]] bool read_books(MappedFlight const& mapped, std::uint32_t index, LedgerSnapshot& ledger);
/// Whether the cell is that ledger's still, after all of it was read. A new owner leaves the old state before it stores its base, which
/// would be in both `counters` and `earlier`, and has another generation before it is open.
[[nodiscard]] bool is_same_ledger(LedgerCell const& cell, LedgerSnapshot const& ledger) noexcept;
/// Claimed, allocated and peak; after the tags, so that the peak is none that they have not seen. What is pending is among them.
void read_words(MappedFlight const& mapped, std::uint32_t index, LedgerSnapshot& ledger) noexcept;
[[nodiscard]] std::uint64_t in_flight_bytes(std::span<InFlightOperation const> operations, Table<LedgerCell> const& cells,
                                            std::uint32_t cell) noexcept;

[[nodiscard]] GuardedRead read_slot(MappedFlight const& mapped, std::uint32_t index, LiveAllocation& allocation) noexcept;
[[nodiscard]] std::optional<InFlightOperation> read_in_flight(MappedFlight const& mapped, std::uint32_t index);
[[nodiscard]] RawThreadName read_thread_name(MappedFlight const& mapped, std::uint32_t index) noexcept;
[[nodiscard]] std::optional<LaneInfo> read_lane(MappedFlight const& mapped, std::uint32_t index);
[[nodiscard]] std::optional<FirstFailureInfo> read_first_failure(MappedFlight const& mapped, std::uint32_t index) noexcept;

/// Cells ever used: loops stop there.
[[nodiscard]] std::uint32_t hooks_used(MappedFlight const& mapped) noexcept;
[[nodiscard]] bool read_hook(MappedFlight const& mapped, std::uint32_t index, HookSnapshot& hook, RawName& name);

}  // namespace headroom::flight
