// Without host memory: whichever allocation fails, no exception leaves a door of the guard, nothing ends the process, the books are
// right, and what failed left no trace.
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/test_point.hpp"
#include "guards.hpp"
#include "host_memory.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMostAllocations = 40;

// `call` with so many allocations that succeed. True: no exception came out.
template <class Call>
[[nodiscard]] bool survives(std::uint64_t allocations, Call&& call) {
  try {
    const HostMemoryEnds ends{allocations};
    call();
    return true;
  } catch (...) {
    return false;
  }
}

struct Outcome {
  std::optional<ErrorKind> kind;
  std::optional<std::uint64_t> requested, limit;
  explicit Outcome(Error const& error) : kind{error.kind}, requested{error.requested}, limit{error.limit} {}
  Outcome() = default;
};

TEST(GuardWithoutHostMemory, a_refusal_keeps_kind_and_figures_under_every_policy) {
  for (const OomPolicy policy : {OomPolicy::fail(), OomPolicy::retry_after_free(), OomPolicy::checkpoint_and_fail(),
                                 OomPolicy::wait_and_retry(std::chrono::nanoseconds{0})}) {
    for (std::uint64_t n = 0; n <= kMostAllocations; ++n) {
      SCOPED_TRACE(policy.to_string() + ", " + std::to_string(n) + " allocations");
      auto host = host_guard(1000, policy);
      host.guard.on_oom([] {});
      const auto held = take(host.guard, 1000);
      EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));  // this thread and this place are known from here on
      Outcome outcome;
      EXPECT_TRUE(survives(n, [&] {
        const auto refused = host.guard.safe_alloc<std::byte>(1);
        if (!refused) outcome = Outcome{refused.error()};
      }));
      EXPECT_EQ(outcome.kind, ErrorKind::over_budget);
      EXPECT_EQ(outcome.requested, 1U);
      EXPECT_EQ(outcome.limit, 1000U);
      EXPECT_EQ(host.guard.stats().claimed, 1000U);
      expect_clean(host.guard);
    }
  }
}

// The device's refusal has words, which the second error would need memory for.
TEST(GuardWithoutHostMemory, a_refusal_with_words_is_copied_without_them) {
  for (std::uint64_t n = 0; n <= kMostAllocations; ++n) {
    SCOPED_TRACE(n);
    auto host = host_guard(1000, OomPolicy::retry_after_free());
    host.resource->faults().add({.operation = FaultOperation::allocate,
                                 .times = kFaultForever,
                                 .message = "words that are longer than any string keeps inside itself"});
    EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
    bool refused = false;
    EXPECT_TRUE(survives(n, [&] { refused = !host.guard.safe_alloc<std::byte>(1); }));
    EXPECT_TRUE(refused);
    EXPECT_EQ(host.guard.stats().claimed, 0U);
    expect_clean(host.guard);
  }
}

TEST(GuardWithoutHostMemory, memory_that_could_not_be_filled_goes_back) {
  for (std::uint64_t n = 0; n <= kMostAllocations; ++n) {
    SCOPED_TRACE(n);
    auto host = host_guard(4000);
    host.resource->faults().add(
        {.operation = FaultOperation::fill, .times = kFaultForever, .kind = ErrorKind::driver, .device_code = 1});
    EXPECT_FALSE(host.guard.safe_alloc<std::byte>(100));
    bool refused = false;
    EXPECT_TRUE(survives(n, [&] { refused = !host.guard.safe_alloc<std::byte>(100); }));
    EXPECT_TRUE(refused);
    EXPECT_EQ(host.guard.stats().claimed, 0U);
    EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
    expect_clean(host.guard);
  }
}

// Inside a round, which must not throw: no memory from the moment that the refusal of the request is booked.
TEST(GuardWithoutHostMemory, a_try_inside_a_round_of_hooks_ends_with_its_error) {
  static thread_local bool in_round = false;
  in_round = false;
  auto host = host_guard(4000);
  Bytes held = take(host.guard, 4000);
  ASSERT_TRUE(host.guard.register_hook({.name = "h", .callback = [&](HookContext const&) {
                                          held = {};
                                          host.resource->faults().add(
                                              {.operation = FaultOperation::fill, .kind = ErrorKind::driver, .device_code = 1});
                                          in_round = true;
                                          return 0U;
                                        }}));
  test_point_handler.store([](TestPoint at) noexcept {
    if (in_round && at == TestPoint::refusal_before_record) host_allocations_left = 0;
  });
  auto refused = host.guard.safe_alloc_with_hooks<std::byte>(100);
  host_allocations_left = kEnoughHostMemory;
  test_point_handler.store(nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget) << "the first one";
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  EXPECT_EQ(host.guard.stats().hooks_run, 1U);
  expect_clean(host.guard);
}

