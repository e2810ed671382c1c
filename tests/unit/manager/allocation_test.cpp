// Allocations and frees: figures, tags, failures of the device below.
#include <array>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "managers.hpp"

namespace headroom::test {
namespace {

TEST(Manager, starts_with_zeros_everywhere) {
  auto manager = null_manager(MemoryBudget::with_limit(1000), "fresh");
  const auto stats = manager.stats();
  EXPECT_EQ(stats.claimed, 0U);
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_EQ(stats.peak, 0U);
  EXPECT_EQ(stats.live_allocations, 0U);
  EXPECT_EQ(stats.allocations, 0U);
  EXPECT_EQ(stats.frees, 0U);
  EXPECT_EQ(stats.refusals, 0U);
  EXPECT_EQ(manager.alloc_count(), 0U);
  EXPECT_EQ(manager.name(), "fresh");
}

TEST(Manager, counts_bytes_and_blocks_exactly) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::vector<TrackedBuffer<std::uint32_t>> held;
  for (std::size_t i = 1; i <= 10; ++i) held.push_back(manager.alloc<std::uint32_t>(i * 10).value());
  EXPECT_EQ(manager.allocated_bytes(), 4U * 550);
  held.resize(5);  // frees 60, 70, 80, 90, 100 elements
  EXPECT_EQ(manager.allocated_bytes(), 4U * 150);
  EXPECT_EQ(manager.peak_bytes(), 4U * 550);
  EXPECT_EQ(manager.live_allocations(), 5U);
  const auto stats = manager.stats();
  EXPECT_EQ(stats.allocations, 10U);
  EXPECT_EQ(stats.frees, 5U);
  EXPECT_EQ(stats.allocation_bytes, 2200U);
  EXPECT_EQ(stats.deallocation_bytes, 1600U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Manager, alloc_count_counts_requests_also_failed_and_empty_ones) {
  auto manager = null_manager(MemoryBudget::with_limit(100));
  auto good = manager.alloc<std::byte>(100).value();
  static_cast<void>(manager.alloc<std::byte>(1));
  static_cast<void>(manager.alloc<std::byte>(0));
  static_cast<void>(manager.alloc<std::byte>(SIZE_MAX));
  EXPECT_EQ(manager.alloc_count(), 4U);
  manager.reset_alloc_count();
  EXPECT_EQ(manager.alloc_count(), 0U);
  static_cast<void>(manager.alloc<std::byte>(0));
  EXPECT_EQ(manager.alloc_count(), 1U);
}

TEST(Manager, empty_buffers_hold_nothing_and_may_be_freed_as_often_as_liked) {
  auto manager = null_manager(MemoryBudget::with_limit(0));
  std::vector<TrackedBuffer<double>> empties;
  for (int i = 0; i < 1000; ++i) empties.push_back(manager.alloc<double>(0).value());
  for (auto& buffer : empties) {
    EXPECT_TRUE(buffer.release());
    EXPECT_TRUE(buffer.release());
  }
  EXPECT_EQ(manager.live_allocations(), 0U);
  EXPECT_TRUE(manager.audit().clean());
}

TEST(Manager, reset_peak_starts_from_what_is_live) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto kept = manager.alloc<std::byte>(300).value();
  {
    auto passing = manager.alloc<std::byte>(700).value();
  }
  EXPECT_EQ(manager.peak_bytes(), 1000U);
  manager.reset_peak();
  EXPECT_EQ(manager.peak_bytes(), 300U);
  auto more = manager.alloc<std::byte>(50).value();
  EXPECT_EQ(manager.peak_bytes(), 350U);
}

TEST(Manager, tags_say_who_holds_what_now_and_at_the_peak) {
  auto manager = null_manager(MemoryBudget::unlimited());
  const AllocTag weights{"tag-weights"};
  const AllocTag cache{"tag-cache"};
  auto w = manager.alloc<std::byte>(500, weights).value();
  auto c = manager.alloc<std::byte>(300, cache).value();  // the peak: 800
  ASSERT_TRUE(c.release());
  auto untagged = manager.alloc<std::byte>(100).value();
  {
    const TagScope scope{cache};
    auto scoped = manager.alloc<std::byte>(50).value();
    EXPECT_EQ(tag_bytes(snapshot_of(manager), "tag-cache"), 50U);
  }
  const auto ledger = snapshot_of(manager);
  EXPECT_EQ(tag_bytes(ledger, "tag-weights"), 500U);
  EXPECT_EQ(tag_bytes(ledger, "tag-cache"), 0U);
  EXPECT_EQ(tag_bytes(ledger, "untagged"), 100U);
  std::uint64_t at_peak = 0;
  for (auto const& tag : ledger.tags) {
    at_peak += tag.at_peak_bytes;
    if (tag.name == "tag-cache") {
      EXPECT_EQ(tag.at_peak_bytes, 300U);
    }
  }
  EXPECT_EQ(at_peak, 800U);
}

TEST(Manager, folds_tags_beyond_the_table_into_other) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::vector<TrackedBuffer<std::byte>> held;
  for (int i = 0; i < 300; ++i) held.push_back(manager.alloc<std::byte>(10, AllocTag{"many-" + std::to_string(i)}).value());
  const auto ledger = snapshot_of(manager);
  std::uint64_t total = 0;
  for (auto const& tag : ledger.tags) total += tag.bytes;
  EXPECT_EQ(total, 3000U);
  EXPECT_GE(tag_bytes(ledger, "other"), 440U);  // 256 cells in all, one of them `other` itself
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Manager, host_memory_can_be_written_through_the_buffer) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1 << 20});
  auto buffer = host.manager.alloc<std::uint64_t>(16).value();
  ASSERT_EQ(buffer.host_span().size(), 16U);
  for (auto& element : buffer.host_span()) element = 7;
  EXPECT_EQ(buffer.data()[15], 7U);
}

