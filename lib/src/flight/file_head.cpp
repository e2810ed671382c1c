#include "flight/file_head.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "base/utf8.hpp"
#include "flight/open_file.hpp"

namespace headroom::flight {
namespace {

using Bytes = std::array<std::byte, sizeof(FileHeader)>;

template <class T>
void take(T& into, Bytes const& header, std::size_t offset) noexcept {
  std::memcpy(&into, header.data() + offset, sizeof into);
}

std::string text(Bytes const& header, std::size_t offset, std::size_t bytes) {
  return valid_utf8({reinterpret_cast<char const*>(header.data()) + offset, bytes});
}

template <std::size_t N>
bool read_words(int fd, std::uint64_t at, std::array<std::uint64_t, N>& words) noexcept {
  return read_at(fd, at, std::as_writable_bytes(std::span{words}));
}

/// The newest two, of which the newer may be half written; and the start, which is always there.
std::vector<ClockMap::Sync> newest_syncs(int fd, FileHead const& head) {
  std::vector<ClockMap::Sync> syncs{head.start};
  auto const& region = head.layout[Region::clock_syncs];
  for (std::uint64_t back = 1; back <= 2 && back <= head.syncs_written; ++back) {
    auto const number = head.syncs_written - back;
    std::array<std::uint64_t, sizeof(ClockSync) / sizeof(Word)> words{};
    if (!read_words(fd, region.offset + number % region.count * region.stride, words) || words[0] != number + 1) continue;
    syncs.push_back({.ticks = words[1], .monotonic_ns = words[2], .realtime_ns = words[3]});
  }
  return syncs;
}

/// 0: the ring has no record, or its newest is not there.
std::uint64_t newest_record_ticks(int fd, std::uint64_t lane, std::size_t ring_words, RingLayout const& ring) noexcept {
  std::array<std::uint64_t, 1> head{};
  if (!read_words(fd, lane + ring_words + offsetof(RingWords, head), head) || head[0] == 0) return 0;
  auto const number = head[0] - 1;
  std::array<std::uint64_t, 2> record{};
  auto const is_there = read_words(fd, lane + ring.offset + (number & (ring.records - 1)) * sizeof(Record), record);
  return is_there && (record[0] & kRecordNumberMask) == (number & kRecordNumberMask) ? record[1] : 0;
}

}  // namespace

std::optional<FileHead> read_head(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  Bytes header{};
  if (!read_at(fd, 0, header)) return std::nullopt;
  auto const layout = check_layout(header, static_cast<std::uint64_t>(status.st_size), "");
  if (!layout) return std::nullopt;
  FileHead head;
  head.layout = *layout;
  std::uint32_t alive_by = 0;
  take(alive_by, header, offsetof(FileHeader, alive_by));
  head.alive_by = static_cast<AliveBy>(alive_by);
  take(head.ticks_per_second, header, offsetof(FileHeader, ticks_per_second));
  take(head.start.ticks, header, offsetof(FileHeader, start_ticks));
  take(head.start.monotonic_ns, header, offsetof(FileHeader, start_monotonic_ns));
  take(head.start.realtime_ns, header, offsetof(FileHeader, start_realtime_ns));
  take(head.syncs_written, header, offsetof(FileHeader, syncs_written));
  take(head.lanes_used, header, offsetof(FileHeader, lanes_used));
  head.boot_id = text(header, offsetof(FileHeader, boot_id), sizeof FileHeader::boot_id);
  head.host = text(header, offsetof(FileHeader, host), sizeof FileHeader::host);
  return head;
}

std::uint64_t last_sign_of_life_ns(int fd, FileHead const& head) {
  auto syncs = newest_syncs(fd, head);
  auto newest = std::ranges::max(syncs, {}, &ClockMap::Sync::ticks).ticks;
  auto const& lanes = head.layout[Region::lanes];
  for (std::uint32_t i = 0; i < lanes.count; ++i) {
    if (i >= head.lanes_used && i < kOwnedLanes) continue;  // nobody ever owned it
    auto const lane = lanes.offset + std::uint64_t{i} * lanes.stride;
    auto const main = offsetof(LaneBooks, header) + offsetof(LaneHeader, main);
    auto const journal = offsetof(LaneBooks, header) + offsetof(LaneHeader, journal);
    newest = std::max(newest, newest_record_ticks(fd, lane, main, head.layout.main));
    newest = std::max(newest, newest_record_ticks(fd, lane, journal, head.layout.journal));
  }
  return ClockMap{head.ticks_per_second, std::move(syncs)}.realtime_ns(newest);
}

}  // namespace headroom::flight
