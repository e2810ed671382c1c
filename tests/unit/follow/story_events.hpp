// Stories for tests: of a real guard, and from records written by hand.
#pragma once

#include <cstdint>
#include <vector>

#include <headroom/guard.hpp>

#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {

/// The stories of one guard in this process's flight memory, from the first on.
inline std::vector<FailureStory> stories_of(MemoryGuard const& guard, std::uint64_t since_ticks) {
  Model model{flight_source(flight::FlightView::of_this_process().value())};
  EXPECT_TRUE(model.catch_up());
  auto stories = model.failures();
  std::erase_if(stories, [&](FailureStory const& story) {
    return story.ledger != guard.manager().ledger_cell().value() || story.ticks < since_ticks;
  });
  return stories;
}

inline std::uint64_t result_bits(ErrorKind kind, Layer layer) {
  return (std::uint64_t{static_cast<std::uint8_t>(kind)} + 1) * 64 + static_cast<std::uint8_t>(layer);
}

inline flight::Event refusal(Script& script, std::uint64_t ticks, std::uint64_t requested,
                             ErrorKind kind = ErrorKind::over_budget, Layer layer = Layer::manager) {
  auto event = script.event(flight::EventKind::refusal, ticks);
  event.words[2] = requested;
  event.words[5] |= result_bits(kind, layer) << 40U;
  return event;
}

/// A step that took `ns`, about a request that was refused as `refusal()` has it, or granted.
inline flight::Event policy(Script& script, std::uint64_t ticks, flight::PolicyStep step, std::uint64_t bytes,
                            std::uint64_t ns = 0) {
  auto event = script.event(flight::EventKind::policy, ticks);
  event.words[2] = static_cast<std::uint64_t>(step);
  event.words[3] = ns;
  event.words[4] = bytes;
  if (step != flight::PolicyStep::recovered) event.words[5] |= result_bits(ErrorKind::over_budget, Layer::manager) << 40U;
  return event;
}

inline flight::Event begun(Script& script, std::uint64_t ticks, flight::PolicyStep begins, std::uint64_t bytes) {
  auto event = policy(script, ticks, flight::PolicyStep::begun, bytes);
  event.words[2] |= std::uint64_t{static_cast<std::uint8_t>(begins)} << 16U;
  return event;
}

inline flight::Event hook_begin(Script& script, std::uint64_t ticks, std::uint64_t requested, std::uint32_t hook = 9) {
  auto event = script.event(flight::EventKind::hook_begin, ticks);
  event.words[5] |= std::uint64_t{hook} << 28U;
  event.words[6] = requested;
  return event;
}

inline flight::Event hook_end(Script& script, std::uint64_t ticks, std::uint64_t ns, std::uint64_t freed,
                              std::uint32_t hook = 9) {
  auto event = script.event(flight::EventKind::hook_end, ticks);
  event.words[flight::HookEnd::kNs] = ns;
  event.words[flight::HookEnd::kFreed] = freed;
  event.words[5] |= std::uint64_t{hook} << 28U;
  return event;
}

inline flight::Event hook_skip(Script& script, std::uint64_t ticks, flight::HookSkip why, std::uint64_t waited_ns = 0,
                               std::uint32_t hook = 9) {
  auto event = script.event(flight::EventKind::hook_skip, ticks);
  event.words[5] |= std::uint64_t{hook} << 28U;
  event.words[6] = static_cast<std::uint64_t>(why);
  event.words[7] |= waited_ns << 32U;
  return event;
}

}  // namespace headroom::follow
