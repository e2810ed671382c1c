// The budget of a manager that a guard is built over: changed once nothing can fail any more.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <headroom/resource_decorator.hpp>

#include "base/test_point.hpp"
#include "guards.hpp"

namespace headroom::test {
namespace {

constexpr HostOptions kSmall{.total_bytes = 8192, .touch_memory = false};

// What others can see of a budget: every limit that the device was asked under, and what listeners heard.
struct Watched {
  HostManager host = host_manager(MemoryBudget::with_limit(100), kSmall);
  GpuMemoryManager& manager = host.manager;
  MemoryGuard watcher = MemoryGuardBuilder(host.manager).build().value();
  std::vector<std::optional<std::uint64_t>> heard;
  Bytes held = manager.alloc<std::byte>(60).value();
  Watched() {
    EXPECT_TRUE(watcher.add_pressure_listener([this](PressureChange const& change) { heard.push_back(change.budget_bytes); }));
  }
  MemoryGuardBuilder builder() const { return MemoryGuardBuilder{host.manager}; }
  void break_the_device() { host.resource->faults().add({.operation = FaultOperation::allocate, .times = kFaultForever}); }
};

TEST(GuardBuild, that_the_device_refuses_never_changed_the_budget) {
  for (const std::uint64_t wanted : {std::uint64_t{2000}, std::uint64_t{70}, std::uint64_t{0}}) {
    SCOPED_TRACE(wanted);
    Watched watched;
    watched.break_the_device();
    const std::uint64_t transitions = watched.manager.stats().pressure_transitions;
    const auto built = watched.builder().budget_bytes(wanted).reserve_bytes(50).build();
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, ErrorKind::device_out_of_memory);
    EXPECT_EQ(watched.manager.budget(), MemoryBudget::with_limit(100));
    EXPECT_TRUE(watched.heard.empty()) << "nobody heard of the budget of a guard that there never was";
    EXPECT_EQ(watched.manager.stats().pressure_transitions, transitions);
  }
}

TEST(GuardBuild, whose_reservation_does_not_fit_the_wanted_budget_fails_by_its_figures_and_changes_nothing) {
  for (const std::uint64_t wanted : {std::uint64_t{70}, std::uint64_t{150}}) {
    SCOPED_TRACE(wanted);
    Watched watched;
    const auto built = watched.builder()
                           .budget_bytes(wanted)
                           .reserve_bytes(wanted - 65)
                           .count_reservation_against_budget(true)
                           .emergency_reserve_bytes(6)
                           .build();
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(built.error().limit, wanted);
    EXPECT_EQ(built.error().current, 60U);
    EXPECT_EQ(built.error().requested, wanted - 59);
    EXPECT_EQ(built.error().required, wanted + 1);
    EXPECT_EQ(watched.manager.budget(), MemoryBudget::with_limit(100));
    EXPECT_EQ(watched.manager.claimed_bytes(), 60U);
    EXPECT_TRUE(watched.heard.empty());
  }
}

TEST(GuardBuild, claims_under_the_present_budget_what_fits_there_and_changes_it_then) {
  for (const std::uint64_t wanted : {std::uint64_t{80}, std::uint64_t{2000}}) {
    Watched watched;
    const auto guard = watched.builder()
                           .budget_bytes(wanted)
                           .reserve_bytes(15)
                           .count_reservation_against_budget(true)
                           .emergency_reserve_bytes(5)
                           .build();
    ASSERT_TRUE(guard);
    EXPECT_EQ(guard->budget(), wanted);
    EXPECT_EQ(guard->stats().claimed, 80U);
  }
}

TEST(GuardBuild, raises_the_budget_first_where_only_the_wanted_one_has_room) {
  Watched watched;
  {
    const auto guard = watched.builder().budget_bytes(2000).reserve_bytes(1900).count_reservation_against_budget(true).build();
    ASSERT_TRUE(guard);
    EXPECT_EQ(guard->stats().claimed, 1960U);
    EXPECT_EQ(guard->stats().refusals, 0U) << "it was not tried where it could not be";
  }
  watched.manager.set_budget(MemoryBudget::with_limit(100));
  watched.break_the_device();
  EXPECT_FALSE(watched.builder().budget_bytes(2000).reserve_bytes(1900).count_reservation_against_budget(true).build());
  EXPECT_EQ(watched.manager.budget(), MemoryBudget::with_limit(100)) << "and puts it back when the device refuses";
}

// Somebody else changes the budget while the device is asked for the reservation.
class Meddling final : public ResourceDecorator {
public:
  using ResourceDecorator::ResourceDecorator;
  std::function<void()> meddle;
  Result<Block> allocate(AllocRequest const& request) override {
    if (!meddle) return ResourceDecorator::allocate(request);
    std::exchange(meddle, nullptr)();
    return fail(ErrorKind::device_out_of_memory, Layer::driver, "no more");
  }
};

TEST(GuardBuild, that_fails_overwrites_no_budget_that_somebody_else_set_meanwhile) {
  for (const bool counted : {true, false}) {
    auto resource = std::make_shared<Meddling>(InnerResource::check(HostResource::create(kSmall).value(), "meddling").value());
    auto manager = GpuMemoryManager::create(Device::custom("meddled", resource).value(), MemoryBudget::with_limit(100)).value();
    std::uint64_t granted = 0;
    resource->meddle = [&] {
      granted = manager.alloc<std::byte>(1000) ? 1000 : 0;
      manager.set_budget(MemoryBudget::with_limit(777));
    };
    // Counted it fits only under the new one, which is then in force meanwhile.
    const auto built =
        MemoryGuardBuilder(manager).budget_bytes(2000).reserve_bytes(500).count_reservation_against_budget(counted).build();
    EXPECT_FALSE(built);
    EXPECT_EQ(manager.budget(), MemoryBudget::with_limit(777));
    EXPECT_EQ(granted, counted ? 1000U : 0U) << "the budget of a build that fails is nobody's";
  }
}

TEST(GuardBuild, a_callback_limit_without_end_is_one) {
  auto guard = MemoryGuardBuilder(host_device({.touch_memory = false}).value())
                   .budget_bytes(1000)
                   .oom_policy(OomPolicy::checkpoint_and_fail())
                   .callback_limit(std::chrono::nanoseconds::max())
                   .build()
                   .value();
  const auto held = take(guard, 1000);
  std::atomic<bool> running{false}, go_on{false};
  guard.on_oom([&] {
    running = true;
    wait_until([&] { return go_on.load(); });
  });
  std::thread first{[&] { EXPECT_FALSE(guard.safe_alloc<std::byte>(1)); }};
  wait_until([&] { return running.load(); });
  static std::atomic<bool> sleeps;
  sleeps = false;
  test_point_handler.store([](TestPoint at) noexcept {
    if (at == TestPoint::wait_before_sleep) sleeps = true;
  });
  std::string message;
  std::atomic<bool> ended{false};
  std::thread second{[&] {
    message = guard.safe_alloc<std::byte>(1).error().message;
    ended = true;
  }};
  // A deadline that wrapped around would have passed: no sleep.
  wait_until([&] { return sleeps.load() || ended.load(); });
  go_on = true;
  first.join();
  second.join();
  test_point_handler.store(nullptr);
  EXPECT_NE(message.find("a run of the checkpoint callback was shared"), std::string::npos) << message;
}

}  // namespace
}  // namespace headroom::test
