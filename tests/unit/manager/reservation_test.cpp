// Reservations: what they claim, what allocations take of them, and that every way they end gives back exactly the rest.
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "fake_stack.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

std::uint64_t unspent_of(GpuMemoryManager const& manager) { return manager.audit().unspent; }

TEST(Reservation, claims_all_its_bytes_and_touches_neither_device_nor_counts) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  EventWatch events;
  auto reservation = host.manager.reserve_bytes(600).value();
  EXPECT_EQ(reservation.total_bytes(), 600U);
  EXPECT_EQ(reservation.used_bytes(), 0U);
  EXPECT_EQ(reservation.remaining_bytes(), 600U);
  EXPECT_EQ(host.manager.claimed_bytes(), 600U);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.peak_bytes(), 0U);
  EXPECT_EQ(host.manager.remaining_bytes(), 400U);
  EXPECT_EQ(host.manager.alloc_count(), 0U);
  EXPECT_EQ(host.manager.raw_alloc_count(), 0U);
  EXPECT_EQ(host.manager.live_allocations(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_EQ(unspent_of(host.manager), 600U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
  EXPECT_EQ(events.count(host.manager, flight::EventKind::reserve), 1U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::allocate), 0U);
  EXPECT_FALSE(host.manager.alloc<std::byte>(401)) << "what is reserved is nobody else's";
  EXPECT_TRUE(host.manager.check_budget(400));
  EXPECT_FALSE(host.manager.check_budget(401));
}

TEST(Reservation, its_allocations_take_of_it_and_their_frees_go_to_the_common_budget) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto reservation = host.manager.reserve_bytes(600).value();
  auto first = reservation.alloc<std::uint32_t>(100, AllocTag{"first"}).value();
  EXPECT_EQ(first.size(), 100U);
  EXPECT_EQ(reservation.used_bytes(), 400U);
  EXPECT_EQ(reservation.remaining_bytes(), 200U);
  EXPECT_EQ(host.manager.claimed_bytes(), 600U);
  EXPECT_EQ(host.manager.allocated_bytes(), 400U);
  EXPECT_EQ(host.manager.peak_bytes(), 400U);
  EXPECT_EQ(host.manager.alloc_count(), 1U);
  EXPECT_EQ(unspent_of(host.manager), 200U);
  EXPECT_EQ(tag_bytes(snapshot_of(host.manager), "first"), 400U);
  ASSERT_TRUE(first.release());
  EXPECT_EQ(host.manager.claimed_bytes(), 200U) << "not back to the reservation";
  EXPECT_EQ(reservation.used_bytes(), 400U);
  EXPECT_EQ(reservation.remaining_bytes(), 200U);
  auto plain = host.manager.alloc<std::byte>(800);
  EXPECT_TRUE(plain) << "the common budget has them";
  auto last = reservation.alloc<std::byte>(200).value();
  EXPECT_EQ(reservation.remaining_bytes(), 0U);
  EXPECT_EQ(unspent_of(host.manager), 0U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

TEST(Reservation, is_all_or_nothing_with_figures_and_one_event) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto held = host.manager.alloc<std::byte>(500).value();
  EventWatch events;
  auto refused = host.manager.reserve_bytes(501);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::manager);
  EXPECT_EQ(refused.error().requested, 501U);
  EXPECT_EQ(refused.error().current, 500U);
  EXPECT_EQ(refused.error().required, 1001U);
  EXPECT_EQ(refused.error().limit, 1000U);
  EXPECT_EQ(host.manager.claimed_bytes(), 500U);
  EXPECT_EQ(host.manager.alloc_count(), 1U) << "the held one's";
  EXPECT_EQ(host.manager.raw_alloc_count(), 0U);
  EXPECT_EQ(host.manager.stats().refusals, 1U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 1U);
  EXPECT_TRUE(host.manager.reserve_bytes(500));
}

