// libFuzzer: whatever bytes a file has, a reader refuses them with a message or reads them without crashing, hanging, or reading
// out of range. What must be true of its answers is in tests/support/read_everything.hpp.
//
//   cmake --preset fuzz && cmake --build --preset fuzz && ctest --preset fuzz    # or: ./run check
//   build/fuzz/bin/flight_reader_fuzz build/fuzz/findings/flight_reader_fuzz-…   # one finding again
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <sanitizer/asan_interface.h>

#include "compact_flight.hpp"
#include "flight_mutator.hpp"
#include "read_everything.hpp"

using namespace headroom::flight;  // NOLINT(google-build-using-namespace): libFuzzer's functions are global

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

/// Aligned, with the first byte behind `size` out of bounds for AddressSanitizer. One place for all inputs: fresh pages for each
/// would cost more than reading them.
std::span<const std::byte> placed(std::uint8_t const* data, std::size_t size) {
  constexpr std::size_t kRoom = std::size_t{1} << 20;
  alignas(64) static std::byte place[kRoom];
  if (size > kRoom) std::abort();  // -max_len is lower
  __asan_unpoison_memory_region(place, kRoom);
  if (size != 0) std::memcpy(place, data, size);
  __asan_poison_memory_region(place + size, kRoom - size);
  return {place, size};
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (auto const problem = ReadEverything::of(placed(data, size)); !problem.empty()) {
    static_cast<void>(std::fprintf(stderr, "flight_reader_fuzz: %s\n", problem.c_str()));
    std::abort();
  }
  return 0;
}

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  // Now and then libFuzzer's own: it also inserts, and knows what comparisons looked for.
  if (seed % 8 == 0 || size < sizeof(FileHeader)) return LLVMFuzzerMutate(data, size, max_size);
  return FlightMutator{std::as_writable_bytes(std::span{data, max_size}), size, seed}.mutate();
}
