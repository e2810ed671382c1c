// headroom: the memory of a flight file as a reader sees it: mapped read-only, checked, with typed tables.
//
// MappedFlight is what a FlightView shares. Tables know their checked count; an index that came out of the file goes through
// find().
//
// Thread safety: immutable after open. Cost: an open maps ≤ 16 MiB and touches one page of it. The file may be truncated by
// someone else while it is mapped: then the kernel raises SIGBUS at the next touch, which only our executables handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/flight_reader.hpp>
#include "base/atomics.hpp"
#include "flight/layout.hpp"
#include "flight/ring_reader.hpp"

namespace headroom::flight {

/// Entries of one region. The stride may be larger than T: later minor versions append.
template <class T>
class Table {
public:
  Table(std::byte const* first, std::uint32_t count, std::uint32_t stride) noexcept
      : first_{first}, count_{count}, stride_{stride} {}

  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  /// `index` is below size(): for loops over it.
  [[nodiscard]] T const& operator[](std::uint32_t index) const noexcept {
    return *reinterpret_cast<T const*>(first_ + std::size_t{index} * stride_);
  }
  /// For an index that nobody checked.
  [[nodiscard]] T const* find(std::uint64_t index) const noexcept {
    return index < count_ ? &(*this)[static_cast<std::uint32_t>(index)] : nullptr;
  }

private:
  std::byte const* first_;
  std::uint32_t count_;
  std::uint32_t stride_;
};

struct RecordSlots {
  Record const* first;
  [[nodiscard]] Word const* operator()(std::uint64_t index) const noexcept { return first[index].words; }
};
using LaneRingReader = RingReader<StdAtomics, kRecordWords, RecordSlots>;

class MappedFlight {
public:
  enum class Origin : std::uint8_t { file, this_process, bytes };

  [[nodiscard]] static Result<std::shared_ptr<MappedFlight const>> open(std::string path);
  /// Takes the descriptor, also after an error; `path` is what it is called.
  [[nodiscard]] static Result<std::shared_ptr<MappedFlight const>> open(int descriptor, std::string path);
  [[nodiscard]] static Result<std::shared_ptr<MappedFlight const>> over(std::span<const std::byte> bytes, std::string name,
                                                                        Origin origin);

  class Key;  // only open() and over() have one
  MappedFlight(Key, std::byte const* bytes, Layout const& layout, std::string name, Origin origin, int descriptor) noexcept;
  MappedFlight(MappedFlight const&) = delete;
  MappedFlight& operator=(MappedFlight const&) = delete;
  ~MappedFlight();

  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  ///< −1 without a file
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_, layout_.file_bytes}; }
  [[nodiscard]] FileHeader const& header() const noexcept { return *reinterpret_cast<FileHeader const*>(bytes_); }

  [[nodiscard]] auto clock_syncs() const noexcept { return table<ClockSync>(Region::clock_syncs); }
  [[nodiscard]] auto directory() const noexcept { return table<DirectoryEntry>(Region::directory); }
  [[nodiscard]] auto ledgers() const noexcept { return table<LedgerCell>(Region::ledgers); }
  [[nodiscard]] auto tallies() const noexcept { return table<LedgerTallies>(Region::tallies); }
  [[nodiscard]] auto ledger_bases() const noexcept { return table<LedgerCounters>(Region::ledger_bases); }
  [[nodiscard]] auto tag_bases() const noexcept { return table<TagCell>(Region::tag_bases); }
  [[nodiscard]] auto hooks() const noexcept { return table<HookCell>(Region::hooks); }
  [[nodiscard]] auto first_failures() const noexcept { return table<FirstFailure>(Region::first_failures); }
  [[nodiscard]] auto live_slots() const noexcept { return table<LiveSlot>(Region::live_slots); }
  [[nodiscard]] auto lanes() const noexcept { return table<LaneBooks>(Region::lanes); }
  [[nodiscard]] OverflowBooks const& overflow() const noexcept { return table<OverflowBooks>(Region::overflow)[0]; }

  /// Lanes whose books anyone ever wrote: the header's word, for speed, never above the count. Load it anew for every pass.
  [[nodiscard]] std::uint32_t lanes_with_books() const noexcept;
  [[nodiscard]] LaneRingReader ring(std::uint32_t lane, Ring ring) const noexcept;

private:
  template <class T>
  [[nodiscard]] Table<T> table(Region region) const noexcept {
    auto const& entry = layout_[region];
    return {bytes_ + entry.offset, entry.count, entry.stride};
  }

  std::byte const* bytes_;
  Layout layout_;
  std::string name_;
  Origin origin_;
  int descriptor_;
};

class MappedFlight::Key {
  friend class MappedFlight;
  explicit Key() = default;
};

}  // namespace headroom::flight