TEST(Reservation, of_more_than_a_ledger_counts_is_overflow) {
  auto manager = null_manager(MemoryBudget::unlimited());
  EventWatch events;
  for (const std::uint64_t bytes : {flight::kBytesMask + 1, UINT64_MAX}) {
    auto refused = manager.reserve_bytes(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::overflow);
    EXPECT_EQ(refused.error().requested, bytes);
  }
  auto all = manager.reserve_bytes(flight::kBytesMask).value();
  EXPECT_EQ(manager.reserve_bytes(1).error().kind, ErrorKind::overflow) << "the sum cannot be counted";
  EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 3U);
  EXPECT_EQ(manager.claimed_bytes(), flight::kBytesMask);
}

TEST(Reservation, of_nothing_holds_nothing) {
  auto manager = null_manager(MemoryBudget::with_limit(0));
  auto reservation = manager.reserve_bytes(0).value();
  EXPECT_EQ(reservation.total_bytes(), 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_TRUE(reservation.alloc<std::byte>(0));
  EXPECT_FALSE(reservation.alloc<std::byte>(1));
  EXPECT_EQ(manager.alloc_count(), 2U);
  reservation.release();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(Reservation, overspent_is_refused_with_its_own_figures_and_nothing_moves) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto reservation = host.manager.reserve_bytes(600).value();
  auto held = reservation.alloc<std::byte>(450).value();
  EventWatch events;
  auto refused = reservation.alloc<std::byte>(151);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::request) << "the reservation, not the budget";
  EXPECT_EQ(refused.error().requested, 151U);
  EXPECT_EQ(refused.error().current, 450U);
  EXPECT_EQ(refused.error().required, 601U);
  EXPECT_EQ(refused.error().limit, 600U);
  EXPECT_NE(refused.error().to_string().find("of the reservation's 600 bytes 150 are left"), std::string::npos);
  EXPECT_EQ(reservation.remaining_bytes(), 150U);
  EXPECT_EQ(host.manager.claimed_bytes(), 600U);
  EXPECT_EQ(host.manager.allocated_bytes(), 450U);
  const auto recorded = events.of(host.manager, flight::EventKind::refusal);
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].error_layer(), Layer::request);
  EXPECT_EQ(host.manager.alloc_count(), 2U);
  EXPECT_TRUE(reservation.alloc<std::byte>(150)) << "the exact rest";
}