TEST(Manager, alignment_is_honoured_and_a_wrong_one_refused) {
  auto host = host_manager(MemoryBudget::unlimited());
  std::vector<TrackedBuffer<std::byte>> held;
  held.push_back(host.manager.alloc<std::byte>(10).value());  // a device's first address would suit any alignment
  for (std::uint64_t alignment = kMinimumAlignment; alignment <= 1 << 20; alignment *= 2) {
    held.push_back(host.manager.alloc<std::byte>(10, AllocOptions{.alignment = alignment}).value());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.back().data()) % alignment, 0U) << alignment;
  }
  const auto wrong = host.manager.alloc<std::byte>(10, AllocOptions{.alignment = 300});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(wrong.error().message.find("300"), std::string::npos);
}

struct alignas(1024) Wide {
  std::byte bytes[1024];
};

TEST(Manager, a_types_own_alignment_is_the_least_and_hides_no_wrong_one) {
  auto host = host_manager(MemoryBudget::unlimited());
  const auto odd = host.manager.alloc<std::byte>(10).value();
  const auto wide = host.manager.alloc<Wide>(1).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide.data()) % 1024, 0U);
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1000}}) {
    const auto wrong = host.manager.alloc<Wide>(1, AllocOptions{.alignment = alignment});
    ASSERT_FALSE(wrong) << alignment;
    EXPECT_EQ(wrong.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(wrong.error().message, "alignment " + std::to_string(alignment) + " is no power of two");
  }
  EXPECT_EQ(host.manager.allocated_bytes(), 10 + sizeof(Wide));
}

TEST(Manager, a_full_device_is_its_own_kind_of_error_and_gives_the_claim_back) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1 << 20, .touch_memory = false});
  const auto refused = host.manager.alloc<std::byte>(2 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_free, std::uint64_t{1} << 20);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_TRUE(host.manager.audit().clean());
}

