// Writes the seed corpus of flight_reader_fuzz into a folder: whole, tiny, long-lived, cut, of another version and byte order.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "compact_flight.hpp"

namespace headroom::flight {
namespace {

class Seeds {
public:
  explicit Seeds(std::filesystem::path folder) : folder_{std::move(folder)} { std::filesystem::create_directories(folder_); }

  void add(std::string const& name, std::span<const std::byte> bytes) {
    std::ofstream file{folder_ / name, std::ios::binary | std::ios::trunc};
    file.write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    good_ = good_ && file.good();
  }

  template <class T>
  void add_with(std::string const& name, std::size_t at, T value) {
    auto file = compact_flight();
    std::memcpy(file.data() + at, &value, sizeof value);
    add(name, file.bytes());
  }

  [[nodiscard]] bool good() const { return good_; }

private:
  std::filesystem::path folder_;
  bool good_ = true;
};

bool write_all(Seeds seeds) {
  auto const whole = compact_flight();
  seeds.add("whole", whole.bytes());
  seeds.add("header-only", whole.bytes().first(sizeof(FileHeader)));
  seeds.add("cut", whole.bytes().first(whole.bytes().size() / 2));
  seeds.add("empty", {});
  seeds.add_with("magic-0", offsetof(FileHeader, magic), std::uint64_t{0});
  seeds.add_with("magic-swapped", offsetof(FileHeader, magic), __builtin_bswap64(kMagic));
  seeds.add_with("endianness-swapped", offsetof(FileHeader, endianness), __builtin_bswap32(kEndianness));
  seeds.add_with("major-2", offsetof(FileHeader, abi_major), std::uint16_t{2});
  seeds.add_with("minor-9", offsetof(FileHeader, abi_minor), std::uint16_t{9});
  seeds.add_with("lanes-used-max", offsetof(FileHeader, lanes_used), ~std::uint64_t{0});
  seeds.add_with("ticks-per-second-0", offsetof(FileHeader, ticks_per_second), std::uint64_t{0});
  auto const lanes = reinterpret_cast<FileHeader const*>(whole.bytes().data())->regions[static_cast<std::size_t>(Region::lanes)];
  auto const main = lanes.offset + offsetof(LaneHeader, main);
  seeds.add_with("head-2-48", main + offsetof(RingWords, head), std::uint64_t{1} << 48);
  seeds.add_with("head-max", main + offsetof(RingWords, head), ~std::uint64_t{0});
  seeds.add_with("reserve-max", main + offsetof(RingWords, reserve), ~std::uint64_t{0});
  return seeds.good();
}

}  // namespace
}  // namespace headroom::flight

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: flight_reader_seeds FOLDER\n"));
    return 2;
  }
  return headroom::flight::write_all(headroom::flight::Seeds{arguments[1]}) ? 0 : 1;
}
