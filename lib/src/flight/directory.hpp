// Names in the flight file: devices, ledgers, tags, hooks, sites, marks. Adding one takes a mutex (names are few and come early);
// finding a site or a known tag again takes none.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>
#include <string_view>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// Cell index of what has no cell.
inline constexpr std::uint32_t kNoCell = 0xFFFFFFFFU;

/// Adds a name; closed entries are reused under a new generation. Returns its id, or 0 when the directory is full.
[[nodiscard]] std::uint32_t add_entry(EntryKind kind, std::uint32_t parent, std::uint64_t number, std::uint64_t payload,
                                      std::string_view label);
/// The name's object is gone; readers still show it in old events until the entry is reused.
void close_entry(std::uint32_t id) noexcept;

/// The directory id of a call site. Sites beyond their share of the directory get 0 and are counted.
[[nodiscard]] std::uint32_t intern_site(std::source_location const& site) noexcept;

/// The directory id of a mark's label.
[[nodiscard]] std::uint32_t intern_mark(std::string_view label);

/// A tag's place in the books of one ledger.
struct TagPlace {
  std::uint16_t entry = 0;      ///< directory id
  std::uint16_t cell = 0xFFFF;  ///< tag cell, 0xFFFF = none
};
inline constexpr std::uint16_t kNoTagCell = 0xFFFF;

/// What a ledger's tags without a cell of their own are folded into. Every ledger finds a cell for it, whatever names there are: it has
/// no claim on a name's cells, and names leave it one for each ledger.
inline constexpr std::string_view kOtherTag = "other";
inline constexpr std::uint32_t kNamedTagCells = kTagCells - kLedgerCount;

/// Gives a (ledger, tag) pair its directory entry and tag cell, the same ones at every call while the ledger is open. An exhausted
/// table gives `{0, none}`, and so does a ledger without an entry, whose id is 0: fold into the ledger's `other`.
[[nodiscard]] TagPlace add_tag(std::uint32_t ledger_entry, std::string_view label) noexcept;
/// Gives the tag cells of a closed ledger back; their present counts become the base that readers subtract.
void close_tags_of(std::uint32_t ledger_entry) noexcept;

/// For the fork handlers: a child must not inherit the mutex locked by a thread that it does not have.
void lock_directory() noexcept;
void unlock_directory() noexcept;

}  // namespace headroom::flight
