#include "flight/layout.hpp"

#include <bit>
#include <cstring>
#include <string>

namespace headroom::flight {
namespace {

/// What version 1 knows about a region. Counts are capped so that a hostile file cannot make a reader work for minutes.
struct RegionRule {
  Region region;
  std::string_view name;
  std::size_t entry_bytes;
  std::size_t alignment;
  std::uint32_t min_count;
  std::uint32_t max_count;
};

template <class T>
constexpr RegionRule rule(Region region, std::string_view name, std::uint32_t min_count, std::uint32_t max_count) noexcept {
  return {region, name, sizeof(T), alignof(T), min_count, max_count};
}

// In the order of Region.
constexpr std::array<RegionRule, kRegionCount> kRules{
    rule<ClockSync>(Region::clock_syncs, "clock syncs", 1, 1U << 16),
    rule<DirectoryEntry>(Region::directory, "directory", 1, 1U << 20),
    rule<LedgerCell>(Region::ledgers, "ledgers", 1, kLedgerCount),
    rule<LedgerTallies>(Region::tallies, "tallies", 1, kLedgerCount),
    rule<LedgerCounters>(Region::ledger_bases, "ledger bases", 1, kLedgerCount),
    rule<TagCell>(Region::tag_bases, "tag bases", kTagCells, kTagCells),
    rule<HookCell>(Region::hooks, "hooks", 0, 1U << 12),
    rule<FirstFailure>(Region::first_failures, "first failures", 0, 1U << 16),
    rule<LiveSlot>(Region::live_slots, "live slots", 0, 1U << 22),
    rule<LiveShare>(Region::live_shares, "live shares", 0, 1U << 12),
    rule<LaneBooks>(Region::lanes, "lanes", 1, 1U << 10),
    rule<OverflowBooks>(Region::overflow, "overflow", 1, 1),
};

constexpr std::uint32_t kMaxRingRecords = 1U << 20;
constexpr std::uint64_t kRegionAlignment = 64;

std::string hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15U]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

class Check {
public:
  Check(HeaderBytes header, std::uint64_t available_bytes, std::string_view name) noexcept
      : header_{header}, available_bytes_{available_bytes}, name_{name} {}

  Result<Layout> run() {
    auto checked = identity();
    if (checked) checked = size();
    if (checked) checked = regions();
    if (checked) checked = matching_counts();
    if (checked) checked = rings();
    if (!checked) return tl::unexpected<Error>{checked.error()};
    return layout_;
  }

private:
  template <class T>
  [[nodiscard]] T field(std::size_t offset) const noexcept {
    T value{};
    std::memcpy(&value, header_.data() + offset, sizeof value);
    return value;
  }
  template <class T>
  void take(T& into, std::size_t offset) const noexcept {
    into = field<T>(offset);
  }

  [[nodiscard]] tl::unexpected<Error> damaged(std::size_t offset, std::string_view what, std::string const& found,
                                              std::string const& expected) const {
    return fail(ErrorKind::parse, Layer::request,
                std::string{name_} + ": damaged flight file: " + std::string{what} + " at offset " + std::to_string(offset) +
                    " is " + found + ", expected " + expected);
  }
  [[nodiscard]] tl::unexpected<Error> unsupported(std::string const& why) const {
    return fail(ErrorKind::unsupported, Layer::request, std::string{name_} + ": " + why);
  }

