// What each policy does about a shortage, of the budget and of the device, at each stage, with counts.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <headroom/fault_resource.hpp>

#include "guards.hpp"

namespace headroom::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

enum class Stage : std::uint8_t { allocate, zero, copy };

// A device that fails one stage of a request so many times, then works.
struct BrokenDevice {
  HostGuard host;
  FaultId fault{};
  Stage stage;
  std::uint64_t checkpoints = 0;
  std::uint64_t checkpoint_failures = 0;

  BrokenDevice(OomPolicy policy, Stage broken, std::uint64_t failures) : host{host_guard(4096, policy)}, stage{broken} {
    const FaultOperation operation = stage == Stage::allocate ? FaultOperation::allocate
                                     : stage == Stage::zero   ? FaultOperation::fill
                                                              : FaultOperation::copy;
    fault = host.resource->faults().add({.operation = operation, .times = failures});
    host.guard.on_oom([this] { ++checkpoints; });
  }
  Result<Bytes> ask(bool hooks = false) {
    const std::vector<std::byte> data(1000);
    if (stage == Stage::copy) return host.guard.safe_alloc_copy(data);
    return hooks ? host.guard.safe_alloc_with_hooks<std::byte>(1000) : host.guard.safe_alloc<std::byte>(1000);
  }
  [[nodiscard]] std::uint64_t failures() const { return host.resource->faults().failures(fault); }
  void expect_idle() const {
    EXPECT_EQ(host.guard.stats().claimed, 0U);
    EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
    expect_clean(host.guard);
  }
};

struct Expected {
  const char* what;
  OomPolicy policy;
  std::uint64_t injected;
  bool granted;
  std::uint64_t failures;  // that the device was made to have, each of them one try
  std::uint64_t recoveries, waits, checkpoints;
};

TEST(GuardPolicy, a_device_without_memory_takes_the_road_of_the_policy_at_each_stage) {
  const Expected kTable[] = {
      {"fail", OomPolicy::fail(), 1, false, 1, 0, 0, 0},
      {"retry, once broken", OomPolicy::retry_after_free(), 1, true, 1, 1, 0, 0},
      {"retry, twice broken", OomPolicy::retry_after_free(), 2, false, 2, 0, 0, 0},
      {"retry, broken for good", OomPolicy::retry_after_free(), kFaultForever, false, 2, 0, 0, 0},
      {"wait, once broken", OomPolicy::wait_and_retry(hours{1}), 1, true, 1, 1, 1, 0},
      {"wait, five times broken", OomPolicy::wait_and_retry(hours{1}), 5, true, 5, 1, 1, 0},
      {"wait for nothing, broken for good", OomPolicy::wait_and_retry(nanoseconds{0}), kFaultForever, false, 2, 0, 1, 0},
      {"checkpoint", OomPolicy::checkpoint_and_fail(), 1, false, 1, 0, 0, 1},
  };
  for (const Stage stage : {Stage::allocate, Stage::zero, Stage::copy}) {
    for (Expected const& row : kTable) {
      SCOPED_TRACE(std::string{row.what} + ", stage " + std::to_string(static_cast<int>(stage)));
      BrokenDevice broken{row.policy, stage, row.injected};
      {
        const auto got = broken.ask();
        ASSERT_EQ(got.has_value(), row.granted);
        if (!row.granted) {
          EXPECT_EQ(got.error().kind, ErrorKind::device_out_of_memory);
        }
      }
      const GuardStats stats = broken.host.guard.stats();
      EXPECT_EQ(broken.failures(), row.failures);
      EXPECT_EQ(stats.recoveries, row.recoveries);
      EXPECT_EQ(stats.waits, row.waits);
      EXPECT_EQ(broken.checkpoints, row.checkpoints);
      EXPECT_EQ(stats.checkpoints, row.checkpoints);
      EXPECT_EQ(stats.refusals, 1U) << "booked once, however often it was tried";
      EXPECT_EQ(broken.host.guard.manager().alloc_count(), 1U);
      broken.expect_idle();
    }
  }
}