TEST(Manager, every_refusal_is_an_event_of_two_records_with_its_figures) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(900).value();
  static_cast<void>(manager.alloc<std::byte>(777));
  const auto refusals = events_of(flight::EventKind::refusal);
  ASSERT_GE(refusals.size(), 2U);
  auto const& head = refusals[refusals.size() - 2];
  auto const& tail = refusals.back();
  EXPECT_EQ(head.words[2], 777U);
  EXPECT_EQ(head.error_kind(), ErrorKind::over_budget);
  EXPECT_EQ(head.error_layer(), Layer::manager);
  EXPECT_NE(tail.flags() & flight::kFlagContinues, 0U);
  EXPECT_EQ(tail.words[flight::RefusalTail::kClaimed], 900U);
  EXPECT_EQ(tail.words[flight::RefusalTail::kLimit] & flight::kBytesMask, 1000U);
  EXPECT_EQ(tail.words[flight::RefusalTail::kPeak] & flight::kBytesMask, 900U);
}

TEST(Manager, a_failed_free_keeps_its_bytes_until_it_is_retried) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto buffer = host.manager.alloc<std::byte>(600).value();
  host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  const auto freed = buffer.release();
  ASSERT_FALSE(freed);
  EXPECT_EQ(freed.error().kind, ErrorKind::driver);
  EXPECT_EQ(host.manager.allocated_bytes(), 600U);
  EXPECT_EQ(host.manager.deallocation_failure_count(), 1U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 600U);
  const auto refused = host.manager.alloc<std::byte>(500);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().failed_free_bytes, 600U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();

  EXPECT_EQ(host.manager.retry_failed_deallocations(), 1U);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_count(), 1U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

TEST(Manager, a_destructor_never_throws_and_a_retry_that_fails_again_stays_charged) {
  auto host = host_manager(MemoryBudget::unlimited());
  host.resource->faults().add(
      {.operation = FaultOperation::deallocate, .times = 2, .kind = ErrorKind::driver, .device_code = 700});
  EXPECT_THROW(
      {
        auto buffer = host.manager.alloc<std::byte>(600).value();
        throw std::runtime_error{"unwinding"};
      },
      std::runtime_error);
  EXPECT_EQ(host.manager.retry_failed_deallocations(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 600U);
  EXPECT_EQ(host.manager.deallocation_failure_count(), 2U);
  EXPECT_EQ(host.manager.retry_failed_deallocations(), 1U);
  EXPECT_TRUE(host.manager.audit().clean());
}

TEST(Manager, a_write_off_returns_the_bytes_without_the_device) {
  auto host = host_manager(MemoryBudget::unlimited());
  host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  {
    auto buffer = host.manager.alloc<std::byte>(600).value();
  }
  EXPECT_EQ(host.manager.write_off_failed_deallocations(), 600U);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 600U);  // the device was not asked
  EXPECT_EQ(snapshot_of(host.manager).write_offs, 1U);
  EXPECT_EQ(host.manager.write_off_failed_deallocations(), 0U);
}

class ThrowingResource final : public DeviceResource {
public:
  Result<Block> allocate(AllocRequest const&) override { throw std::runtime_error{"on purpose"}; }
  Result<void> deallocate(Block const&) override { throw 42; }
  std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  std::string_view name() const noexcept override { return "throwing"; }
};

