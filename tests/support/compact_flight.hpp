// A flight file with something in every region, as small as the format allows (some 200 KiB), so that it can be broken ten thousand
// times in a test, or a million times by a fuzzer. Its regions have few entries where the recorder makes many.
//
//   auto const file = compact_flight();            // 64-byte aligned
//   auto const view = FlightView::over(file.bytes(), "compact");
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "flight/failure_key.hpp"
#include "flight_builder.hpp"

namespace headroom::flight {

/// Bytes at an address that FlightView::over accepts.
class AlignedBytes {
public:
  explicit AlignedBytes(std::span<const std::byte> from)
      : size_{from.size()}, lines_{std::make_unique_for_overwrite<Line[]>(size_ / sizeof(Line) + 1)} {
    if (!from.empty()) std::memcpy(data(), from.data(), from.size());
  }

  [[nodiscard]] std::byte* data() noexcept { return lines_[0].bytes; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {lines_[0].bytes, size_}; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {lines_[0].bytes, size_}; }

private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::size_t size_;
  std::unique_ptr<Line[]> lines_;
};

/// What a program leaves that has done a bit of everything: two ledgers with tags, live blocks in each state, events that lapped
/// their rings, a record that was not published, an operation in flight, failures and clock syncs.
inline void fill_with_a_story(FlightBuilder& file) {
  std::ranges::copy(std::string_view{"trainer"}, file.header().program);
  std::ranges::copy(std::string_view{"python3 train.py --größe 9"}, file.header().command);
  file.header().start_ticks = 1'000;
  file.header().start_realtime_ns = 1'700'000'000'000'000'000;
  file.header().lanes_used = 2;
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto& sync = file.sync(static_cast<std::uint32_t>(i));
    sync.ticks = 2'000 + 1'000 * i;
    sync.monotonic_ns = 5'000 + 1'001 * i;
    sync.realtime_ns = 1'700'000'000'000'001'000 + 999 * i;
    sync.number = i + 1;
  }
  file.put_name(1, EntryKind::device, 0, 0, "NVIDIA H200\tGPU-0123");
  for (std::uint32_t cell = 0; cell < 2; ++cell) {
    auto& ledger = file.open_ledger(cell, 2 + cell, cell == 0 ? "weights" : "caché");
    ledger.claim = kNumberOne + 4'000;
    ledger.alloc = kNumberOne + 3'000;
    ledger.peak = kNumberOne + 3'500;
    ledger.limit = kLimitEnforcing | 5'000;
    ledger.device_id = 1;
    ledger.pressure = (std::uint64_t{3} << 8) | 2;
    file.tallies(cell).refusals[0][1] = 4;
  }
  file.put_name(4, EntryKind::tag, 2, 0, "untagged");
  file.put_name(5, EntryKind::tag, 2, 1, "attention");
  file.put_name(6, EntryKind::site, 0, 42, "model.cpp:42");
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    auto& books = file.lane(lane);
    books.header.owner = 100 + lane;
    books.header.thread_name[0] = 0x72'65'6B'72'6F'77;  // "worker"
    books.counters[0].allocations = 7;
    books.counters[0].frees = 3;
    books.tags[1].bytes = 1'500;
    for (std::uint64_t i = 0; i < 11; ++i) file.write(lane, Ring::main, record(EventKind::allocate, 2'000 + i, i));
    for (std::uint64_t i = 0; i < 3; ++i) file.write(lane, Ring::journal, record(EventKind::mark, 2'000 + i, i));
  }
  file.ring_words(1, Ring::main).head = 10;  // the eleventh is complete, but was not published
  file.lane(1).header.in_flight_ticks = 2'011;
  file.lane(1).header.in_flight = pack_in_flight(InFlight::allocating, 0, 512);
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto& slot = file.slot(i);
    slot.address = 0x7000'0000 + 4'096 * i;
    slot.bytes = 1'000;
    slot.tag_ledger = 5 | (std::uint64_t{8} << 28);
    slot.site_thread = (std::uint64_t{6} << 32) | 99;
    slot.state = pack_slot(1, static_cast<SlotState>(i), false);
  }
  file.failure(0).key = pack_failure_key(5, ErrorKind::over_budget, Layer::manager);
  file.failure(0).ready = 1;
  file.failure(0).count = 2;
}

/// The story in regions of few entries, one behind the other.
[[nodiscard]] inline AlignedBytes compact_flight() {
  FlightBuilder wide;
  fill_with_a_story(wide);
  constexpr std::array<std::uint32_t, kRegionCount> kCounts{4, 12, 3, 3, 3, kTagCells, 1, 2, 8, 0, 3, 1};
  auto const source = wide.bytes();
  std::vector<std::byte> bytes(source.begin(), source.begin() + sizeof(FileHeader));
  auto regions = wide.geometry().regions;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    auto const from = source.subspan(regions[i].offset, std::size_t{kCounts[i]} * regions[i].stride);
    regions[i].offset = bytes.size();
    regions[i].count = kCounts[i];
    bytes.insert(bytes.end(), from.begin(), from.end());  // every stride is a multiple of 32, and the counts keep offsets at 64
  }
  auto const size = std::uint64_t{bytes.size()};
  std::memcpy(bytes.data() + offsetof(FileHeader, regions), regions.data(), sizeof regions);
  std::memcpy(bytes.data() + offsetof(FileHeader, file_bytes), &size, sizeof size);
  return AlignedBytes{bytes};
}

}  // namespace headroom::flight
