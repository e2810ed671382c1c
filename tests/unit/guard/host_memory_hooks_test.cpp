// Hooks and listeners without host memory, at the first, the second … `new` of a call: no exception leaves, nothing ends the process,
// and nothing is left behind.
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "hook_rounds.hpp"
#include "host_memory.hpp"
#include "pressure_log.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMoreThanAnyNeeds = 64;
const std::string kName = "a name that is longer than what any string keeps in itself";

struct Outcome {
  bool threw = false;
  std::optional<ErrorKind> error{};
};

// What comes of a call that returns a Result, when the system has memory for so many `new` and no more.
template <class Call>
Outcome with_memory_for(std::uint64_t news, Call&& call) {
  Outcome outcome;
  try {
    const HostMemoryEnds ends{news};
    auto result = call();
    if (!result) outcome.error = result.error().kind;
  } catch (std::bad_alloc const&) {
    outcome.threw = true;
  }
  return outcome;
}

class HooksWithoutHostMemory : public Hooks {
protected:
  [[nodiscard]] OomHook held_hook() {
    return hook(kName, [this, kept = alive] { return called.emplace_back("held"), 0; });
  }
  [[nodiscard]] std::size_t shown_here() const {
    const auto hooks = flight::FlightView::of_this_process().value().hooks();
    return static_cast<std::size_t>(
        std::ranges::count_if(hooks, [&](auto const& hook) { return hook.ledger_id == ledger.directory_id(); }));
  }
  const std::shared_ptr<int> alive = std::make_shared<int>(0);
};

TEST_F(HooksWithoutHostMemory, registering_succeeds_or_leaves_nothing_behind) {
  for (std::uint64_t news = 0; news < kMoreThanAnyNeeds; ++news) {
    OomHook given = held_hook();
    const Outcome outcome = with_memory_for(news, [&] { return registry.add(std::move(given)); });
    EXPECT_FALSE(outcome.threw) << "at new number " << news;
    if (!outcome.threw && !outcome.error) {
      EXPECT_GT(news, 0U);
      EXPECT_EQ(registry.size(), 1U);
      EXPECT_EQ(shown_here(), 1U);
      return;
    }
    if (!outcome.threw) {
      EXPECT_EQ(outcome.error, ErrorKind::io) << "at new number " << news;
    }
    given = {};
    EXPECT_EQ(registry.size(), 0U);
    EXPECT_EQ(shown_here(), 0U) << "at new number " << news;
    EXPECT_EQ(alive.use_count(), 1) << "at new number " << news;
  }
  FAIL() << "it never succeeds";
}

TEST_F(HooksWithoutHostMemory, removing_always_succeeds) {
  for (std::uint64_t news = 0; news < 8; ++news) {
    add(held_hook());
    bool removed = false;
    {
      const HostMemoryEnds ends{news};
      removed = registry.remove(kName);
    }
    EXPECT_TRUE(removed) << "at new number " << news;
    EXPECT_EQ(registry.size(), 0U);
    round_for(4096);
    EXPECT_TRUE(called.empty()) << "at new number " << news;
    // What the list could not let go of without memory goes with its next change.
    add_noting("other");
    EXPECT_EQ(alive.use_count(), 1) << "at new number " << news;
    EXPECT_EQ(shown_here(), 1U);
    EXPECT_TRUE(registry.remove("other"));
  }
}

TEST_F(HooksWithoutHostMemory, bad_arguments_are_refused_as_ever) {
  for (std::uint64_t news = 0; news < 4; ++news) {
    OomHook nameless = hook("", [] { return 0; });
    OomHook empty;
    empty.name = kName;
    OomHook hasty = held_hook();
    hasty.time_limit = std::chrono::nanoseconds{0};
    for (OomHook* bad : {&nameless, &empty, &hasty}) {
      const Outcome outcome = with_memory_for(news, [&] { return registry.add(std::move(*bad)); });
      EXPECT_FALSE(outcome.threw) << "at new number " << news;
      EXPECT_EQ(outcome.error, ErrorKind::invalid_argument);
    }
  }
  EXPECT_EQ(registry.size(), 0U);
}

TEST_F(Listeners, without_host_memory_are_added_or_leave_nothing_behind) {
  const auto alive = std::make_shared<int>(0);
  for (std::uint64_t news = 0; news < kMoreThanAnyNeeds; ++news) {
    PressureListener listener = [kept = alive](PressureChange const&) {};
    std::optional<ListenerId> id;
    const Outcome outcome = with_memory_for(news, [&] {
      auto result = listeners.add(std::move(listener));
      if (result) id = *result;
      return result;
    });
    EXPECT_FALSE(outcome.threw) << "at new number " << news;
    if (id) {
      EXPECT_GT(news, 0U);
      EXPECT_TRUE(listeners.remove(*id));
      EXPECT_EQ(alive.use_count(), 1);
      return;
    }
    if (!outcome.threw) {
      EXPECT_EQ(outcome.error, ErrorKind::io) << "at new number " << news;
    }
    listener = {};
    EXPECT_EQ(listeners.size(), 0U);
    EXPECT_EQ(alive.use_count(), 1) << "at new number " << news;
  }
  FAIL() << "it never succeeds";
}

TEST_F(Listeners, without_host_memory_an_empty_function_is_refused_as_ever) {
  const Outcome outcome = with_memory_for(0, [&] { return listeners.add({}); });
  EXPECT_FALSE(outcome.threw);
  EXPECT_EQ(outcome.error, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom::test
