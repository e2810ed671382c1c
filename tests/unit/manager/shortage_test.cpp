// A device without room: frees that are pending on streams are reaped and waited for before a request is refused.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/logging_resource.hpp>

#include "device_budgets.hpp"
#include "fake_stack.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
const HostOptions kTight{.total_bytes = kMiB, .touch_memory = false, .stream_ordered = true};

void loop_at_the_limit(GpuMemoryManager& manager, std::uint64_t rounds) {
  std::uint64_t refused = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (!manager.alloc<std::byte>(kMiB)) ++refused;
  }
  EXPECT_EQ(refused, 0U) << "of " << rounds << " requests that always fit once the free before them is done";
  EXPECT_EQ(manager.stats().refusals, 0U);
  EXPECT_EQ(manager.stats().allocations, rounds);
  EXPECT_EQ(manager.peak_bytes(), kMiB);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Shortage, a_tight_loop_at_exactly_the_limit_is_never_refused) {
  auto host = host_manager(MemoryBudget::with_limit(kMiB), kTight);
  loop_at_the_limit(host.manager, scaled(1'000'000));
}

TEST(Shortage, a_tight_loop_through_a_runtime_is_never_refused) {
  FakeRuntime fake{{}, kTight};
  auto manager = fake.manager(MemoryBudget::with_limit(kMiB));
  loop_at_the_limit(manager, scaled(1'000'000));
}

// The usual stack: the account is the limit, the device below has room enough; and both at the same byte.
TEST(Shortage, a_tight_loop_through_a_device_budget_of_one_block_is_never_refused) {
  for (const std::uint64_t device_bytes : {4 * kMiB, kMiB}) {
    auto host = HostResource::create({.total_bytes = device_bytes, .touch_memory = false, .stream_ordered = true}).value();
    const auto device = host_device_over(host).value();
    auto budget =
        GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kMiB), LoggingResource::create(host).value()).value();
    auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(kMiB),
                                                  DeviceRuntime::create(device, {.stack = budget}).value())
                       .value();
    loop_at_the_limit(manager, scaled(1'000'000));
    EXPECT_EQ(budget->account().stats().refusals, 0U);
    EXPECT_EQ(budget->account().peak_bytes(), kMiB);
    ASSERT_TRUE(manager.reap_pending_deallocations());
    expect_empty(budget->account());
    EXPECT_EQ(host->bytes_outstanding(), 0U);
  }
}

TEST(Shortage, a_tight_loop_of_reservations_of_a_device_budget_is_never_refused) {
  auto host = HostResource::create(kTight).value();
  const auto device = host_device_over(host).value();
  auto budget = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kMiB)).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(kMiB),
                                                DeviceRuntime::create(device, {.stack = budget}).value())
                     .value();
  const std::uint64_t rounds = scaled(100'000);
  std::uint64_t refused = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto reservation = manager.reserve_bytes(kMiB);
    if (!reservation || !reservation->alloc<std::byte>(kMiB / 2) || !reservation->alloc<std::byte>(kMiB / 2)) ++refused;
  }
  EXPECT_EQ(refused, 0U) << "of " << rounds;
  ASSERT_TRUE(manager.reap_pending_deallocations());
  expect_empty(budget->account());
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(Shortage, a_tight_loop_of_reservations_is_never_refused) {
  FakeRuntime fake{{.limit = kMiB}, kTight};
  auto manager = fake.manager(MemoryBudget::with_limit(kMiB));
  const std::uint64_t rounds = scaled(10'000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto reservation = manager.reserve_bytes(kMiB).value();
    ASSERT_TRUE(reservation.alloc<std::byte>(kMiB / 2));
    ASSERT_TRUE(reservation.alloc<std::byte>(kMiB / 2));
  }
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(Shortage, waits_for_no_more_frees_than_it_needs) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  {
    std::vector<TrackedBuffer<std::byte>> quarters;
    for (int i = 0; i < 4; ++i) quarters.push_back(host.manager.alloc<std::byte>(kMiB / 4).value());
  }
  EXPECT_EQ(host.resource->usage().pending_frees, 4U);
  auto half = host.manager.alloc<std::byte>(kMiB / 2);
  EXPECT_TRUE(half);
  EXPECT_EQ(host.resource->usage().pending_frees, 2U);
}