  [[nodiscard]] Result<void> identity() const {
    auto const magic = field<std::uint64_t>(offsetof(FileHeader, magic));
    auto const endianness = field<std::uint32_t>(offsetof(FileHeader, endianness));
    if (magic == 0) {
      return fail(ErrorKind::parse, Layer::request,
                  std::string{name_} +
                      ": not a finished flight file: the magic at offset 0 is 0, "
                      "its writer is starting or died before the end of its start");
    }
    if (magic != kMagic && __builtin_bswap64(magic) != kMagic) {
      return fail(
          ErrorKind::parse, Layer::request,
          std::string{name_} + ": not a flight file: offset 0 holds " + hex(magic) + ", expected " + hex(kMagic) + " (HRFLGHT1)");
    }
    if (magic != kMagic || endianness != kEndianness) {
      return unsupported("byte order mark " + hex(endianness) + " at offset 12, this headroom reads " + hex(kEndianness) +
                         " (little-endian) only");
    }
    auto const major = field<std::uint16_t>(offsetof(FileHeader, abi_major));
    auto const minor = field<std::uint16_t>(offsetof(FileHeader, abi_minor));
    if (major != kAbiMajor) {
      return unsupported("flight format version " + std::to_string(major) + "." + std::to_string(minor) +
                         ", this headroom reads version " + std::to_string(kAbiMajor) + " (up to " + std::to_string(kAbiMajor) +
                         "." + std::to_string(kAbiMinor) + " knowingly)");
    }
    return {};
  }

  [[nodiscard]] Result<void> size() {
    auto const offset = offsetof(FileHeader, file_bytes);
    auto const bytes = field<std::uint64_t>(offset);
    if (bytes < sizeof(FileHeader) || bytes > kMaxFileBytes) {
      return damaged(offset, "the file size", std::to_string(bytes),
                     std::to_string(sizeof(FileHeader)) + " to " + std::to_string(kMaxFileBytes));
    }
    if (bytes > available_bytes_) {
      return damaged(offset, "the file size", std::to_string(bytes),
                     "at most the " + std::to_string(available_bytes_) + " bytes there are (cut off?)");
    }
    layout_.file_bytes = bytes;
    return {};
  }

  [[nodiscard]] Result<void> regions() {
    auto const count_offset = offsetof(FileHeader, region_count);
    auto const region_count = field<std::uint32_t>(count_offset);
    if (region_count < kRegionCount || region_count > kRegionSlots) {
      return damaged(count_offset, "the number of regions", std::to_string(region_count),
                     std::to_string(kRegionCount) + " to " + std::to_string(kRegionSlots));
    }
    for (auto const& known : kRules) {
      if (auto checked = region(known); !checked) return checked;
    }
    return {};
  }

  [[nodiscard]] Result<void> region(RegionRule const& known) {
    auto const at = offsetof(FileHeader, regions) + static_cast<std::size_t>(known.region) * sizeof(RegionEntry);
    auto const entry = field<RegionEntry>(at);
    auto const what = [&](std::string_view part) { return std::string{part} + " of region '" + std::string{known.name} + "'"; };
    if (entry.offset % kRegionAlignment != 0 || entry.offset < sizeof(FileHeader) || entry.offset > layout_.file_bytes) {
      return damaged(at, what("the offset"), std::to_string(entry.offset),
                     "a multiple of 64 from " + std::to_string(sizeof(FileHeader)) + " to " + std::to_string(layout_.file_bytes));
    }
    if (entry.count < known.min_count || entry.count > known.max_count) {
      return damaged(at + offsetof(RegionEntry, count), what("the count"), std::to_string(entry.count),
                     std::to_string(known.min_count) + " to " + std::to_string(known.max_count));
    }
    // Larger entries are a later minor version's; a stride that breaks alignment would make every word of it a misaligned atomic.
    if (entry.stride < known.entry_bytes || entry.stride % known.alignment != 0) {
      return damaged(at + offsetof(RegionEntry, stride), what("the stride"), std::to_string(entry.stride),
                     "a multiple of " + std::to_string(known.alignment) + " from " + std::to_string(known.entry_bytes));
    }
    auto const bytes = std::uint64_t{entry.count} * entry.stride;  // 32 × 32 bits: cannot wrap
    if (bytes > layout_.file_bytes - entry.offset) {
      return damaged(at, what("the end"), std::to_string(entry.offset) + " + " + std::to_string(bytes),
                     "at most " + std::to_string(layout_.file_bytes));
    }
    layout_.regions[static_cast<std::size_t>(known.region)] = entry;
    return {};
  }

