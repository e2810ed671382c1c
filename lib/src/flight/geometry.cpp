#include "flight/geometry.hpp"

#include <algorithm>

namespace headroom::flight {
namespace {

constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept { return (value + to - 1) / to * to; }

}  // namespace

bool Sizes::halve() noexcept {
  const Sizes before = *this;
  main_records = std::max(main_records / 2, std::min(main_records, kSmallestMainRing));
  main_block = std::min(main_block, main_records / 2);
  journal_records = std::max(journal_records / 2, std::min(journal_records, kSmallestJournal));
  journal_block = std::min(journal_block, journal_records / 2);
  live_slots = std::max(live_slots / 2, std::min(live_slots, kSlotsPerShare));
  return main_records != before.main_records || journal_records != before.journal_records || live_slots != before.live_slots;
}

Geometry geometry_for(Sizes const& sizes) noexcept {
  Geometry geometry{.sizes = sizes};
  geometry.lane_main_offset = sizeof(LaneBooks);
  geometry.lane_journal_offset =
      static_cast<std::uint32_t>(geometry.lane_main_offset + std::uint64_t{sizes.main_records} * sizeof(Record));
  const auto lane_bytes =
      static_cast<std::uint32_t>(geometry.lane_journal_offset + std::uint64_t{sizes.journal_records} * sizeof(Record));

  std::uint64_t offset = sizeof(FileHeader);
  const auto place = [&](Region region, std::uint32_t count, std::size_t stride) {
    geometry.regions[static_cast<std::size_t>(region)] = {offset, count, static_cast<std::uint32_t>(stride)};
    offset = round_up(offset + std::uint64_t{count} * stride, kPage);
  };
  place(Region::clock_syncs, kClockSyncs, sizeof(ClockSync));
  place(Region::directory, sizes.directory_entries, sizeof(DirectoryEntry));
  place(Region::ledgers, kLedgerCount, sizeof(LedgerCell));
  place(Region::tallies, kLedgerCount, sizeof(LedgerTallies));
  place(Region::ledger_bases, kLedgerCount, sizeof(LedgerCounters));
  place(Region::tag_bases, kTagCells, sizeof(TagCell));
  place(Region::hooks, kHookCells, sizeof(HookCell));
  place(Region::first_failures, kFirstFailures, sizeof(FirstFailure));
  place(Region::live_slots, sizes.live_slots, sizeof(LiveSlot));
  place(Region::live_shares, sizes.live_slots / kSlotsPerShare, sizeof(LiveShare));
  place(Region::lanes, kLaneCount, lane_bytes);
  place(Region::overflow, 1, sizeof(OverflowBooks));
  geometry.bytes = offset;
  return geometry;
}

void describe(Geometry const& geometry, FileHeader& header) noexcept {
  header.abi_major = kAbiMajor;
  header.abi_minor = kAbiMinor;
  header.endianness = kEndianness;
  header.file_bytes = geometry.bytes;
  header.region_count = kRegionCount;
  header.record_bytes = sizeof(Record);
  header.main_records = geometry.sizes.main_records;
  header.main_block = geometry.sizes.main_block;
  header.journal_records = geometry.sizes.journal_records;
  header.journal_block = geometry.sizes.journal_block;
  header.lane_main_offset = geometry.lane_main_offset;
  header.lane_journal_offset = geometry.lane_journal_offset;
  header.wanted_bytes = geometry_for(Sizes{}).bytes;
  std::ranges::copy(geometry.regions, header.regions);
}

}  // namespace headroom::flight
