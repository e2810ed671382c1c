// Situations that real users reported about other systems, for which the device must play its part: a context that takes memory,
// holes, a cache, late frees, failures. See tests/cases.md.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <headroom/device_account.hpp>

#include "managers.hpp"
#include "recording_resource.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Error error_of(Result<TrackedBuffer<std::byte>> const& refused) { return refused ? Error{} : refused.error(); }

// S01
TEST(DeviceCases, a_full_budget_is_exact_and_the_context_is_outside_of_it) {
  auto host = host_manager(MemoryBudget::with_limit(5 * kGiB),
                           {.total_bytes = 10 * kGiB, .context_overhead_bytes = 400 * kMiB, .touch_memory = false});
  std::vector<TrackedBuffer<std::byte>> held;
  while (auto buffer = host.manager.alloc<std::byte>(512 * kMiB)) held.push_back(std::move(*buffer));
  EXPECT_EQ(held.size(), 10U);
  EXPECT_EQ(host.manager.allocated_bytes(), 5 * kGiB);
  EXPECT_EQ(host.manager.remaining_bytes(), 0U);
  EXPECT_EQ(snapshot_of(host.manager).device_total, 10 * kGiB);
  const auto memory = host.manager.device().memory_info();
  EXPECT_EQ(*memory.total - *memory.free - host.manager.allocated_bytes(), 400 * kMiB) << "outside the ledger";
  host.manager.refresh_device_figures();
  EXPECT_EQ(snapshot_of(host.manager).device_outside, 400 * kMiB) << "and as a figure of its own";
  EXPECT_EQ(snapshot_of(host.manager).device_free, 10 * kGiB - 400 * kMiB - 5 * kGiB);
}

// S01, the budget that includes the context: 5 GiB − 400 MiB = 4.6 GiB for a manager whose device is limited.
TEST(DeviceCases, a_budget_that_includes_the_context_hands_out_what_is_left_of_it) {
  auto host =
      HostResource::create({.total_bytes = 10 * kGiB, .context_overhead_bytes = 400 * kMiB, .touch_memory = false}).value();
  const auto physical = host_device_over(host).value();
  auto stack =
      GlobalDeviceBudget::create(physical, MemoryBudget::with_limit(5 * kGiB), DeviceBudgetOptions{.include_context = true})
          .value();
  auto manager = GpuMemoryManager::create(Device::custom("host", stack).value(), MemoryBudget::unlimited()).value();
  std::vector<TrackedBuffer<std::byte>> held;
  while (auto buffer = manager.alloc<std::byte>(20 * kMiB)) held.push_back(std::move(*buffer));
  EXPECT_EQ(manager.allocated_bytes(), 4720 * kMiB);
  const Error full = error_of(manager.alloc<std::byte>(1));
  EXPECT_EQ(full.kind, ErrorKind::over_budget);
  EXPECT_EQ(full.layer, Layer::device_account);
  EXPECT_EQ(full.limit, 4720 * kMiB);
  EXPECT_EQ(full.device_outside, 400 * kMiB);
  EXPECT_EQ(host->usage().free_on_device, 5 * kGiB) << "the whole process, its context included, uses 5 GiB";
  EXPECT_TRUE(manager.audit().clean());
}

// S19
TEST(DeviceCases, memory_kept_free_on_the_device_is_there_for_a_library_at_a_full_budget) {
  auto host = HostResource::create({.total_bytes = kGiB, .context_overhead_bytes = 100 * kMiB, .touch_memory = false}).value();
  const auto physical = host_device_over(host).value();
  auto stack =
      GlobalDeviceBudget::create(physical, MemoryBudget::with_limit(kGiB), DeviceBudgetOptions{.keep_free_bytes = 224 * kMiB})
          .value();
  auto manager = GpuMemoryManager::create(Device::custom("host", stack).value(), MemoryBudget::with_limit(kGiB)).value();
  std::vector<TrackedBuffer<std::byte>> held;
  while (auto buffer = manager.alloc<std::byte>(50 * kMiB)) held.push_back(std::move(*buffer));
  EXPECT_EQ(held.size(), 14U) << "1024 − 100 − 224 = 700 MiB";
  EventWatch events;
  const Error full = error_of(manager.alloc<std::byte>(1));
  EXPECT_EQ(full.kind, ErrorKind::over_budget);
  EXPECT_EQ(full.layer, Layer::device_account);
  EXPECT_EQ(full.current, 700 * kMiB);
  EXPECT_EQ(full.limit, 700 * kMiB);
  EXPECT_EQ(full.device_free, 224 * kMiB);
  EXPECT_NE(full.to_string().find("224 MiB kept free"), std::string::npos) << full.to_string();
  EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 1U);
  auto library = host->allocate({.bytes = 224 * kMiB});
  ASSERT_TRUE(library) << library.error().to_string();
  EXPECT_TRUE(host->deallocate(*library));
  EXPECT_TRUE(manager.audit().clean());
}

