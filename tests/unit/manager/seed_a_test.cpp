// What each event does to the figures of a manager, and what a manager is and does without any runtime. tests/seed-a.md says which
// demand each of these tests stands for.
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "ledger_figures.hpp"
#include "managers.hpp"
#include "recording_resource.hpp"

namespace headroom::test {
namespace {

// A manager whose device can be watched in the middle of a call, and told to fail.
struct Watched {
  explicit Watched(MemoryBudget budget)
      : host{HostResource::create({.touch_memory = false}).value()},
        watching{decorate<WatchingDecorator>(host).value()},
        manager{GpuMemoryManager::create(Device::custom("watched", watching).value(), budget).value()} {}
  void fail_next(FaultOperation operation) const { host->faults().add({.operation = operation, .kind = ErrorKind::driver}); }

  std::shared_ptr<HostResource> host;
  std::shared_ptr<WatchingDecorator> watching;
  GpuMemoryManager manager;
};

// ── the table of events, row by row ──

TEST(EventFigures, a_typed_request_counts_one_whatever_becomes_of_it) {
  Watched watched{MemoryBudget::with_limit(1000)};
  auto& manager = watched.manager;
  auto reservation = manager.reserve_bytes(100).value();
  auto empty = manager.alloc<double>(0);
  EXPECT_TRUE(empty);
  EXPECT_EQ(manager.alloc_count(), 1U);
  EXPECT_EQ(manager.alloc<std::byte>(901).error().kind, ErrorKind::over_budget);
  EXPECT_EQ(manager.alloc_count(), 2U);
  EXPECT_EQ(manager.alloc<std::uint64_t>(SIZE_MAX / 2).error().kind, ErrorKind::overflow);
  EXPECT_EQ(manager.alloc_count(), 3U);
  EXPECT_EQ(manager.alloc<std::byte>(1, AllocOptions{.alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(manager.alloc_count(), 4U);
  EXPECT_EQ(manager.alloc<std::byte>(1, AllocOptions{.stream = {77}}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(manager.alloc_count(), 5U);
  watched.fail_next(FaultOperation::allocate);
  EXPECT_EQ(manager.alloc<std::byte>(1).error().kind, ErrorKind::driver);
  EXPECT_EQ(manager.alloc_count(), 6U);
  EXPECT_EQ(reservation.alloc<std::byte>(101).error().kind, ErrorKind::over_budget);
  EXPECT_EQ(manager.alloc_count(), 7U);
  reservation.release();
  EXPECT_EQ(reservation.alloc<std::byte>(1).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(manager.alloc_count(), 8U);
  EXPECT_TRUE(manager.alloc<std::byte>(1000));
  EXPECT_EQ(manager.alloc_count(), 9U);
}

TEST(EventFigures, an_accepted_claim_raises_claimed_alone_before_the_device_is_asked) {
  Watched watched{MemoryBudget::with_limit(1000)};
  auto held = watched.manager.alloc<std::byte>(200).value();
  int looks = 0;
  watched.watching->in_allocate = [&] {
    ++looks;
    EXPECT_EQ(watched.manager.claimed_bytes(), 500U);
    EXPECT_EQ(watched.manager.allocated_bytes(), 200U);
    EXPECT_EQ(watched.manager.peak_bytes(), 200U);
    EXPECT_EQ(watched.manager.remaining_bytes(), 500U);
  };
  EXPECT_TRUE(watched.manager.alloc<std::byte>(300));
  EXPECT_EQ(looks, 1);
}

TEST(EventFigures, a_delivery_raises_allocated_and_the_peak_and_claims_no_more) {
  Watched watched{MemoryBudget::with_limit(1000)};
  auto first = watched.manager.alloc<std::byte>(300).value();
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 300, .allocated = 300, .peak = 300, .requests = 1}));
  auto second = watched.manager.alloc<std::uint32_t>(100).value();
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 700, .allocated = 700, .peak = 700, .requests = 2}));
  ASSERT_TRUE(first.release());
  auto third = watched.manager.alloc<std::byte>(100).value();
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 500, .allocated = 500, .peak = 700, .requests = 3}));
}

TEST(EventFigures, a_refusal_of_the_device_takes_the_claim_back_and_raises_no_peak) {
  Watched watched{MemoryBudget::with_limit(1000)};
  auto held = watched.manager.alloc<std::byte>(200).value();
  watched.fail_next(FaultOperation::allocate);
  auto refused = watched.manager.alloc<std::byte>(800);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 200, .allocated = 200, .peak = 200, .requests = 2}));
  EXPECT_TRUE(watched.manager.alloc<std::byte>(800)) << "nothing of the failed request is left in its way";
}

TEST(EventFigures, a_dropped_owner_gives_back_once_the_device_took_the_memory) {
  Watched watched{MemoryBudget::with_limit(1000)};
  int looks = 0;
  watched.watching->in_deallocate = [&] {
    ++looks;
    EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 600, .allocated = 600, .peak = 600, .requests = 1}));
  };
  {
    auto buffer = watched.manager.alloc<std::byte>(600).value();
    EXPECT_EQ(watched.host->bytes_outstanding(), 600U);
  }
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(watched.host->bytes_outstanding(), 0U);
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.peak = 600, .requests = 1}));
}