TEST(GuardPolicy, follows_the_hooks_for_a_device_without_memory) {
  struct Row {
    OomPolicy policy;
    std::uint64_t injected;
    bool granted;
    std::uint64_t hook_runs, recoveries, checkpoints;
  };
  const Row kTable[] = {
      {OomPolicy::fail(), 2, true, 2, 1, 0},  // the first request, then one try after each hook
      {OomPolicy::fail(), 4, false, 3, 0, 0},
      {OomPolicy::retry_after_free(), 4, true, 3, 1, 0},
      {OomPolicy::retry_after_free(), 5, false, 3, 0, 0},
      {OomPolicy::wait_and_retry(hours{1}), 6, true, 3, 1, 0},
      {OomPolicy::checkpoint_and_fail(), 4, false, 3, 0, 1},
  };
  for (const Stage stage : {Stage::allocate, Stage::zero}) {
    for (Row const& row : kTable) {
      SCOPED_TRACE(row.policy.to_string() + ", " + std::to_string(row.injected));
      BrokenDevice broken{row.policy, stage, row.injected};
      for (const char* name : {"a", "b", "c"}) {
        ASSERT_TRUE(broken.host.guard.register_hook({.name = name, .callback = [](HookContext const&) { return 0U; }}));
      }
      EXPECT_EQ(broken.ask(true).has_value(), row.granted);
      EXPECT_EQ(broken.host.guard.stats().hooks_run, row.hook_runs);
      EXPECT_EQ(broken.host.guard.stats().recoveries, row.recoveries);
      EXPECT_EQ(broken.checkpoints, row.checkpoints);
      broken.expect_idle();
    }
  }
}

TEST(GuardPolicy, ends_the_road_at_an_error_that_no_memory_can_mend) {
  BrokenDevice broken{OomPolicy::wait_and_retry(hours{1}), Stage::allocate, 1};
  broken.host.resource->faults().add(
      {.operation = FaultOperation::allocate, .nth = 2, .kind = ErrorKind::driver, .device_code = 700});
  const auto refused = broken.ask();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory) << "the first error comes out";
  EXPECT_NE(refused.error().message.find("a later try met another error"), std::string::npos) << refused.error().message;
  EXPECT_EQ(broken.host.guard.stats().refusals, 2U) << "this one is news";
  broken.expect_idle();
}

TEST(GuardPolicy, no_further_hook_runs_for_an_error_that_no_memory_can_mend) {
  BrokenDevice broken{OomPolicy::fail(), Stage::allocate, 1};
  broken.host.resource->faults().add(
      {.operation = FaultOperation::allocate, .nth = 2, .kind = ErrorKind::driver, .device_code = 700});
  std::uint64_t calls = 0;
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(broken.host.guard.register_hook({.name = name, .callback = [&](HookContext const&) { return ++calls; }}));
  }
  const auto refused = broken.ask(true);
  ASSERT_FALSE(refused) << "the third try would have found a device that works";
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory) << "the first error comes out";
  EXPECT_NE(refused.error().message.find("a later try met another error"), std::string::npos) << refused.error().message;
  EXPECT_EQ(calls, 1U);
  EXPECT_EQ(broken.host.guard.stats().refusals, 2U);
  broken.expect_idle();
}

TEST(GuardPolicy, other_errors_of_the_device_do_not_take_the_road) {
  for (const OomPolicy policy :
       {OomPolicy::retry_after_free(), OomPolicy::wait_and_retry(hours{1}), OomPolicy::checkpoint_and_fail()}) {
    auto host = host_guard(4096, policy);
    std::uint64_t calls = 0;
    host.guard.on_oom([&] { ++calls; });
    ASSERT_TRUE(host.guard.register_hook({.name = "h", .callback = [&](HookContext const&) { return ++calls; }}));
    host.resource->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
    EXPECT_EQ(host.guard.safe_alloc_with_hooks<std::byte>(100).error().kind, ErrorKind::driver);
    EXPECT_EQ(calls, 0U);
    EXPECT_EQ(host.guard.stats().waits, 0U);
  }
}

// ── budget ──

TEST(GuardPolicy, a_budget_without_room_takes_the_same_road) {
  struct Row {
    OomPolicy policy;
    std::uint64_t waits, checkpoints, failures_after_help;
    const char* told;
  };
  const Row kTable[] = {{OomPolicy::fail(), 0, 0, 0, ""},
                        {OomPolicy::retry_after_free(), 0, 0, 1, "one more try after 0 B came back"},
                        {OomPolicy::wait_and_retry(milliseconds{1}), 1, 0, 1, "a wait of "},
                        {OomPolicy::checkpoint_and_fail(), 0, 1, 1, "the checkpoint callback ran"}};
  for (Row const& row : kTable) {
    SCOPED_TRACE(row.policy.to_string());
    auto host = host_guard(1024, row.policy);
    const auto held = take(host.guard, 1000);
    host.guard.on_oom([] {});
    const auto refused = host.guard.safe_alloc<std::byte>(25);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(refused.error().required, 1025U);
    EXPECT_NE(refused.error().message.find(row.told), std::string::npos) << refused.error().message;
    const GuardStats stats = host.guard.stats();
    EXPECT_EQ(stats.waits, row.waits);
    EXPECT_EQ(stats.checkpoints, row.checkpoints);
    EXPECT_EQ(stats.recoveries, 0U);
    EXPECT_EQ(stats.refusals, 1U);
    EXPECT_EQ(stats.failures_after_help, row.failures_after_help);
    EXPECT_EQ(stats.used, 1000U);
    EXPECT_EQ(host.guard.manager().alloc_count(), 2U);
  }
}

