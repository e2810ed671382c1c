// A mutator that knows where the fields of a flight file lie. Blind mutation of a file of 200 KiB hits a number that matters once
// in thousands of tries, and most such hits are refused at the magic.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

class FlightMutator {
public:
  FlightMutator(std::span<std::byte> room, std::size_t size, unsigned seed) : room_{room}, size_{size}, random_{seed} {}

  /// A few changes, mostly to the books of a file that stays readable. Returns the new size.
  [[nodiscard]] std::size_t mutate() {
    if (size_ < sizeof(FileHeader)) return size_;
    for (auto changes = 1 + below(4); changes > 0; --changes) change();
    return size_;
  }

private:
  void change() {
    switch (below(16)) {
      case 0: cut(); break;
      case 1: flip_bit(below(sizeof(FileHeader))); break;
      case 2: flip_bit(below(size_)); break;
      case 3: identity(); break;
      case 4: sizes(); break;
      case 5:
      case 6: region(); break;
      case 7: text(); break;
      case 8: label(); break;
      case 9:
      case 10: ring(); break;
      case 11: copy_entry(); break;
      default: word_of_books(); break;
    }
  }

  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }

  template <class T>
  [[nodiscard]] T get(std::size_t at) const {
    T value{};
    if (at <= size_ && sizeof value <= size_ - at) std::memcpy(&value, room_.data() + at, sizeof value);
    return value;
  }
  template <class T>
  void put(std::size_t at, T value) {
    if (at <= size_ && sizeof value <= size_ - at) std::memcpy(room_.data() + at, &value, sizeof value);
  }

  /// Near what is there, near what is allowed, or a number that breaks arithmetic.
  template <class T>
  [[nodiscard]] T hostile(T now) {
    switch (below(8)) {
      case 0: return static_cast<T>(now + 1);
      case 1: return static_cast<T>(now - 1);
      case 2: return static_cast<T>(now + 64);
      case 3: return static_cast<T>(T{1} << below(sizeof(T) * 8));
      case 4: return static_cast<T>(std::uint64_t{0} - 1 - below(3));
      case 5: return static_cast<T>(size_ - below(3) * 64);
      case 6: return static_cast<T>(below(4));
      default: return static_cast<T>(random_());
    }
  }

  void cut() {
    auto const to = below(size_);
    // Half of the cuts say so in the header, so that regions and not the size are what must refuse it.
    if (below(2) == 0) put<std::uint64_t>(offsetof(FileHeader, file_bytes), to);
    size_ = to;
  }

  void flip_bit(std::size_t at) {
    if (at < size_) room_[at] ^= static_cast<std::byte>(1U << below(8));
  }

  void identity() {
    switch (below(4)) {
      case 0: put(offsetof(FileHeader, magic), __builtin_bswap64(kMagic)); break;
      case 1: put(offsetof(FileHeader, endianness), below(2) == 0 ? __builtin_bswap32(kEndianness) : kEndianness); break;
      case 2: put(offsetof(FileHeader, abi_major), hostile(kAbiMajor)); break;
      default: put(offsetof(FileHeader, abi_minor), hostile(kAbiMinor)); break;
    }
  }

  void sizes() {
    static constexpr std::array<std::size_t, 8> kFields{
        offsetof(FileHeader, region_count),     offsetof(FileHeader, record_bytes),       offsetof(FileHeader, main_records),
        offsetof(FileHeader, main_block),       offsetof(FileHeader, journal_records),    offsetof(FileHeader, journal_block),
        offsetof(FileHeader, lane_main_offset), offsetof(FileHeader, lane_journal_offset)};
    if (below(4) == 0) {
      put(offsetof(FileHeader, file_bytes), hostile(get<std::uint64_t>(offsetof(FileHeader, file_bytes))));
      return;
    }
    auto const at = kFields[below(kFields.size())];
    put(at, hostile(get<std::uint32_t>(at)));
  }

  [[nodiscard]] static std::size_t entry_of(std::uint64_t region) {
    return offsetof(FileHeader, regions) + region * sizeof(RegionEntry);
  }

  void region() {
    auto const at = entry_of(below(kRegionCount));
    switch (below(4)) {
      case 0: put(at, hostile(get<std::uint64_t>(at))); break;
      case 1: put(at + offsetof(RegionEntry, count), hostile(get<std::uint32_t>(at + offsetof(RegionEntry, count)))); break;
      case 2: put(at + offsetof(RegionEntry, stride), hostile(get<std::uint32_t>(at + offsetof(RegionEntry, stride)))); break;
      default: put(at, get<std::uint64_t>(entry_of(below(kRegionCount)))); break;  // lies over another region
    }
  }

  /// Bytes that are no UTF-8: lone continuations, overlong forms, surrogates, a cut character at the end, no zero at all.
  void spoil(std::size_t at, std::size_t bytes) {
    static constexpr std::array<unsigned char, 10> kBad{0x80, 0xC0, 0xAF, 0xED, 0xA0, 0xF4, 0x90, 0xFF, 0xE2, 0x09};
    auto const all = below(3) == 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (all || below(8) == 0) put(at + i, kBad[below(kBad.size())]);
    }
  }

  void text() {
    struct Text {
      std::size_t at, bytes;
    };
    static constexpr std::array<Text, 5> kTexts{{{offsetof(FileHeader, boot_id), 40},
                                                 {offsetof(FileHeader, program), 64},
                                                 {offsetof(FileHeader, host), 64},
                                                 {offsetof(FileHeader, version), 32},
                                                 {offsetof(FileHeader, command), 512}}};
    auto const& chosen = kTexts[below(kTexts.size())];
    spoil(chosen.at, chosen.bytes);
  }

  /// Where an entry of a region lies, as the header says, hostile or not: put() looks at the size.
  [[nodiscard]] std::size_t entry_at(Region region, std::uint64_t index) const {
    auto const entry = get<RegionEntry>(entry_of(static_cast<std::uint64_t>(region)));
    return entry.offset + index * entry.stride;
  }
  [[nodiscard]] std::uint32_t count_of(Region region) const {
    return get<RegionEntry>(entry_of(static_cast<std::uint64_t>(region))).count;
  }

  void label() {
    auto const at = entry_at(Region::directory, below(count_of(Region::directory)));
    if (below(3) == 0) {
      put(at, hostile(get<std::uint64_t>(at)));
    } else {
      spoil(at + offsetof(DirectoryEntry, label), kLabelBytes);
    }
  }

  void ring() {
    auto const lane = entry_at(Region::lanes, below(count_of(Region::lanes)));
    auto const ring = lane + (below(2) == 0 ? offsetof(LaneHeader, main) : offsetof(LaneHeader, journal));
    auto const at = ring + (below(2) == 0 ? offsetof(RingWords, head) : offsetof(RingWords, reserve));
    put(at, hostile(get<std::uint64_t>(at)));
    // A head near 2^48 or 2^64 with a reserve to match is what a long life leaves.
    if (below(3) == 0) put(ring + offsetof(RingWords, reserve), get<std::uint64_t>(ring + offsetof(RingWords, head)) + below(3));
  }

  void copy_entry() {
    auto const region = static_cast<Region>(below(kRegionCount));
    auto const count = count_of(region);
    auto const from = entry_at(region, below(count));
    auto const to = entry_at(region, below(count));
    for (std::size_t i = 0; i < 128; i += 8) put(to + i, get<std::uint64_t>(from + i));
  }

  void word_of_books() {
    auto const region = static_cast<Region>(below(kRegionCount));
    auto const entry = get<RegionEntry>(entry_of(static_cast<std::uint64_t>(region)));
    auto const within = std::uint64_t{entry.count} * entry.stride;
    auto const at = entry.offset + below(within) / 8 * 8;
    put(at, hostile(get<std::uint64_t>(at)));
  }

  std::span<std::byte> room_;
  std::size_t size_;
  std::mt19937_64 random_;
};

}  // namespace headroom::flight