TEST(Manager, lets_no_exception_of_a_resource_out) {
  auto device = Device::custom("throwing", std::make_shared<ThrowingResource>()).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(1000)).value();
  const auto refused = manager.alloc<std::byte>(10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_NE(refused.error().message.find("on purpose"), std::string::npos);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(Manager, the_third_of_five_failing_leaves_nothing_behind) {
  auto host = host_manager(MemoryBudget::unlimited());
  host.resource->faults().add({.operation = FaultOperation::allocate, .nth = 3});
  {
    std::vector<TrackedBuffer<std::byte>> buffers;
    for (int i = 0; i < 5; ++i) {
      auto buffer = host.manager.alloc<std::byte>(100);
      if (!buffer) break;
      buffers.push_back(std::move(*buffer));
    }
    EXPECT_EQ(buffers.size(), 2U);
  }
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

TEST(Manager, a_buffer_may_be_freed_on_another_thread) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto buffer = manager.alloc<std::byte>(123, AllocTag{"crossing"}).value();
  std::thread{[moved = std::move(buffer)]() mutable { ASSERT_TRUE(moved.release()); }}.join();
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(tag_bytes(snapshot_of(manager), "crossing"), 0U);
  EXPECT_TRUE(manager.audit().clean());
}

TEST(Manager, buffers_outlive_every_handle_and_the_cell_is_used_again_with_fresh_figures) {
  std::optional<TrackedBuffer<std::byte>> survivor;
  std::uint32_t cell = 0;
  {
    auto manager = null_manager(MemoryBudget::with_limit(1000), "first-life");
    cell = manager.ledger_cell().value();
    survivor = manager.alloc<std::byte>(400, AllocTag{"survivor"}).value();
  }
  const auto names = [] {
    std::vector<std::string> all;
    for (auto const& ledger : flight::FlightView::of_this_process()->ledgers()) all.push_back(ledger.name);
    return all;
  };
  EXPECT_THAT(names(), ::testing::Contains("first-life"));
  survivor.reset();
  EXPECT_THAT(names(), ::testing::Not(::testing::Contains("first-life")));
  std::uint64_t peak_of_the_closed = 0;
  for (auto const& ledger : flight::FlightView::of_this_process()->all_ledgers()) {
    if (ledger.name == "first-life") peak_of_the_closed = ledger.peak;
  }
  EXPECT_EQ(peak_of_the_closed, 400U);

  std::vector<GpuMemoryManager> lives;  // other closed cells may be reused first
  while (lives.empty() || lives.back().ledger_cell() != cell) {
    ASSERT_LT(lives.size(), 200U) << "the cell was never used again";
    lives.push_back(null_manager(MemoryBudget::with_limit(5), "second-life"));
  }
  const auto ledger = snapshot_of(lives.back());
  EXPECT_EQ(ledger.name, "second-life");
  EXPECT_EQ(ledger.counters.allocations, 0U);
  EXPECT_EQ(ledger.peak, 0U);
  EXPECT_EQ(ledger.failures(), 0U);
  EXPECT_EQ(tag_bytes(ledger, "survivor"), 0U);
}

TEST(Manager, more_managers_than_cells_still_keep_right_books) {
  std::vector<GpuMemoryManager> managers;
  for (int i = 0; i < 70; ++i) managers.push_back(null_manager(MemoryBudget::with_limit(1000)));
  auto& last = managers.back();
  EXPECT_EQ(last.ledger_cell(), std::nullopt);
  auto buffer = last.alloc<std::byte>(900).value();
  EXPECT_FALSE(last.alloc<std::byte>(101));
  EXPECT_EQ(last.allocated_bytes(), 900U);
  EXPECT_EQ(last.alloc_count(), 2U);
  ASSERT_TRUE(buffer.release());
  EXPECT_EQ(last.allocated_bytes(), 0U);
  EXPECT_EQ(last.peak_bytes(), 900U);
  EXPECT_TRUE(last.audit().clean()) << last.audit().to_string();
}

TEST(Manager, sites_name_the_caller) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto buffer = manager.alloc<std::byte>(4321).value();
  const auto view = flight::FlightView::of_this_process().value();
  std::string site;
  view.for_each_live([&](flight::LiveAllocation const& live) {
    if (live.bytes == 4321) site = view.label(live.site);
  });
  EXPECT_NE(site.find("allocation_test.cpp:"), std::string::npos) << site;
}

}  // namespace
}  // namespace headroom::test
