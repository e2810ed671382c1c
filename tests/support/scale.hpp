// How much of a heavy test to run: HEADROOM_TEST_SCALE (1 by default) multiplies rounds, never what is asserted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace headroom::test {

[[nodiscard]] inline std::uint64_t scaled(std::uint64_t rounds) {
  const char* text = std::getenv("HEADROOM_TEST_SCALE");
  const double scale = text != nullptr ? std::strtod(text, nullptr) : 1.0;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(rounds) * (scale > 0 ? scale : 1.0)));
}

}  // namespace headroom::test