TEST(Reservation, hostile_requests_are_refused_before_it_is_touched) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto reservation = host.manager.reserve_bytes(600).value();
  EventWatch events;
  EXPECT_EQ(reservation.alloc<std::uint64_t>(SIZE_MAX / 4).error().kind, ErrorKind::overflow);
  EXPECT_EQ(reservation.alloc<std::byte>(SIZE_MAX).error().kind, ErrorKind::overflow);
  EXPECT_EQ(reservation.alloc<std::byte>(1, AllocOptions{.alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(reservation.alloc<std::byte>(1, AllocOptions{.stream = {77}}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(reservation.alloc_raw(1, AllocTag{}).error().kind, ErrorKind::no_runtime);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 5U);
  EXPECT_EQ(reservation.remaining_bytes(), 600U);
  EXPECT_EQ(unspent_of(host.manager), 600U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

TEST(Reservation, an_allocation_that_the_device_refuses_gives_its_bytes_back_to_it) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto reservation = host.manager.reserve_bytes(600).value();
  host.resource->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
  EventWatch events;
  auto refused = reservation.alloc<std::byte>(400);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(reservation.remaining_bytes(), 600U);
  EXPECT_EQ(host.manager.claimed_bytes(), 600U);
  EXPECT_EQ(unspent_of(host.manager), 600U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 1U);
  EXPECT_TRUE(reservation.alloc<std::byte>(600));
}

TEST(Reservation, dropped_gives_the_rest_back_once_however_it_ends) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  EventWatch events;
  std::optional<TrackedBuffer<std::byte>> buffer;
  {
    auto reservation = manager.reserve_bytes(600).value();
    buffer = reservation.alloc<std::byte>(100).value();
  }
  EXPECT_EQ(manager.claimed_bytes(), 100U) << "destroyed: the allocation stays";
  {
    auto reservation = manager.reserve_bytes(600).value();
    reservation.release();
    EXPECT_EQ(manager.claimed_bytes(), 100U);
    EXPECT_EQ(reservation.remaining_bytes(), 0U);
    reservation.release();
    auto refused = reservation.alloc<std::byte>(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 1U);
  }
  EXPECT_EQ(manager.claimed_bytes(), 100U);
  {
    auto reservation = manager.reserve_bytes(600).value();
    reservation = manager.reserve_bytes(300).value();
    EXPECT_EQ(manager.claimed_bytes(), 400U) << "replaced";
  }
  EXPECT_EQ(manager.claimed_bytes(), 100U);
  EXPECT_EQ(events.count(manager, flight::EventKind::reserve), 4U);
  EXPECT_EQ(events.count(manager, flight::EventKind::reserve_drop), 4U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Reservation, moved_from_is_empty) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto first = manager.reserve_bytes(600).value();
  auto buffer = first.alloc<std::byte>(100).value();
  auto second = std::move(first);
  EXPECT_EQ(second.total_bytes(), 600U);
  EXPECT_EQ(second.remaining_bytes(), 500U);
  EXPECT_EQ(first.total_bytes(), 0U);  // NOLINT(bugprone-use-after-move): what a moved-from one says is the subject
  EXPECT_EQ(first.used_bytes(), 0U);
  EXPECT_EQ(first.remaining_bytes(), 0U);
  auto refused = first.alloc<std::byte>(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  first.release();
  EXPECT_EQ(manager.claimed_bytes(), 600U);
  GpuMemoryReservation empty;
  EXPECT_FALSE(empty.alloc_raw(1, AllocTag{}));
}

// Reservation, allocation and manager end in each order, each on a thread of its own.
TEST(Reservation, and_its_allocations_end_in_any_order_on_any_thread) {
  enum class Part : std::uint8_t { reservation, buffer, manager };
  const Part orders[][3] = {{Part::reservation, Part::buffer, Part::manager}, {Part::reservation, Part::manager, Part::buffer},
                            {Part::buffer, Part::reservation, Part::manager}, {Part::buffer, Part::manager, Part::reservation},
                            {Part::manager, Part::reservation, Part::buffer}, {Part::manager, Part::buffer, Part::reservation}};
  for (auto const& order : orders) {
    auto fake = std::make_optional<FakeRuntime>(FakeStackOptions{.limit = 1000});
    const auto stack = fake->stack;
    std::optional manager{fake->manager(MemoryBudget::with_limit(1000))};
    const auto cell = manager->ledger_cell().value();
    std::optional reservation{manager->reserve_bytes(600).value()};
    std::optional buffer{reservation->alloc<std::byte>(100).value()};
    fake.reset();
    for (const Part part : order) {
      std::thread{[&] {
        if (part == Part::reservation) reservation.reset();
        if (part == Part::buffer) buffer.reset();
        if (part == Part::manager) manager.reset();
      }}.join();
      std::uint64_t expected = 0;
      if (reservation) expected += 500;
      if (buffer) expected += 100;
      EXPECT_EQ(flight::FlightView::of_this_process()->words(cell).claimed, expected);
      EXPECT_EQ(stack->figures().claimed, expected);
    }
    EXPECT_EQ(stack->figures().unspent, 0U);
    EXPECT_EQ(stack->figures().unreserves, 1);
  }
}

// ── through a runtime ──

TEST(ReservationThroughRuntime, claims_both_budgets_and_spends_of_both) {
  FakeRuntime fake{{.limit = 2000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto reservation = manager.reserve_bytes(600).value();
  EXPECT_EQ(fake.stack->figures().claimed, 600U);
  EXPECT_EQ(fake.stack->figures().unspent, 600U);
  EXPECT_EQ(fake.stack->figures().allocates, 0);
  auto buffer = reservation.alloc<std::byte>(400).value();
  auto raw = reservation.alloc_raw(50, AllocTag{"raw"}).value();
  EXPECT_EQ(fake.stack->figures().reserved_requests, 2);
  EXPECT_EQ(fake.stack->figures().claimed, 600U);
  EXPECT_EQ(fake.stack->figures().unspent, 150U);
  EXPECT_EQ(manager.raw_alloc_count(), 1U);
  ASSERT_TRUE(buffer.release());
  EXPECT_EQ(fake.stack->figures().claimed, 200U);
  reservation.release();
  EXPECT_EQ(fake.stack->figures().claimed, 50U);
  EXPECT_EQ(fake.stack->figures().unspent, 0U);
  EXPECT_EQ(fake.stack->figures().unreserves, 1);
  EXPECT_EQ(manager.claimed_bytes(), 50U);
}

TEST(ReservationThroughRuntime, fully_spent_still_ends_once_below) {
  FakeRuntime fake{{.limit = 2000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  {
    auto reservation = manager.reserve_bytes(600).value();
    auto buffer = reservation.alloc<std::byte>(600).value();
  }
  EXPECT_EQ(fake.stack->figures().unreserves, 1);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(ReservationThroughRuntime, a_hopeless_one_does_not_disturb_the_budget_below) {
  FakeRuntime fake{{.limit = 2000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  EXPECT_EQ(manager.reserve_bytes(1001).error().layer, Layer::manager);
  EXPECT_EQ(fake.stack->figures().reserves, 0);
}

TEST(ReservationThroughRuntime, refused_below_leaves_nothing_here) {
  FakeRuntime fake{{.limit = 500}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  EventWatch events;
  auto refused = manager.reserve_bytes(501);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().limit, 500U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(fake.stack->figures().unreserves, 0);
  EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 1U);
  EXPECT_EQ(manager.raw_alloc_count(), 0U);
}

TEST(ReservationThroughRuntime, without_a_budget_to_reserve_of_is_unsupported) {
  FakeRuntime fake;
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  EventWatch events;
  auto refused = manager.reserve_bytes(10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().layer, Layer::runtime);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 1U);
}

TEST(ReservationThroughRuntime, refused_by_the_device_gives_back_to_both) {
  FakeRuntime fake{{.limit = 2000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto reservation = manager.reserve_bytes(600).value();
  fake.host->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver});
  EXPECT_FALSE(reservation.alloc_raw(400, AllocTag{}));
  EXPECT_EQ(reservation.remaining_bytes(), 600U);
  EXPECT_EQ(fake.stack->figures().unspent, 600U);
  EXPECT_TRUE(reservation.alloc_raw(600, AllocTag{}));
}

TEST(ReservationThroughRuntime, of_an_overlay_stands_in_the_parents_books) {
  FakeRuntime fake{{.limit = 2000}};
  auto parent = GpuMemoryManager::create(fake.device, MemoryBudget::with_limit(1000)).value();
  std::optional overlay{parent.with_runtime_overlay(fake.runtime).value()};
  auto direct = parent.reserve_bytes(300).value();
  EXPECT_EQ(fake.stack->figures().reserves, 0) << "the parent has no runtime";
  auto routed = overlay->reserve_bytes(600).value();
  overlay.reset();
  EXPECT_EQ(parent.claimed_bytes(), 900U);
  EXPECT_FALSE(parent.reserve_bytes(101));
  auto buffer = routed.alloc<std::byte>(600).value();
  EXPECT_EQ(fake.stack->figures().reserved_requests, 1) << "the reservation keeps its overlay open";
  EXPECT_EQ(parent.allocated_bytes(), 600U);
}

// ── several threads ──

TEST(ReservationThreads, four_spend_one_to_the_last_byte_and_not_further) {
  constexpr std::uint64_t kBlock = 10;
  constexpr std::uint64_t kBlocks = 1000;
  FakeRuntime fake{{.limit = kBlocks * kBlock}};
  auto manager = fake.manager(MemoryBudget::with_limit(kBlocks * kBlock));
  for (std::uint64_t round = 0; round < scaled(10); ++round) {
    auto reservation = manager.reserve_bytes(kBlocks * kBlock).value();
    // Every third of the driver's answers is no: those bytes must come back to the reservation and be spent by somebody.
    fake.host->faults().clear();
    fake.host->faults().add(
        {.operation = FaultOperation::allocate, .nth = 3, .every = 3, .times = kFaultForever, .kind = ErrorKind::driver});
    std::vector<std::vector<TrackedBuffer<std::byte>>> held(4);
    std::atomic<std::uint64_t> granted{0};
    std::vector<std::thread> threads;
    for (auto& mine : held) {
      threads.emplace_back([&] {
        for (;;) {
          auto buffer = reservation.alloc<std::byte>(kBlock);
          if (buffer) {
            ++granted;
            mine.push_back(std::move(*buffer));
            continue;
          }
          if (buffer.error().kind == ErrorKind::driver) continue;
          ASSERT_EQ(buffer.error().kind, ErrorKind::over_budget);
          if (granted == kBlocks) return;  // else another thread's allocation was under way, and failed
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(granted, kBlocks);
    EXPECT_EQ(reservation.remaining_bytes(), 0U);
    EXPECT_EQ(manager.allocated_bytes(), kBlocks * kBlock);
    EXPECT_EQ(unspent_of(manager), 0U);
    EXPECT_EQ(fake.stack->figures().unspent, 0U);
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(ReservationThreads, released_under_allocations_gives_all_back_exactly_once) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  fake.host->faults().add(
      {.operation = FaultOperation::allocate, .nth = 2, .every = 2, .times = kFaultForever, .kind = ErrorKind::driver});
  const auto rounds = static_cast<int>(scaled(500));
  for (int round = 0; round < rounds; ++round) {
    auto reservation = manager.reserve_bytes(1000).value();
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 5; ++k) static_cast<void>(reservation.alloc<std::byte>(100));
      });
    }
    reservation.release();
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(manager.claimed_bytes(), 0U);
    ASSERT_EQ(fake.stack->figures().claimed, 0U);
    ASSERT_EQ(fake.stack->figures().unspent, 0U);
    ASSERT_EQ(fake.stack->figures().unreserves, round + 1);
  }
  EXPECT_EQ(unspent_of(manager), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(ReservationThreads, reservers_and_allocators_race_and_the_limit_holds) {
  constexpr std::uint64_t kLimit = 1000;
  FakeRuntime fake{{.limit = kLimit}};
  auto manager = fake.manager(MemoryBudget::with_limit(kLimit));
  const std::uint64_t rounds = scaled(5000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        if (i % 2 == 0) {
          auto buffer = manager.alloc<std::byte>(300);
          EXPECT_TRUE(buffer || buffer.error().kind == ErrorKind::over_budget);
        } else if (auto reservation = manager.reserve_bytes(600)) {
          EXPECT_TRUE(reservation->alloc<std::byte>(400)) << "paid for";
          EXPECT_TRUE(reservation->alloc<std::byte>(200)) << "paid for";
        } else {
          EXPECT_EQ(reservation.error().kind, ErrorKind::over_budget);
        }
        EXPECT_LE(manager.claimed_bytes(), kLimit);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(manager.peak_bytes(), kLimit);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Reservation, a_released_one_gives_nothing_not_even_zero_bytes) {
  auto manager = null_manager(MemoryBudget::with_limit(100));
  auto reservation = manager.reserve_bytes(10).value();
  ASSERT_TRUE(reservation.alloc<std::byte>(0)) << "zero bytes succeed while it holds";
  reservation.release();
  const auto refused = reservation.alloc<std::byte>(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(refused.error().layer, Layer::request);
  EXPECT_EQ(refused.error().requested, 0U);
  EXPECT_EQ(manager.alloc_count(), 2U) << "a request that was refused is one all the same";
  EXPECT_EQ(manager.stats().refusals, 1U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::test