TEST(EventFigures, a_dropped_owner_whose_free_fails_stays_charged_and_is_counted) {
  Watched watched{MemoryBudget::with_limit(1000)};
  for (const std::size_t bytes : {std::size_t{600}, std::size_t{300}}) {
    auto buffer = watched.manager.alloc<std::byte>(bytes).value();
    watched.fail_next(FaultOperation::deallocate);
  }
  EXPECT_EQ(
      figures_of(watched.manager),
      (LedgerFigures{.claimed = 900, .allocated = 900, .peak = 900, .requests = 2, .failed_frees = 2, .failed_bytes = 900}));
  EXPECT_FALSE(watched.manager.check_budget(101)) << "nothing shows that the memory came back";
  EXPECT_TRUE(watched.manager.check_budget(100));
}

TEST(EventFigures, a_reservation_raises_claimed_alone_and_asks_no_device) {
  Watched watched{MemoryBudget::with_limit(1000)};
  EventWatch events;
  watched.watching->in_allocate = [] { ADD_FAILURE() << "the device was asked"; };
  auto reservation = watched.manager.reserve_bytes(600).value();
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 600}));
  EXPECT_EQ(events.count(watched.manager, flight::EventKind::allocate), 0U);
}

TEST(EventFigures, an_allocation_of_a_reservation_was_paid_for_already) {
  Watched watched{MemoryBudget::with_limit(1000)};
  auto reservation = watched.manager.reserve_bytes(600).value();
  watched.watching->in_allocate = [&] { EXPECT_EQ(watched.manager.claimed_bytes(), 600U); };
  auto buffer = reservation.alloc<std::uint16_t>(200).value();
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 600, .allocated = 400, .peak = 400, .requests = 1}));
}

TEST(EventFigures, a_dropped_reservation_gives_back_what_was_not_spent_of_it) {
  Watched watched{MemoryBudget::with_limit(1000)};
  std::optional<TrackedBuffer<std::byte>> buffer;
  {
    auto reservation = watched.manager.reserve_bytes(600).value();
    buffer = reservation.alloc<std::byte>(250).value();
  }
  EXPECT_EQ(figures_of(watched.manager), (LedgerFigures{.claimed = 250, .allocated = 250, .peak = 250, .requests = 1}));
  EXPECT_TRUE(watched.manager.audit().clean()) << watched.manager.audit().to_string();
  buffer.reset();
  EXPECT_EQ(watched.manager.claimed_bytes(), 0U) << "no byte twice";
  EXPECT_TRUE(watched.manager.alloc<std::byte>(1000));
}

// ── what a manager is ──

template <class T>
concept ShowsItsRoute = requires(T& object) { object.route_; };
template <class T>
concept ShowsItsToken = requires(T& object) { object.token_; };
template <class T>
concept ShowsItsAllocation = requires(T& object) { object.allocation_; };

TEST(ManagerShape, shows_no_state_and_is_made_by_its_named_functions_alone) {
  EXPECT_FALSE(ShowsItsRoute<GpuMemoryManager>);
  EXPECT_FALSE(ShowsItsToken<GpuMemoryReservation>);
  EXPECT_FALSE(ShowsItsAllocation<TrackedBuffer<int>>);
  EXPECT_FALSE(ShowsItsAllocation<RuntimeAllocBlock>);
  EXPECT_FALSE(std::is_aggregate_v<GpuMemoryManager>);
  EXPECT_FALSE(std::is_default_constructible_v<GpuMemoryManager>);
  EXPECT_FALSE((std::is_constructible_v<GpuMemoryManager, manager::Route&>));
}

TEST(ManagerShape, handles_are_copied_and_what_owns_bytes_is_only_moved) {
  EXPECT_TRUE(std::is_copy_constructible_v<GpuMemoryManager>);
  EXPECT_TRUE(std::is_nothrow_move_constructible_v<GpuMemoryManager>);
  EXPECT_FALSE(std::is_copy_constructible_v<GpuMemoryReservation> || std::is_copy_assignable_v<GpuMemoryReservation>);
  EXPECT_FALSE(std::is_copy_constructible_v<TrackedBuffer<int>> || std::is_copy_assignable_v<TrackedBuffer<int>>);
  EXPECT_FALSE(std::is_copy_constructible_v<RuntimeAllocBlock> || std::is_copy_assignable_v<RuntimeAllocBlock>);
  EXPECT_TRUE(std::is_nothrow_move_constructible_v<GpuMemoryReservation>);
}

TEST(ManagerShape, allocates_on_its_own_device_and_on_no_other) {
  auto here = HostResource::create({.touch_memory = false}).value();
  auto there = HostResource::create({.touch_memory = false, .ordinal = 1}).value();
  const auto device = host_device_over(here).value();
  const auto other = host_device_over(there).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(1000)).value();
  auto second = GpuMemoryManager::create(other, MemoryBudget::with_limit(1000)).value();
  auto buffer = manager.alloc<std::byte>(600).value();
  EXPECT_EQ(here->bytes_outstanding(), 600U);
  EXPECT_EQ(there->bytes_outstanding(), 0U);
  EXPECT_EQ(manager.device(), device);
  EXPECT_EQ(second.device(), other);
  EXPECT_EQ(second.device().ordinal(), 1);
  EXPECT_EQ(second.allocated_bytes(), 0U) << "nor in the books of another manager";
}