TEST(Shortage, finished_frees_are_taken_without_waiting) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  ASSERT_TRUE(host.manager.alloc<std::byte>(kMiB).value().release());
  host.resource->advance(std::chrono::seconds{1});
  const auto before = host.resource->now();
  EXPECT_TRUE(host.manager.alloc<std::byte>(kMiB));
  EXPECT_EQ(host.resource->now(), before) << "the clock was not moved by anyone who waits";
}

TEST(Shortage, what_pending_frees_cannot_make_room_for_is_refused_once_with_what_was_tried) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  auto held = host.manager.alloc<std::byte>(kMiB / 2).value();
  ASSERT_TRUE(host.manager.alloc<std::byte>(kMiB / 4).value().release());
  EventWatch events;
  auto refused = host.manager.alloc<std::byte>(kMiB / 2 + 256);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().device_free, kMiB / 2) << "as the device is after reaping";
  EXPECT_NE(refused.error().message.find("256 KiB of pending frees came back"), std::string::npos) << refused.error().message;
  EXPECT_EQ(host.manager.stats().refusals, 1U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 1U);
  EXPECT_EQ(host.manager.claimed_bytes(), kMiB / 2);
}

TEST(Shortage, a_request_above_the_whole_device_waits_for_nothing) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  ASSERT_TRUE(host.manager.alloc<std::byte>(kMiB).value().release());
  EXPECT_FALSE(host.manager.alloc<std::byte>(kMiB + 1));
  EXPECT_EQ(host.resource->usage().pending_frees, 1U);
}

TEST(Shortage, a_device_with_nothing_pending_is_asked_once) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = kMiB, .touch_memory = false});
  const auto rule = host.resource->faults().add(
      {.operation = FaultOperation::allocate, .times = kFaultForever, .kind = ErrorKind::device_out_of_memory});
  EXPECT_FALSE(host.manager.alloc<std::byte>(100));
  EXPECT_EQ(host.resource->faults().failures(rule), 1U);
}

TEST(Shortage, another_failure_than_shortage_is_not_reaped_for) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  ASSERT_TRUE(host.manager.alloc<std::byte>(kMiB).value().release());
  host.resource->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver});
  EXPECT_FALSE(host.manager.alloc<std::byte>(100));
  EXPECT_EQ(host.resource->usage().pending_frees, 1U);
}

// A shortage that turns into another failure while frees are waited for ends there, with that failure.
TEST(Shortage, a_failure_met_while_waiting_is_the_answer) {
  auto host = host_manager(MemoryBudget::unlimited(), kTight);
  ASSERT_TRUE(host.manager.alloc<std::byte>(kMiB).value().release());
  host.resource->faults().add({.operation = FaultOperation::allocate, .nth = 2, .kind = ErrorKind::driver, .device_code = 700});
  auto refused = host.manager.alloc<std::byte>(kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
}

// As many threads as blocks fit: whoever is short finds what others freed, or what they reaped in its place.
TEST(Shortage, threads_that_reap_for_each_other_keep_the_books) {
  constexpr std::uint64_t kBlock = kMiB / 4;
  auto host = host_manager(MemoryBudget::with_limit(kMiB), kTight);
  const std::uint64_t rounds = scaled(20'000);
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, manager = host.manager]() mutable {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        if (!manager.alloc<std::byte>(kBlock)) ++refused;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(host.manager.stats().allocations + refused, 4 * rounds);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_LE(host.manager.peak_bytes(), kMiB);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

}  // namespace
}  // namespace headroom::test
