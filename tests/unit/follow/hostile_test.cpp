// Damaged and hostile records: whatever they say, a model answers, and its sums stay sums.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

flight::Event random_event(std::mt19937_64& random, std::uint64_t number) {
  // Small numbers meet each other; large ones are what damage looks like.
  auto const word = [&] { return random() % 4 == 0 ? random() : random() % 64; };
  flight::Event event;
  event.kind = static_cast<flight::EventKind>(random() % 40);
  event.ring = static_cast<unsigned>(event.kind) < 16 ? flight::Ring::main : flight::Ring::journal;
  event.lane = static_cast<std::uint32_t>(random() % 64);
  event.number = number;
  for (auto& value : event.words) value = word();
  event.words[0] = (std::uint64_t{static_cast<std::uint8_t>(event.kind)} << 56U) | ((random() % 256) << 48U);
  event.words[5] = random() % 3 == 0 ? random() : (random() % 4) | ((random() % 3) << 16U) | ((random() % 4) << 28U);
  event.words[7] = random() % 3;
  event.ticks = event.words[1];
  return event;
}

void expect_sums(Model const& model, std::uint32_t ledger, std::uint64_t ticks) {
  auto const state = model.state_at(ledger, ticks);
  std::uint64_t sum = 0;
  std::uint64_t allocations = 0;
  for (auto const& tag : state.tags) {
    sum += tag.bytes;
    allocations += tag.allocations;
  }
  EXPECT_EQ(allocations, state.live_allocations);
  if (sum <= state.allocated) {
    EXPECT_EQ(sum + state.unattributed_bytes, state.allocated);
  }
  EXPECT_EQ(model.live_at(ledger, ticks).size(), state.live_allocations);
}

TEST(FollowHostile, random_records_are_answered_for) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random{seed};
    auto const script = std::make_shared<Script>();
    script->name(1, "one");
    script->name(2, "two");
    for (std::uint32_t cell = 0; cell < 2; ++cell) script->book(cell).allocated = random() % 1000;
    auto model = model_of(script, {.memory_bytes = 1, .failures = 16});
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 300; ++i) script->put(random_event(random, script->records));
      if (random() % 4 == 0) {
        script->gaps.push_back(
            {.ring = flight::Ring::journal, .lane = 3, .first_missing = random() % 9, .last_missing = random()});
      }
      script->now = random();
      ASSERT_TRUE(random() % 2 == 0 ? model.poll().has_value() : model.catch_up().has_value());
    }
    script->ended = true;
    ASSERT_TRUE(model.catch_up());
    for (int i = 0; i < 200; ++i) {
      auto const ledger = static_cast<std::uint32_t>(random() % 4);
      auto const ticks = random() % 3 == 0 ? random() : random() % 128;
      expect_sums(model, ledger, ticks);
      static_cast<void>(model.alive_since(ledger, ticks / 2, ticks));
      static_cast<void>(model.peak(ledger));
      EXPECT_LE(model.series(ledger, "one", ticks / 2, ticks, 50).size(), 50U);
      EXPECT_LE(model.series(ledger, std::nullopt, 0, ~std::uint64_t{0}, 7).size(), 7U);
    }
    EXPECT_LE(model.failures().size(), 16U);
    std::uint64_t visited = 0;
    model.for_each_operation(0, 0, ~std::uint64_t{0}, [&](Operation const&) { return ++visited < 100; });
    EXPECT_LE(visited, 100U);
    std::uint64_t last = 0;
    model.for_each_journal_event(0, ~std::uint64_t{0}, [&](flight::Event const& event) {
      EXPECT_GE(event.ticks, last);
      last = event.ticks;
    });
  }
}

}  // namespace
}  // namespace headroom::follow
