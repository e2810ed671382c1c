// Promises of the form "takes less than", tested so that a busy machine decides nothing.
#pragma once

#include <chrono>
#include <iostream>

#include <gtest/gtest.h>

namespace headroom::test {

/// Calls `attempt`, which returns how long what was promised took, until that is below `limit`. A machine that does other things may
/// need several attempts. Code that breaks the promise breaks it in each of them, so that the test does not end and its time limit
/// stops it: each attempt must set up anew whatever could make the next one quicker.
template <class Attempt>
void expect_within(std::chrono::nanoseconds limit, Attempt&& attempt) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  for (;;) {
    const std::chrono::nanoseconds took = attempt();
    if (took < limit || ::testing::Test::HasFailure()) return;
    std::cout << "took " << Milliseconds{took}.count() << " ms, expected less than " << Milliseconds{limit}.count()
              << " ms: tried again, as the machine may have been busy" << std::endl;
  }
}

/// How long a call takes.
template <class Call>
[[nodiscard]] std::chrono::nanoseconds time_of(Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::steady_clock::now() - begin;
}

}  // namespace headroom::test
