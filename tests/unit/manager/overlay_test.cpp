// Overlays: another way in to one manager. Same books, same limit, also when both ways race.
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "fake_stack.hpp"
#include "managers.hpp"
#include "most_held.hpp"
#include "on_threads.hpp"
#include "scale.hpp"
#include "yield_at.hpp"

namespace headroom::test {
namespace {

GpuMemoryManager parent_of(FakeRuntime const& fake, MemoryBudget budget) {
  return GpuMemoryManager::create(fake.device, budget, "parent").value();
}

TEST(Overlay, shares_every_figure_with_its_parent) {
  FakeRuntime fake;
  auto parent = parent_of(fake, MemoryBudget::with_limit(1000));
  auto overlay = parent.with_runtime_overlay(fake.runtime).value();
  EXPECT_EQ(parent.runtime(), nullptr);
  ASSERT_NE(overlay.runtime(), nullptr);
  EXPECT_EQ(*overlay.runtime(), fake.runtime);
  EXPECT_EQ(overlay.ledger_cell(), parent.ledger_cell());
  EXPECT_EQ(overlay.device(), parent.device());
  EXPECT_EQ(overlay.name(), "parent");

  auto direct = parent.alloc<std::byte>(300).value();
  auto routed = overlay.alloc<std::byte>(200).value();
  EXPECT_EQ(fake.stack->figures().allocates, 1) << "only the overlay's";
  for (auto const* manager : {&parent, &overlay}) {
    EXPECT_EQ(manager->allocated_bytes(), 500U);
    EXPECT_EQ(manager->peak_bytes(), 500U);
    EXPECT_EQ(manager->alloc_count(), 2U);
    EXPECT_EQ(manager->live_allocations(), 2U);
    EXPECT_EQ(manager->remaining_bytes(), 500U);
    EXPECT_EQ(manager->budget_limit_bytes(), 1000U);
    EXPECT_FALSE(manager->check_budget(501));
    EXPECT_TRUE(manager->check_budget(500));
  }
  EXPECT_FALSE(parent.alloc<std::byte>(501));
  EXPECT_FALSE(overlay.alloc<std::byte>(501));
  EXPECT_EQ(parent.stats().refusals, 2U);
  overlay.set_budget(MemoryBudget::with_limit(500));
  EXPECT_EQ(parent.budget_limit_bytes(), 500U);
  ASSERT_TRUE(direct.release());
  overlay.reset_peak();
  EXPECT_EQ(parent.peak_bytes(), 200U);
  overlay.reset_alloc_count();
  EXPECT_EQ(parent.alloc_count(), 0U);
  ASSERT_TRUE(routed.release());
  EXPECT_EQ(fake.stack->figures().deallocates, 1) << "each went back the way it came";
  EXPECT_TRUE(parent.audit().clean()) << parent.audit().to_string();
}

TEST(Overlay, of_the_same_runtime_is_the_same_way_in) {
  FakeRuntime fake{{.limit = 1000}};
  auto first = fake.manager(MemoryBudget::with_limit(1000));
  auto again = first.with_runtime_overlay(fake.runtime).value();
  EXPECT_EQ(again.runtime(), first.runtime()) << "the very route that the manager was made with";
  auto parent = parent_of(fake, MemoryBudget::with_limit(1000));
  auto one = parent.with_runtime_overlay(fake.runtime).value();
  auto two = one.with_runtime_overlay(fake.runtime).value();
  EXPECT_EQ(one.runtime(), two.runtime());
  EXPECT_NE(one.runtime(), first.runtime()) << "another manager's";
}

// Each violation has its own kind, and the books look as if nobody had asked.
TEST(Overlay, violations_are_refused_each_by_its_kind_and_leave_no_trace) {
  FakeRuntime fake;
  auto parent = parent_of(fake, MemoryBudget::with_limit(1000));
  auto held = parent.alloc<std::byte>(10).value();
  const FakeRuntime other_object;
  const FakeRuntime other_ordinal{{}, {.touch_memory = false, .ordinal = 3}};
  const FakeRuntime blind{{.tracks_uses = false}};
  auto same_device_blind =
      DeviceRuntime::create(fake.device,
                            {.stack = std::make_shared<FakeStack>(fake.host, FakeStackOptions{.tracks_uses = false})})
          .value();
  EventWatch events;
  auto expect_refused = [&](DeviceRuntime const& runtime, ErrorKind kind) {
    auto refused = parent.with_runtime_overlay(runtime);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, kind) << refused.error().to_string();
    EXPECT_EQ(refused.error().layer, Layer::runtime);
  };
  expect_refused(other_object.runtime, ErrorKind::wrong_owner);
  expect_refused(other_ordinal.runtime, ErrorKind::invalid_argument);
  expect_refused(blind.runtime, ErrorKind::wrong_owner);
  expect_refused(same_device_blind, ErrorKind::unsupported);
  EXPECT_EQ(parent.claimed_bytes(), 10U);
  EXPECT_EQ(parent.stats().refusals, 0U);
  EXPECT_EQ(parent.alloc_count(), 1U);
  EXPECT_EQ(events.count(parent, flight::EventKind::refusal), 0U);
}

TEST(Overlay, outlives_its_parents_handle_and_the_books_stay_open) {
  FakeRuntime fake;
  std::optional<GpuMemoryManager> parent{parent_of(fake, MemoryBudget::with_limit(1000))};
  auto direct = parent->alloc<std::byte>(100).value();
  auto overlay = parent->with_runtime_overlay(fake.runtime).value();
  parent.reset();
  auto routed = overlay.alloc<std::byte>(900).value();
  EXPECT_FALSE(overlay.alloc<std::byte>(1));
  ASSERT_TRUE(direct.release());
  EXPECT_EQ(overlay.allocated_bytes(), 900U);
  EXPECT_EQ(snapshot_of(overlay).allocated, 900U);
}

TEST(Overlay, lets_its_runtime_go_with_its_last_handle) {
  FakeRuntime base;
  auto parent = parent_of(base, MemoryBudget::with_limit(1000));
  std::weak_ptr<FakeStack> stack;
  for (int i = 0; i < 1000; ++i) {
    auto decorated = std::make_shared<FakeStack>(base.host, FakeStackOptions{});
    stack = decorated;
    auto runtime = DeviceRuntime::create(base.device, {.stack = std::move(decorated)}).value();
    auto overlay = parent.with_runtime_overlay(std::move(runtime)).value();
    ASSERT_TRUE(overlay.alloc<std::byte>(100).value().release());
    ASSERT_FALSE(stack.expired());
    const auto copy = overlay;  // NOLINT(performance-unnecessary-copy-initialization): a second handle
  }
  EXPECT_TRUE(stack.expired());
}

TEST(Overlay, keeps_its_runtime_for_what_is_live_and_is_used_anew_after_that) {
  FakeRuntime base;
  auto parent = parent_of(base, MemoryBudget::with_limit(1000));
  auto make_stack = [&] { return std::make_shared<FakeStack>(base.host, FakeStackOptions{}); };
  std::weak_ptr<FakeStack> stack;
  std::optional<TrackedBuffer<std::byte>> buffer;
  const DeviceRuntime* place = nullptr;
  {
    auto decorated = make_stack();
    stack = decorated;
    auto overlay = parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = decorated}).value()).value();
    buffer = overlay.alloc<std::byte>(100).value();
    place = overlay.runtime();
  }
  auto beside = parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = make_stack()}).value()).value();
  EXPECT_NE(beside.runtime(), place) << "somebody still needs the first one";
  ASSERT_FALSE(stack.expired());
  std::thread{[&] { EXPECT_TRUE(buffer->release()); }}.join();
  auto after = parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = make_stack()}).value()).value();
  EXPECT_EQ(after.runtime(), place);
  EXPECT_TRUE(stack.expired());
}