TEST(GuardPolicy, can_be_changed_at_any_time) {
  auto host = host_guard(1024);
  const auto held = take(host.guard, 1024);
  std::uint64_t checkpoints = 0;
  host.guard.on_oom([&] { ++checkpoints; });
  EXPECT_EQ(host.guard.oom_policy(), OomPolicy::fail());
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
  host.guard.set_oom_policy(OomPolicy::checkpoint_and_fail());
  EXPECT_EQ(host.guard.oom_policy(), OomPolicy::checkpoint_and_fail());
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
  host.guard.set_oom_policy(OomPolicy::fail());
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
  EXPECT_EQ(checkpoints, 1U);
}

// A layer whose budget counts what the device below it caches: its "no" is no shortage of the device, for which the manager would trim
// by itself.
class CountsCached final : public ResourceDecorator {
public:
  CountsCached(std::shared_ptr<HostResource> host, std::uint64_t limit)
      : ResourceDecorator{InnerResource::check(host, "counts_cached").value()}, host_{std::move(host)}, limit_{limit} {}

  Result<Block> allocate(AllocRequest const& request) override {
    auto const usage = host_->usage();
    if (usage.live + usage.cached + request.bytes > limit_) {
      ++refusals;
      return headroom::fail(ErrorKind::over_budget, Layer::resource, "caches included, that is too much");
    }
    return ResourceDecorator::allocate(request);
  }
  std::string_view name() const noexcept override { return "counts_cached"; }

  int refusals = 0;

private:
  std::shared_ptr<HostResource> host_;
  std::uint64_t limit_;
};

// S16: cached memory that nothing gives back: 512 of 1024 in the cache, and a request of 768.
TEST(GuardPolicy, retry_after_free_trims_caches_first) {
  constexpr std::uint64_t kMiB = 1 << 20;
  for (auto const policy : {OomPolicy::fail(), OomPolicy::retry_after_free()}) {
    SCOPED_TRACE(policy.to_string());
    auto const host =
        HostResource::create({.total_bytes = 4096 * kMiB, .release_threshold_bytes = 1024 * kMiB, .touch_memory = false}).value();
    auto const top = std::make_shared<CountsCached>(host, 1024 * kMiB);
    auto const guard = MemoryGuardBuilder(Device::custom("host", top, 0, {}, DeviceKind::host).value())
                           .budget_bytes(1024 * kMiB)
                           .oom_policy(policy)
                           .build()
                           .value();
    static_cast<void>(take(guard, 512 * kMiB));
    ASSERT_EQ(host->usage().cached, 512 * kMiB);
    bool const retries = policy == OomPolicy::retry_after_free();
    EXPECT_EQ(guard.safe_alloc<std::byte>(768 * kMiB).has_value(), retries);
    EXPECT_EQ(top->refusals, 1) << "the retry comes after the trim";
    EXPECT_EQ(host->usage().cached, retries ? 768 * kMiB : 512 * kMiB);
    EXPECT_EQ(guard.stats().recoveries, retries ? 1U : 0U);
  }
}

// The device's own shortage needs no policy: the manager trims before it believes it, and the guard hears of no refusal.
TEST(GuardPolicy, a_cache_on_a_full_device_is_trimmed_without_one) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const HostOptions kCaching{.total_bytes = 1024 * kMiB, .release_threshold_bytes = 1024 * kMiB, .touch_memory = false};
  auto host = host_guard(1024 * kMiB, OomPolicy::fail(), kCaching);
  static_cast<void>(take(host.guard, 512 * kMiB));
  ASSERT_EQ(host.resource->usage().cached, 512 * kMiB);
  EXPECT_TRUE(host.guard.safe_alloc<std::byte>(768 * kMiB));
  EXPECT_EQ(host.guard.stats().refusals, 0U);
  EXPECT_EQ(host.guard.stats().recoveries, 0U);
}

TEST(GuardPolicy, decorators_pass_a_trim_on) {
  const auto host = HostResource::create({.total_bytes = 4096, .release_threshold_bytes = 4096, .touch_memory = false}).value();
  auto stack = FaultResource::create(host).value();
  const auto block = stack->allocate({.bytes = 1024}).value();
  ASSERT_TRUE(stack->deallocate(block));
  EXPECT_EQ(host->usage().cached, 1024U);
  EXPECT_EQ(static_cast<DeviceResource&>(*stack).trim(256).value(), 768U);
  EXPECT_EQ(host->usage().cached, 256U);
}