TEST(GuardWithoutHostMemory, a_foreign_buffer_is_refused_and_stays_the_callers) {
  for (std::uint64_t n = 0; n <= kMostAllocations; ++n) {
    SCOPED_TRACE(n);
    auto host = host_guard(1000);
    auto other = host_guard(1000);
    auto buffer = take(other.guard, 100);
    std::optional<ErrorKind> kind;
    EXPECT_TRUE(survives(n, [&] { kind = host.guard.free(std::move(buffer)).error().kind; }));
    EXPECT_EQ(kind, ErrorKind::wrong_owner);
    EXPECT_EQ(buffer.size_bytes(), 100U);
    EXPECT_EQ(other.guard.stats().claimed, 100U);
    expect_clean(other.guard);
  }
}

TEST(GuardWithoutHostMemory, a_callback_that_finds_no_place_leaves_the_one_before) {
  bool failed = false;
  for (std::uint64_t n = 0; n <= 4; ++n) {
    SCOPED_TRACE(n);
    auto host = host_guard(1000, OomPolicy::checkpoint_and_fail());
    std::uint64_t old_runs = 0, new_runs = 0;
    ASSERT_TRUE(host.guard.on_oom([&] { ++old_runs; }));
    std::function<void()> next = [&] { ++new_runs; };
    Result<void> set;
    EXPECT_TRUE(survives(n, [&] { set = host.guard.on_oom(std::move(next)); }));
    if (!set) {
      EXPECT_EQ(set.error().kind, ErrorKind::io);
      failed = true;
    }
    EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1001));
    EXPECT_EQ(old_runs, set ? 0U : 1U);
    EXPECT_EQ(new_runs, set ? 1U : 0U);
  }
  EXPECT_TRUE(failed);
}

TEST(GuardWithoutHostMemory, a_listener_that_was_not_added_never_hears_anything) {
  std::uint64_t failures = 0;
  for (std::uint64_t round = 0; round <= 25; ++round) {
    SCOPED_TRACE(round);
    const std::uint64_t n = round / 2;
    auto host = host_guard(1000);
    // With one that was there before, and as the first of its ledger.
    if (round % 2 == 0) {
      ASSERT_TRUE(host.guard.add_pressure_listener([](PressureChange const&) {}));
    }
    std::uint64_t calls = 0;
    bool added = false;
    {
      const auto second = MemoryGuardBuilder(host.guard.manager()).build().value();
      PressureListener listener = [&](PressureChange const&) { ++calls; };
      std::optional<ErrorKind> kind;
      EXPECT_TRUE(survives(n, [&] {
        const auto id = second.add_pressure_listener(std::move(listener));
        added = id.has_value();
        if (!added) kind = id.error().kind;
      }));
      if (!added) {
        ++failures;
        EXPECT_EQ(kind, ErrorKind::io);
      }
      const auto held = take(host.guard, 1000);
      EXPECT_EQ(calls != 0, added);
    }
    calls = 0;
    const auto held = take(host.guard, 1000);
    EXPECT_EQ(calls, 0U) << "its guard is gone";
  }
  EXPECT_GE(failures, 1U);
}

TEST(GuardWithoutHostMemory, a_guard_that_cannot_be_built_leaves_no_trace) {
  {
    // What is made once for the whole program: the reservation's tag.
    auto host = host_manager(MemoryBudget::with_limit(1000));
    ASSERT_TRUE(MemoryGuardBuilder(host.manager).reserve_bytes(1).count_reservation_against_budget(true).build());
  }
  std::uint64_t failures = 0;
  for (std::uint64_t n = 0; n <= 12; ++n) {
    SCOPED_TRACE(n);
    auto host = host_manager(MemoryBudget::with_limit(100));
    std::optional<MemoryGuard> guard;
    std::optional<ErrorKind> kind;
    MemoryGuardBuilder builder{host.manager};
    builder.budget_bytes(2000).reserve_bytes(50).count_reservation_against_budget(true).emergency_reserve_bytes(10);
    EXPECT_TRUE(survives(n, [&] {
      const auto built = builder.build();
      if (built) guard = *built;
      if (!built) kind = built.error().kind;
    }));
    if (!guard) {
      ++failures;
      EXPECT_EQ(kind, ErrorKind::io);
      EXPECT_EQ(host.manager.budget(), MemoryBudget::with_limit(100));
      EXPECT_EQ(host.manager.claimed_bytes(), 0U);
      EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
    }
    guard.reset();
    EXPECT_EQ(host.manager.claimed_bytes(), 0U);
    EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
  }
  EXPECT_GE(failures, 1U);
  const auto negative = MemoryGuardBuilder(null_device().value()).callback_limit(std::chrono::nanoseconds{-1});
  std::optional<ErrorKind> kind;
  EXPECT_TRUE(survives(0, [&] { kind = negative.build().error().kind; })) << "bad input needs no memory either";
  EXPECT_EQ(kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom::test