TEST(Overlay, a_failed_free_keeps_its_runtime_until_it_is_settled) {
  FakeRuntime base;
  auto parent = parent_of(base, MemoryBudget::with_limit(1000));
  std::weak_ptr<FakeStack> stack;
  {
    auto decorated = std::make_shared<FakeStack>(base.host, FakeStackOptions{});
    stack = decorated;
    auto overlay =
        parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = std::move(decorated)}).value()).value();
    base.host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
    EXPECT_FALSE(overlay.alloc<std::byte>(100).value().release());
  }
  ASSERT_FALSE(stack.expired());
  EXPECT_EQ(stack.lock()->figures().deallocates, 1);
  EXPECT_EQ(parent.retry_failed_deallocations(), 1U);
  EXPECT_EQ(parent.claimed_bytes(), 0U);
}

TEST(Overlay, and_parent_racing_never_exceed_the_common_limit) {
  constexpr std::uint64_t kBlock = 100;
  constexpr std::uint64_t kBlocks = 3;
  FakeRuntime fake;
  auto parent = parent_of(fake, MemoryBudget::with_limit(kBlocks * kBlock));
  auto overlay = parent.with_runtime_overlay(fake.runtime).value();
  MostHeld held;
  std::atomic<std::uint64_t> granted{0};
  const std::uint64_t rounds = scaled(20'000);
  // As in tests/stress/manager.cpp: who holds a block or was refused gives way, so that the last block is what many look for at once.
  constexpr std::uint64_t kEvery = 64;
  const YieldAt window{TestPoint::claim_before_exchange, kEvery};
  on_threads(6, [&](int index) {
    GpuMemoryManager manager = index % 2 == 0 ? parent : overlay;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      auto buffer = manager.alloc<std::byte>(kBlock);
      if (!buffer) {
        EXPECT_EQ(buffer.error().kind, ErrorKind::over_budget);
        if (round % kEvery == 0) std::this_thread::yield();
        continue;
      }
      ++granted;
      held.took();
      if (round % kEvery == 0) std::this_thread::yield();
      held.gives();
    }
  });
  EXPECT_LE(held.most(), kBlocks);
  EXPECT_LE(parent.peak_bytes(), kBlocks * kBlock);
  EXPECT_EQ(parent.stats().allocations, granted.load());
  EXPECT_EQ(parent.stats().allocations + parent.stats().refusals, 6 * rounds);
  EXPECT_EQ(parent.claimed_bytes(), 0U);
  EXPECT_TRUE(parent.audit().clean()) << parent.audit().to_string();
}

TEST(Overlay, made_and_dropped_by_many_threads_at_once_stays_one) {
  FakeRuntime fake;
  auto parent = parent_of(fake, MemoryBudget::unlimited());
  auto kept = parent.with_runtime_overlay(fake.runtime).value();
  const std::uint64_t rounds = scaled(2000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto runtime =
            i % 2 == 0 ? fake.runtime
                       : DeviceRuntime::create(fake.device, {.stack = std::make_shared<FakeStack>(fake.host, FakeStackOptions{})})
                             .value();
        auto overlay = parent.with_runtime_overlay(runtime).value();
        EXPECT_EQ(*overlay.runtime(), runtime);
        EXPECT_TRUE(overlay.alloc<std::byte>(10).value().release());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(parent.stats().allocations, 4 * rounds);
  EXPECT_EQ(fake.stack->figures().allocates, static_cast<int>(2 * rounds));
  EXPECT_TRUE(parent.audit().clean()) << parent.audit().to_string();
}

}  // namespace
}  // namespace headroom::test