// S11
TEST(DeviceCases, a_budget_below_the_contexts_size_works_and_every_query_answers) {
  auto host = host_manager(MemoryBudget::with_limit(100 * kMiB),
                           {.total_bytes = 400 * kMiB, .context_overhead_bytes = 345 * kMiB, .touch_memory = false});
  EXPECT_EQ(host.manager.budget_limit_bytes(), 100 * kMiB);
  auto rest = host.manager.alloc<std::byte>(55 * kMiB).value();
  const Error full = error_of(host.manager.alloc<std::byte>(1));
  EXPECT_EQ(full.kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(full.device_free, 0U);
  EXPECT_EQ(host.manager.allocated_bytes(), 55 * kMiB);

  auto none = host_manager(MemoryBudget::with_limit(100 * kMiB),
                           {.total_bytes = 345 * kMiB, .context_overhead_bytes = 345 * kMiB, .touch_memory = false});
  EXPECT_EQ(error_of(none.manager.alloc<std::byte>(1)).kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(none.manager.device().memory_info().free, 0U);
  EXPECT_EQ(none.manager.device().memory_info().total, 345 * kMiB);
  EXPECT_EQ(none.manager.stats().claimed, 0U);
  EXPECT_EQ(none.manager.pressure_level(), PressureLevel::none);
  EXPECT_TRUE(none.manager.audit().clean());
}

// S16: what a device caches is nobody's use.
TEST(DeviceCases, cached_blocks_do_not_count_against_the_budget) {
  auto host = host_manager(MemoryBudget::with_limit(kGiB),
                           {.total_bytes = 2 * kGiB, .release_threshold_bytes = kGiB, .touch_memory = false});
  ASSERT_TRUE(host.manager.alloc<std::byte>(512 * kMiB)->release());
  ASSERT_EQ(host.resource->usage().cached, 512 * kMiB);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  auto next = host.manager.alloc<std::byte>(768 * kMiB);
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(host.manager.allocated_bytes(), 768 * kMiB);
  EXPECT_EQ(host.resource->usage().cached, 512 * kMiB);
}

// S16, the device's side: 512 MiB lie in the cache and 512 in a hole, which are not 768 in one piece until the cache is trimmed.
TEST(DeviceCases, a_cache_is_trimmed_before_a_shortage_is_believed_and_the_order_is_seen) {
  auto host =
      host_manager(MemoryBudget::with_limit(kGiB), {.total_bytes = kGiB, .release_threshold_bytes = kGiB, .touch_memory = false});
  ASSERT_TRUE(host.manager.alloc<std::byte>(512 * kMiB)->release());
  ASSERT_EQ(host.resource->usage().cached, 512 * kMiB);
  EventWatch events;
  auto next = host.manager.alloc<std::byte>(768 * kMiB, AllocTag{"case-trimmed-for"});
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(host.resource->usage().cached, 0U);
  EXPECT_EQ(host.manager.stats().refusals, 0U);
  const auto trims = events.of(host.manager, flight::EventKind::trim);
  const auto allocations = events.of(host.manager, flight::EventKind::allocate);
  ASSERT_EQ(trims.size(), 1U);
  ASSERT_EQ(allocations.size(), 1U);
  EXPECT_EQ(trims[0].ring, flight::Ring::journal);
  EXPECT_EQ(trims[0].words[2], 512 * kMiB) << "came back";
  EXPECT_EQ(trims[0].bytes(), 768 * kMiB) << "for";
  EXPECT_EQ(trims[0].tag(), allocations[0].tag());
  EXPECT_LE(trims[0].ticks, allocations[0].ticks) << "trim, then allocate";

  // A request that even an empty cache cannot help is told what was tried.
  ASSERT_TRUE(next->release());
  auto kept = host.manager.alloc<std::byte>(256 * kMiB).value();
  const Error refused = error_of(host.manager.alloc<std::byte>(768 * kMiB + 1));
  EXPECT_EQ(refused.kind, ErrorKind::over_budget);
  host.manager.set_budget(MemoryBudget::unlimited());
  const Error short_of = error_of(host.manager.alloc<std::byte>(768 * kMiB + 1));
  EXPECT_EQ(short_of.kind, ErrorKind::device_out_of_memory);
  EXPECT_NE(short_of.message.find("512 MiB of cached memory were given back and did not suffice"), std::string::npos)
      << short_of.message;
}

// S16 in a stack whose account stands between: it trims itself, for whoever asks it.
TEST(DeviceCases, an_account_trims_before_it_believes_the_device) {
  auto host = HostResource::create({.total_bytes = kGiB, .release_threshold_bytes = kGiB, .touch_memory = false}).value();
  auto stack = GlobalDeviceBudget::create(host_device_over(host).value(), MemoryBudget::with_limit(kGiB)).value();
  ASSERT_TRUE(stack->deallocate(stack->allocate({.bytes = 512 * kMiB}).value()));
  const auto before = events_of(flight::EventKind::trim).size();
  EXPECT_TRUE(stack->allocate({.bytes = 768 * kMiB}));
  const auto trims = events_of(flight::EventKind::trim);
  ASSERT_EQ(trims.size(), before + 1);
  EXPECT_EQ(trims.back().ledger(), stack->account().ledger_cell().value_or(0xFFF)) << "0xFFF: earlier tests took all cells";
  EXPECT_EQ(stack->account().stats().refusals, 0U);
}

// S30
TEST(DeviceCases, a_device_that_was_never_used_has_zeros_of_its_own) {
  auto first = host_manager(MemoryBudget::unlimited(), {.touch_memory = false, .ordinal = 0});
  auto second = host_manager(MemoryBudget::unlimited(), {.touch_memory = false, .ordinal = 1});
  auto held = first.manager.alloc<std::byte>(12345).value();
  EXPECT_FALSE(first.manager.alloc<std::byte>(SIZE_MAX));
  const auto stats = second.manager.stats();
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_EQ(stats.claimed, 0U);
  EXPECT_EQ(stats.peak, 0U);
  EXPECT_EQ(stats.allocations, 0U);
  EXPECT_EQ(stats.refusals, 0U);
  EXPECT_EQ(second.manager.alloc_count(), 0U);
  EXPECT_EQ(second.manager.device().ordinal(), 1);
  const auto seen = snapshot_of(second.manager);
  EXPECT_EQ(seen.device_ordinal, 1);
  EXPECT_EQ(seen.allocated, 0U);
  EXPECT_EQ(snapshot_of(first.manager).device_ordinal, 0);
  EXPECT_EQ(snapshot_of(first.manager).allocated, 12345U);
}

// S34 and S35
TEST(DeviceCases, an_out_of_memory_with_memory_free_says_why) {
  auto host = host_manager(MemoryBudget::with_limit(8 * kGiB),
                           {.total_bytes = 9 * kGiB, .context_overhead_bytes = kGiB, .touch_memory = false});
  std::vector<TrackedBuffer<std::byte>> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(host.manager.alloc<std::byte>(kGiB, AllocTag{"case-kept"}).value());
  for (std::size_t i = 0; i < 8; i += 2) ASSERT_TRUE(blocks[i].release());
  const Error error = error_of(host.manager.alloc<std::byte>(2 * kGiB));
  EXPECT_EQ(error.kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(error.layer, Layer::driver) << "who refused: not the budget";
  EXPECT_EQ(error.requested, 2 * kGiB);
  EXPECT_EQ(error.device_free, 4 * kGiB);
  EXPECT_EQ(error.current, 4 * kGiB) << "in the ledger";
  EXPECT_EQ(error.limit, 8 * kGiB);
  EXPECT_STREQ(error.holders[0].tag, "case-kept");
  EXPECT_EQ(error.holders[0].bytes, 4 * kGiB);
  EXPECT_NE(error.message.find("largest hole 1 GiB of 4 GiB free in 4 holes, fragmentation 75 % (1 - largest / free)"),
            std::string::npos)
      << error.message;
  EXPECT_EQ(error.device_total, 9 * kGiB);
  EXPECT_EQ(error.device_outside, kGiB) << "outside the ledger";
  const std::string sentence = error.to_string();
  EXPECT_NE(sentence.find("2 GiB refused by driver (device_out_of_memory): 4 GiB of 8 GiB claimed (case-kept 4 GiB), peak 8 GiB, "
                          "4 GiB of 9 GiB free on the device, 1 GiB used outside the ledgers"),
            std::string::npos)
      << sentence;
  EXPECT_EQ(host.manager.claimed_bytes(), 4 * kGiB);
}

// S50: no layer and no second try drops the alignment.
TEST(DeviceCases, alignment_survives_layers_and_the_second_try) {
  auto host = HostResource::create({.total_bytes = kMiB, .touch_memory = false, .stream_ordered = true}).value();
  auto watching = decorate<WatchingDecorator>(host).value();
  int asked = 0;
  watching->in_allocate = [&] { ++asked; };
  auto device = Device::custom("aligned", watching).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  auto small = manager.alloc<std::byte>(256).value();  // so that the next place is aligned to 256 and no more
  ASSERT_TRUE(manager.alloc<std::byte>(kMiB - 256)->release());
  ASSERT_EQ(host->usage().pending, kMiB - 256) << "the device is full until it is reaped";
  asked = 0;
  EventWatch events;
  auto aligned = manager.alloc<std::byte>(1000, AllocOptions{.alignment = 4096});
  ASSERT_TRUE(aligned) << aligned.error().to_string();
  EXPECT_EQ(asked, 2) << "refused, then asked again";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned->data()) % 4096, 0U);
  const auto recorded = events.of(manager, flight::EventKind::allocate);
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].words[3] >> 48 & 63U, 12U) << "log2 of 4096";
  std::uint64_t in_table = 0;
  flight::FlightView::of_this_process()->for_each_live([&](flight::LiveAllocation const& live) {
    if (live.ledger == manager.ledger_cell() && live.bytes == 1000) in_table = live.alignment;
  });
  EXPECT_EQ(in_table, 4096U);
}

