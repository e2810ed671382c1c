// How much of a heavy test to run: HEADROOM_TEST_SCALE (1 by default) multiplies rounds, never what is asserted;
// HEADROOM_STRESS_SECONDS sets how long tests run that go by the clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace headroom::test {

[[nodiscard]] inline std::uint64_t scaled(std::uint64_t rounds) {
  const char* text = std::getenv("HEADROOM_TEST_SCALE");
  const double scale = text != nullptr ? std::strtod(text, nullptr) : 1.0;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(rounds) * (scale > 0 ? scale : 1.0)));
}

/// How long a test that runs by the clock keeps going: HEADROOM_STRESS_SECONDS, or `seconds` times the scale. What it asserts does not
/// depend on it.
[[nodiscard]] inline std::chrono::duration<double> stress_time(double seconds) {
  const char* given = std::getenv("HEADROOM_STRESS_SECONDS");
  const char* scale = std::getenv("HEADROOM_TEST_SCALE");
  const double asked = given != nullptr ? std::strtod(given, nullptr) : 0;
  const double factor = scale != nullptr ? std::strtod(scale, nullptr) : 1.0;
  return std::chrono::duration<double>{asked > 0 ? asked : seconds * (factor > 0 ? factor : 1.0)};
}

}  // namespace headroom::test
