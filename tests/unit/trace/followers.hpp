// Helpers for tests of LogFollower.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/log_follower.hpp>

#include "log_events.hpp"

namespace headroom::test {

/// So long that only flush() and stop() make a follower look.
inline constexpr std::chrono::nanoseconds kNever = std::chrono::hours{1};

[[nodiscard]] inline std::shared_ptr<MemorySink> memory(std::size_t capacity = 1U << 20) {
  return std::make_shared<MemorySink>(capacity);
}

[[nodiscard]] inline LogFollower follow(LoggingResource const* log, std::vector<std::shared_ptr<LogSink>> sinks,
                                        std::chrono::nanoseconds interval = kNever) {
  auto follower = LogFollower::start({.resource = log,
                                      .sinks = std::move(sinks),
                                      .poll_interval = interval,
                                      .patience = std::chrono::minutes{5}});  // a loaded machine must decide no test
  if (!follower) throw std::runtime_error{follower.error().to_string()};
  return std::move(*follower);
}

/// Allocates so many bytes and frees them again: two lines.
inline void pair(DeviceResource& resource, std::uint64_t bytes) {
  const auto block = resource.allocate({.bytes = bytes});
  ASSERT_TRUE(block);
  ASSERT_TRUE(resource.deallocate(*block));
}

}  // namespace headroom::test