TEST(GuardPolicy, words_hold_every_policy) {
  for (const OomPolicy policy : {OomPolicy::fail(), OomPolicy::retry_after_free(), OomPolicy::checkpoint_and_fail(),
                                 OomPolicy::wait_and_retry(milliseconds{200}), OomPolicy::wait_and_retry(nanoseconds::max())}) {
    EXPECT_EQ(OomPolicy::from_word(policy.word()), policy);
  }
  EXPECT_EQ(OomPolicy::wait_and_retry(milliseconds{200}).timeout(), milliseconds{200});
  EXPECT_EQ(OomPolicy::wait_and_retry(milliseconds{-5}).timeout(), nanoseconds{0});
  EXPECT_EQ(OomPolicy::wait_and_retry(nanoseconds::max()).kind(), OomPolicy::Kind::wait_and_retry);
  EXPECT_EQ(OomPolicy::fail().timeout(), nanoseconds{0});
}

// ── what is written down ──

std::vector<std::pair<flight::PolicyStep, OomPolicy::Kind>> steps_of(EventWatch& watch, MemoryGuard const& guard) {
  std::vector<std::pair<flight::PolicyStep, OomPolicy::Kind>> steps;
  for (auto const& event : watch.of(guard.manager(), flight::EventKind::policy)) {
    steps.emplace_back(event.policy_step(), static_cast<OomPolicy::Kind>(event.policy_kind()));
  }
  return steps;
}

TEST(GuardRecords, each_step_of_the_policy_is_an_event_and_counted_for_readers) {
  using Step = flight::PolicyStep;
  using Kind = OomPolicy::Kind;
  using Steps = std::vector<std::pair<Step, Kind>>;
  BrokenDevice recovered{OomPolicy::retry_after_free(), Stage::allocate, 1};
  EventWatch watch;
  EXPECT_TRUE(recovered.ask());
  EXPECT_EQ(steps_of(watch, recovered.host.guard),
            (Steps{{Step::retried, Kind::retry_after_free}, {Step::recovered, Kind::retry_after_free}}));
  const auto tallies = snapshot_of(recovered.host.guard.manager()).guard;
  EXPECT_EQ(tallies.recoveries, (std::array<std::uint64_t, 4>{0, 1, 0, 0}));
  EXPECT_EQ(tallies.policy_runs, (std::array<std::uint64_t, 4>{0, 1, 0, 0}));

  BrokenDevice failed{OomPolicy::checkpoint_and_fail(), Stage::allocate, 1};
  EventWatch second;
  EXPECT_FALSE(failed.ask());
  const auto events = second.of(failed.host.guard.manager(), flight::EventKind::policy);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].policy_step(), Step::begun);
  EXPECT_EQ(events[0].policy_begins(), Step::checkpoint);
  EXPECT_EQ(events[0].words[3], 0U);
  EXPECT_EQ(events[0].words[4], 1000U);
  EXPECT_EQ(events[0].error_kind(), ErrorKind::device_out_of_memory);
  EXPECT_EQ(events[1].policy_step(), Step::checkpoint);
  EXPECT_EQ(events[2].policy_step(), Step::gave_up);
  EXPECT_EQ(events[2].words[4], 1000U);
  EXPECT_EQ(events[2].error_kind(), ErrorKind::device_out_of_memory);
  const auto snapshot = snapshot_of(failed.host.guard.manager());
  EXPECT_EQ(snapshot.guard.checkpoints, 1U);
  EXPECT_EQ(snapshot.guard.gave_up, 1U);

  auto waiting = host_guard(100, OomPolicy::wait_and_retry(milliseconds{1}));
  const auto held = take(waiting.guard, 100);
  EventWatch third;
  EXPECT_FALSE(waiting.guard.safe_alloc<std::byte>(1));
  const auto of_wait = third.of(waiting.guard.manager(), flight::EventKind::policy);
  ASSERT_EQ(of_wait.size(), 3U);
  EXPECT_EQ(of_wait[0].policy_begins(), Step::waited);
  EventWatch fourth;
  EXPECT_FALSE(waiting.guard.safe_alloc<std::byte>(1));
  EXPECT_EQ(
      steps_of(fourth, waiting.guard),
      (Steps{{Step::begun, Kind::wait_and_retry}, {Step::waited, Kind::wait_and_retry}, {Step::gave_up, Kind::wait_and_retry}}));
  EXPECT_EQ(snapshot_of(waiting.guard.manager()).guard.policy_waits, 2U);
  EXPECT_GE(snapshot_of(waiting.guard.manager()).guard.policy_wait_ns, 2'000'000U) << "each from the refusal to its deadline";
}

TEST(GuardRecords, a_request_for_which_nothing_was_tried_leaves_its_refusal_alone) {
  auto host = host_guard(100);
  EventWatch watch;
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(101));
  EXPECT_EQ(watch.count(host.guard.manager(), flight::EventKind::policy), 0U);
  EXPECT_EQ(host.guard.stats().failures_after_help, 0U);
}

}  // namespace
}  // namespace headroom::test
