// headroom: one entry, segment or block of a snapshot, taken apart.
//
// Functions that turn values into plain structs, or say what is wrong with them: where, what was there, and what was expected.
// Thread safety: that of values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/torch_snapshot.hpp>
#include <headroom/trace.hpp>

#include "trace/pickle/value.hpp"
#include "trace/snapshot_names.hpp"
#include "trace/snapshot_words.hpp"

namespace headroom::trace {

/// Whose field it is, for messages: "device 0, entry 12".
struct EntryPlace {
  std::uint32_t device = 0;
  std::uint64_t number = 0;
};

/// The fields of an entry that stand in it, whatever they are. Pointers into the entry.
struct EntryFields {
  Word action = Word::other;
  pickle::Value const* address = nullptr;
  pickle::Value const* bytes = nullptr;
  pickle::Value const* stream = nullptr;
  pickle::Value const* time_us = nullptr;
  pickle::Value const* frames = nullptr;
  pickle::Value const* category = nullptr;
  pickle::Value const* metadata = nullptr;
};

/// Makes what is needed of a snapshot's values; keeps the file's name for messages.
class SnapshotFields {
public:
  /// What stands in a pickle once may be referred to from everywhere: these bound what is made of it.
  static constexpr std::size_t kMostKeys = 256;                          ///< of an entry, segment, block, frame or annotation
  static constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 22U;  ///< of all segments, each of which counts as one too

  SnapshotFields(std::string const& file, SnapshotNames& names, std::uint64_t most_blocks = kMostBlocks)
      : file_{file}, names_{names}, most_blocks_{most_blocks} {}

  // Entries. Errors: parse.
  [[nodiscard]] Result<EntryFields> entry(pickle::Value const& value, EntryPlace const& place) const;
  [[nodiscard]] Result<std::uint64_t> number(pickle::Value const* value, Word key, pickle::Value const& entry,
                                             EntryPlace const& place) const;
  /// As recorded, where it is there; negative ones as their 64 bits.
  [[nodiscard]] Result<std::uint64_t> stream(EntryFields const& fields, EntryPlace const& place) const;
  [[nodiscard]] Result<std::uint64_t> time_us(EntryFields const& fields, EntryPlace const& place, std::uint64_t before) const;
  [[nodiscard]] std::uint32_t tag(EntryFields const& fields);
  /// `frames` may be null.
  [[nodiscard]] std::uint32_t site(pickle::Value const* frames);

  // The state at the end.
  /// `number` from 1. Errors: parse.
  [[nodiscard]] Result<TorchSegment> segment(pickle::Value const& value, std::uint64_t number);
  /// Absent where it is none that can be told.
  [[nodiscard]] static std::optional<TorchAnnotation> annotation(pickle::Value const& value);

  [[nodiscard]] tl::unexpected<Error> wrong(pickle::Value const& at, std::string const& what) const;

private:
  [[nodiscard]] Result<TorchBlock> block(pickle::Value const& value, std::string const& where, std::uint64_t next_address);
  [[nodiscard]] Result<std::uint64_t> number_in(pickle::Value const* value, Word key, pickle::Value const& within,
                                                std::string const& where) const;
  /// Of what is no dict, or one of too many keys.
  [[nodiscard]] tl::unexpected<Error> wrong_dict(pickle::Value const& at, std::string const& where,
                                                 std::string_view expected) const;
  [[nodiscard]] std::uint32_t frame(pickle::Value const& value);

  std::string const& file_;
  SnapshotNames& names_;
  std::uint64_t most_blocks_;
  std::uint64_t blocks_ = 0;  // made so far, and segments
};

/// "a text", "None": for messages.
[[nodiscard]] std::string_view kind_of(pickle::Value const& value) noexcept;

}  // namespace headroom::trace
