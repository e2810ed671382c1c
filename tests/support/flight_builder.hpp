// Makes a small, valid flight file in memory, so that a test can break any field of it. The regions lie where the recorder would
// put them (flight/geometry.hpp), with rings of 8 and 4 records and a few slots; everything starts as zero, as in a new file.
//
//   FlightBuilder file;
//   file.ledger(0).claim = 100;                 // any word, by name
//   file.write(2, Ring::main, record(kind, ticks));  // with the shipped writer
//   auto view = file.view();
#pragma once

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <headroom/flight_format.hpp>
#include <headroom/flight_reader.hpp>

#include "base/atomics.hpp"
#include "flight/geometry.hpp"
#include "flight/ring_writer.hpp"

namespace headroom::flight {

inline constexpr Sizes kSmallSizes{
    .main_records = 8, .main_block = 2, .journal_records = 4, .journal_block = 1, .live_slots = 16, .directory_entries = 32};

using RecordValues = std::array<std::uint64_t, kRecordWords>;

/// A record whose words 2…7 are `fill`, so that a mixture of two records is seen.
[[nodiscard]] inline RecordValues record(EventKind kind, std::uint64_t ticks, std::uint64_t fill = 0) {
  return {std::uint64_t{static_cast<std::uint8_t>(kind)} << 56, ticks, fill, fill, fill, fill, fill, fill};
}

class FlightBuilder {
public:
  explicit FlightBuilder(Sizes const& sizes = kSmallSizes)
      : geometry_{geometry_for(sizes)}, lines_{std::make_unique<Line[]>(geometry_.bytes / sizeof(Line))} {
    describe(geometry_, header());
    header().backing = static_cast<std::uint32_t>(Backing::file);
    header().alive_by = static_cast<std::uint32_t>(AliveBy::ofd_lock);
    header().ticks_per_second = 1'000'000'000;
    header().directory_used = 1;
    header().state = static_cast<std::uint64_t>(ProcessState::live);
    header().magic = kMagic;
  }

  [[nodiscard]] FileHeader& header() { return *at<FileHeader>(0); }
  [[nodiscard]] RegionEntry& region(Region which) { return header().regions[static_cast<std::size_t>(which)]; }
  [[nodiscard]] LedgerCell& ledger(std::uint32_t cell) { return entry<LedgerCell>(Region::ledgers, cell); }
  [[nodiscard]] LedgerTallies& tallies(std::uint32_t cell) { return entry<LedgerTallies>(Region::tallies, cell); }
  [[nodiscard]] LedgerCounters& ledger_base(std::uint32_t cell) { return entry<LedgerCounters>(Region::ledger_bases, cell); }
  [[nodiscard]] TagCell& tag_base(std::uint32_t cell) { return entry<TagCell>(Region::tag_bases, cell); }
  [[nodiscard]] ClockSync& sync(std::uint32_t index) { return entry<ClockSync>(Region::clock_syncs, index); }
  [[nodiscard]] DirectoryEntry& name(std::uint32_t id) { return entry<DirectoryEntry>(Region::directory, id); }
  [[nodiscard]] LiveSlot& slot(std::uint32_t index) { return entry<LiveSlot>(Region::live_slots, index); }
  [[nodiscard]] FirstFailure& failure(std::uint32_t index) { return entry<FirstFailure>(Region::first_failures, index); }
  [[nodiscard]] HookCell& hook(std::uint32_t cell) { return entry<HookCell>(Region::hooks, cell); }
  [[nodiscard]] LaneBooks& lane(std::uint32_t index) { return entry<LaneBooks>(Region::lanes, index); }
  [[nodiscard]] OverflowBooks& overflow() { return entry<OverflowBooks>(Region::overflow, 0); }

  [[nodiscard]] RingWords& ring_words(std::uint32_t index, Ring ring) {
    return ring == Ring::main ? lane(index).header.main : lane(index).header.journal;
  }
  /// The slots of a ring: word w of slot i is [i * 8 + w].
  [[nodiscard]] Word* ring(std::uint32_t index, Ring ring) {
    auto const offset = ring == Ring::main ? geometry_.lane_main_offset : geometry_.lane_journal_offset;
    return at<Record>(geometry_[Region::lanes].offset + std::size_t{index} * geometry_[Region::lanes].stride + offset)->words;
  }

  /// With the shipped writer. Returns the record's number.
  std::uint64_t write(std::uint32_t index, Ring ring_kind, RecordValues const& values) {
    std::uint64_t words[kRecordWords];
    std::ranges::copy(values, words);
    auto& published = ring_words(index, ring_kind);
    auto const& sizes = geometry_.sizes;
    auto const main = ring_kind == Ring::main;
    return RingWriter<StdAtomics>::write(published.head, published.reserve, ring(index, ring_kind),
                                         main ? sizes.main_records : sizes.journal_records,
                                         main ? sizes.main_block : sizes.journal_block, words);
  }

  void put_name(std::uint32_t id, EntryKind kind, std::uint32_t parent, std::uint64_t number, std::string_view label,
                EntryState state = EntryState::open) {
    auto& into = name(id);
    into.parent = parent;
    into.number = number;
    std::array<std::uint64_t, kLabelBytes / 8> words{};
    std::memcpy(words.data(), label.data(), std::min(label.size(), kLabelBytes));
    for (std::size_t i = 0; i < words.size(); ++i) into.label[i] = words[i];
    into.state = pack_entry(1, kind, state);
    if (header().directory_used <= id) header().directory_used = id + 1;
  }

  /// An open, unlimited ledger named in the directory.
  LedgerCell& open_ledger(std::uint32_t cell, std::uint32_t id, std::string_view label) {
    put_name(id, EntryKind::ledger, 0, cell, label);
    auto& into = ledger(cell);
    into.limit = kLimitNone;
    into.directory_id = id;
    into.state = static_cast<std::uint64_t>(LedgerState::open);
    return into;
  }

  [[nodiscard]] Geometry const& geometry() const { return geometry_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {lines_[0].bytes, geometry_.bytes}; }
  [[nodiscard]] Result<FlightView> try_view() const { return FlightView::over(bytes(), "test"); }
  [[nodiscard]] FlightView view() const { return try_view().value(); }

  /// The first `count` bytes as a file.
  void save(std::string const& path, std::size_t count) const {
    std::ofstream file{path, std::ios::binary | std::ios::trunc};
    file.write(reinterpret_cast<char const*>(bytes().data()), static_cast<std::streamsize>(count));
  }
  void save(std::string const& path) const { save(path, bytes().size()); }

private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  template <class T>
  [[nodiscard]] T* at(std::size_t offset) {
    return reinterpret_cast<T*>(lines_[0].bytes + offset);
  }
  /// Where the region really lies, whatever the header says by now.
  template <class T>
  [[nodiscard]] T& entry(Region region, std::uint32_t index) {
    return *at<T>(geometry_[region].offset + std::size_t{index} * geometry_[region].stride);
  }

  Geometry geometry_;
  std::unique_ptr<Line[]> lines_;
};

}  // namespace headroom::flight