  /// Three regions have one entry for each ledger.
  [[nodiscard]] Result<void> matching_counts() const {
    auto const ledgers = layout_[Region::ledgers].count;
    for (auto const region : {Region::tallies, Region::ledger_bases}) {
      if (layout_[region].count == ledgers) continue;
      auto const at = offsetof(FileHeader, regions) + static_cast<std::size_t>(region) * sizeof(RegionEntry);
      return damaged(at + offsetof(RegionEntry, count),
                     "the count of region '" + std::string{kRules[static_cast<std::size_t>(region)].name} + "'",
                     std::to_string(layout_[region].count), std::to_string(ledgers) + " as there are ledgers");
    }
    return {};
  }

  [[nodiscard]] Result<void> rings() {
    auto const bytes_at = offsetof(FileHeader, record_bytes);
    if (auto const bytes = field<std::uint32_t>(bytes_at); bytes != sizeof(Record)) {
      return damaged(bytes_at, "the size of a record", std::to_string(bytes), std::to_string(sizeof(Record)));
    }
    auto checked = ring(layout_.main, "main", offsetof(FileHeader, main_records), offsetof(FileHeader, lane_main_offset));
    if (checked)
      checked =
          ring(layout_.journal, "journal", offsetof(FileHeader, journal_records), offsetof(FileHeader, lane_journal_offset));
    if (!checked) return checked;
    auto const end = [](RingLayout const& ring) { return ring.offset + std::uint64_t{ring.records} * sizeof(Record); };
    if (end(layout_.main) > layout_.journal.offset && end(layout_.journal) > layout_.main.offset) {
      return damaged(
          offsetof(FileHeader, lane_journal_offset), "the journal ring", std::to_string(layout_.journal.offset),
          "no overlap with the main ring, " + std::to_string(layout_.main.offset) + " to " + std::to_string(end(layout_.main)));
    }
    return {};
  }

  /// `records_at`: N, followed by B.
  [[nodiscard]] Result<void> ring(RingLayout& into, std::string const& name, std::size_t records_at,
                                  std::size_t offset_at) const {
    auto const records = field<std::uint32_t>(records_at);
    auto const block = field<std::uint32_t>(records_at + sizeof records);
    if (!std::has_single_bit(records) || records < 2 || records > kMaxRingRecords) {
      return damaged(records_at, "the record count of the " + name + " ring", std::to_string(records),
                     "a power of two from 2 to " + std::to_string(kMaxRingRecords));
    }
    if (block == 0 || block >= records || records % block != 0) {
      return damaged(records_at + sizeof records, "the block of the " + name + " ring", std::to_string(block),
                     "a divisor of " + std::to_string(records) + " below it");
    }
    auto const offset = field<std::uint32_t>(offset_at);
    auto const stride = layout_[Region::lanes].stride;
    auto const bytes = std::uint64_t{records} * sizeof(Record);
    if (offset % alignof(Record) != 0 || offset < sizeof(LaneBooks) || offset + bytes > stride) {
      return damaged(offset_at, "the offset of the " + name + " ring", std::to_string(offset),
                     "a multiple of 64 from " + std::to_string(sizeof(LaneBooks)) + ", with " + std::to_string(bytes) +
                         " bytes to the lane's end at " + std::to_string(stride));
    }
    into = {offset, records};
    return {};
  }

  HeaderBytes header_;
  std::uint64_t available_bytes_;
  std::string_view name_;
  Layout layout_;
};

}  // namespace

Result<Layout> check_layout(HeaderBytes header, std::uint64_t available_bytes, std::string_view name) {
  return Check{header, available_bytes, name}.run();
}

tl::unexpected<Error> too_short(std::uint64_t available_bytes, std::string_view name) {
  return fail(ErrorKind::parse, Layer::request,
              std::string{name} + ": not a flight file: " + std::to_string(available_bytes) + " bytes, its header alone has " +
                  std::to_string(sizeof(FileHeader)));
}

}  // namespace headroom::flight