// S65: cudaErrorIllegalAddress from a free, while an exception is under way.
TEST(DeviceCases, a_free_that_fails_in_a_destructor_is_counted_by_its_kind_and_its_bytes_stay_charged) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  EventWatch events;
  EXPECT_THROW(
      {
        auto buffer = host.manager.alloc<std::byte>(600).value();
        throw std::runtime_error{"unwinding"};
      },
      std::runtime_error);
  const auto ledger = snapshot_of(host.manager);
  EXPECT_EQ(ledger.free_failures[static_cast<std::size_t>(ErrorKind::driver)], 1U);
  EXPECT_EQ(ledger.failed_frees, 1U);
  EXPECT_EQ(ledger.failed_free_bytes, 600U);
  EXPECT_EQ(host.manager.remaining_bytes(), 400U) << "not silently back in the budget";
  const auto failed = events.of(host.manager, flight::EventKind::free_failed);
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].bytes(), 600U);
  EXPECT_EQ(failed[0].error_kind(), ErrorKind::driver);
}

// S103: the request that fails is in the file before anyone knows how it ends, and stays there as a refusal.
TEST(DeviceCases, a_request_is_in_the_file_while_the_driver_decides_and_after_it_refused) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto watching = decorate<WatchingDecorator>(host).value();
  auto manager = GpuMemoryManager::create(Device::custom("watched", watching).value(), MemoryBudget::with_limit(5000)).value();
  host->faults().add({.operation = FaultOperation::allocate});
  EventWatch events;
  std::vector<flight::InFlightOperation> during;
  watching->in_allocate = [&] {
    during = flight::FlightView::of_this_process()->in_flight();
    std::erase_if(during, [&](auto const& operation) { return operation.ledger != manager.ledger_cell(); });
  };
  const Error refused = error_of(manager.alloc<std::byte>(1234));
  EXPECT_EQ(refused.kind, ErrorKind::device_out_of_memory);
  ASSERT_EQ(during.size(), 1U);
  EXPECT_EQ(during[0].operation, flight::InFlight::allocating);
  EXPECT_EQ(during[0].bytes, 1234U);
  const auto recorded = events.of(manager, flight::EventKind::refusal);
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].error_kind(), ErrorKind::device_out_of_memory);
  EXPECT_EQ(snapshot_of(manager).in_flight_bytes, 0U);
}

}  // namespace
}  // namespace headroom::test