TEST(ManagerShape, lends_the_budget_that_it_was_given) {
  EXPECT_EQ(null_manager(MemoryBudget::with_limit(1234)).budget(), MemoryBudget::with_limit(1234));
  EXPECT_EQ(null_manager(MemoryBudget::observe(1234)).budget(), MemoryBudget::observe(1234));
  EXPECT_EQ(null_manager(MemoryBudget::unlimited()).budget(), MemoryBudget::unlimited());
  EXPECT_EQ(null_manager(MemoryBudget::with_limit(0)).budget(), MemoryBudget::with_limit(0)) << "nothing, not everything";
}

// ── without a runtime ──

TEST(ManagerAlone, asks_its_device_for_what_was_asked_and_for_nothing_else) {
  auto recording = std::make_shared<RecordingResource>();
  auto manager = GpuMemoryManager::create(Device::custom("recording", recording).value(), MemoryBudget::unlimited()).value();
  const AllocTag tag{"alone"};
  void* address = nullptr;
  {
    auto buffer = manager.alloc<std::uint32_t>(100, AllocOptions{.tag = tag, .stream = {5}, .alignment = 1024}).value();
    static_assert(std::is_same_v<decltype(buffer.data()), std::uint32_t*>);
    EXPECT_EQ(buffer.size(), 100U);
    EXPECT_EQ(buffer.size_bytes(), 400U);
    address = buffer.data();
  }
  ASSERT_EQ(recording->calls.size(), 2U) << "no filling, no streams, no reaping";
  auto const& asked = recording->calls[0];
  EXPECT_EQ(asked.what, "allocate");
  EXPECT_EQ(asked.request.bytes, 400U);
  EXPECT_EQ(asked.request.alignment, 1024U);
  EXPECT_EQ(asked.request.stream, StreamId{5});
  EXPECT_EQ(asked.request.tag, tag.id());
  EXPECT_FALSE(asked.request.reserved);
  auto const& freed = recording->calls[1];
  EXPECT_EQ(freed.what, "deallocate");
  EXPECT_EQ(freed.block.pointer, address);
  EXPECT_EQ(freed.block.bytes, 400U);
  EXPECT_EQ(freed.block.generation, 11U) << "the very block that was handed out";
}

TEST(ManagerAlone, knows_nothing_of_memory_that_was_obtained_around_it) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto held = host.manager.alloc<std::byte>(100).value();
  const auto around = host.resource->allocate({.bytes = 5000}).value();
  EXPECT_EQ(host.resource->bytes_outstanding(), 5100U);
  EXPECT_EQ(figures_of(host.manager), (LedgerFigures{.claimed = 100, .allocated = 100, .peak = 100, .requests = 1}));
  ASSERT_TRUE(host.resource->deallocate(around));
  EXPECT_EQ(figures_of(host.manager), (LedgerFigures{.claimed = 100, .allocated = 100, .peak = 100, .requests = 1}));
}

TEST(ManagerAlone, a_region_that_makes_do_with_what_is_there_moves_no_request_count) {
  auto host = host_manager(MemoryBudget::with_limit(10'000), {});
  auto arena = host.manager.alloc<std::uint32_t>(1000).value();
  auto spare = host.manager.alloc<std::byte>(500).value();
  const auto before = host.manager.alloc_count();
  for (auto& element : arena.host_span()) element = 7;
  auto bytes = into_bytes(std::move(arena));
  ASSERT_TRUE(spare.release());
  EXPECT_TRUE(host.manager.check_budget(1));
  EXPECT_FALSE(host.manager.check_budget(10'000));
  host.manager.reserve_bytes(100).value().release();
  host.manager.reset_peak();
  EXPECT_TRUE(host.manager.reap_pending_deallocations());
  EXPECT_TRUE(host.manager.audit().clean());
  EXPECT_EQ(host.manager.alloc_count(), before);
  static_cast<void>(host.manager.alloc<std::byte>(1));
  EXPECT_EQ(host.manager.alloc_count(), before + 1) << "one forgotten allocation shows";
}

TEST(ManagerAlone, a_release_by_hand_takes_nothing_from_the_owner) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  {
    auto buffer = host.manager.alloc<std::byte>(600).value();
    EXPECT_FALSE(host.manager.record_free(600)) << "its exact size proves nothing";
    EXPECT_EQ(figures_of(host.manager), (LedgerFigures{.claimed = 600, .allocated = 600, .peak = 600, .requests = 1}));
    EXPECT_EQ(host.resource->bytes_outstanding(), 600U);
  }
  EXPECT_EQ(figures_of(host.manager), (LedgerFigures{.peak = 600, .requests = 1})) << "the owner gave them back, once";
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

}  // namespace
}  // namespace headroom::test
