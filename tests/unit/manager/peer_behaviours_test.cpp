// What the tests of other memory managers demand, where no test of a single part shows it: see tests/peers.md.
#include <array>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <headroom/logging_resource.hpp>

#include "device_budgets.hpp"
#include "doors.hpp"
#include "fake_stack.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kAlign = kMinimumAlignment;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Sizes of the manager's live blocks as a reader of the flight file finds them, smallest first.
std::vector<std::uint64_t> listed(GpuMemoryManager const& manager) {
  std::vector<std::uint64_t> sizes;
  flight::FlightView::of_this_process()->for_each_live([&](flight::LiveAllocation const& live) {
    if (live.ledger == manager.ledger_cell()) sizes.push_back(live.bytes);
  });
  std::ranges::sort(sizes);
  return sizes;
}

GpuMemoryManager through(BudgetStack const& stack, MemoryBudget budget) {
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  return GpuMemoryManager::with_runtime(stack.device, budget, runtime).value();
}

// ── limits ──

TEST(PeerLimits, a_request_of_the_whole_limit_leaves_nothing) {
  auto manager = null_manager(MemoryBudget::with_limit(4096));
  auto whole = manager.alloc<std::byte>(4096).value();
  EXPECT_EQ(manager.allocated_bytes(), 4096U);
  EXPECT_EQ(manager.claimed_bytes(), 4096U);
  EXPECT_EQ(manager.remaining_bytes(), 0U);
  EXPECT_EQ(manager.peak_bytes(), 4096U);
  ASSERT_TRUE(whole.release());
  EXPECT_EQ(manager.remaining_bytes(), 4096U);
}

TEST(PeerLimits, between_two_stacked_limits_nothing_stays_in_either_book) {
  auto stack = stack_of(MemoryBudget::with_limit(500));
  auto manager = through(stack, MemoryBudget::with_limit(1000));
  const auto inner = manager.alloc<std::byte>(700);
  ASSERT_FALSE(inner);
  EXPECT_EQ(inner.error().layer, Layer::device_account);
  EXPECT_EQ(inner.error().limit, 500U);
  EXPECT_EQ(inner.error().required, 700U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(manager.remaining_bytes(), 1000U);
  expect_empty(stack.budget->account());
  const auto outer = manager.alloc<std::byte>(1001);
  ASSERT_FALSE(outer);
  EXPECT_EQ(outer.error().layer, Layer::manager);
  EXPECT_EQ(stack.stats().refusals, 1U) << "the account was not asked again";
  auto fits = manager.alloc<std::byte>(500).value();
  EXPECT_EQ(manager.allocated_bytes(), 500U);
  EXPECT_EQ(stack.stats().allocated, 500U);
}

struct NoException {};

TEST(PeerLimits, whatever_the_upstream_throws_is_rolled_back_at_every_level) {
  const std::array<std::function<void()>, 4> throwers{[] { throw std::runtime_error{"on purpose"}; },
                                                      [] { throw std::bad_alloc{}; }, [] { throw 42; },
                                                      [] { throw NoException{}; }};
  auto stack = stack_of(MemoryBudget::with_limit(1000));
  auto manager = through(stack, MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(300).value();
  for (auto const& thrower : throwers) {
    stack.watching->in_allocate = thrower;
    const auto refused = manager.alloc<std::byte>(400);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(manager.claimed_bytes(), 300U);
    EXPECT_EQ(stack.stats().claimed, 300U);
    EXPECT_EQ(stack.host->bytes_outstanding(), 300U);
    expect_balanced(stack.budget->account());
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }
  EXPECT_EQ(manager.stats().refusals, 4U);
  stack.watching->in_allocate = [] {};
  EXPECT_TRUE(manager.alloc<std::byte>(700)) << "nothing of the four is left behind";
}

TEST(PeerLimits, sizes_are_charged_as_asked_for_whatever_the_device_rounds_them_to) {
  auto host = host_manager(MemoryBudget::with_limit(3), {.total_bytes = kMiB, .granularity_bytes = 65536, .touch_memory = false});
  std::vector<TrackedBuffer<std::byte>> ones;
  for (int i = 0; i < 3; ++i) ones.push_back(host.manager.alloc<std::byte>(1).value());
  EXPECT_EQ(host.manager.allocated_bytes(), 3U);
  EXPECT_EQ(host.manager.remaining_bytes(), 0U);
  EXPECT_EQ(host.resource->memory_info().free, kMiB - 3 * 65536U);
  EXPECT_EQ(host.manager.alloc<std::byte>(1).error().kind, ErrorKind::over_budget);
  ones.pop_back();
  EXPECT_EQ(host.manager.allocated_bytes(), 2U);
  EXPECT_EQ(host.manager.remaining_bytes(), 1U);
}

TEST(PeerLimits, what_a_device_caches_is_under_no_limit) {
  auto host = host_manager(MemoryBudget::with_limit(512 * kMiB),
                           {.total_bytes = 1024 * kMiB, .release_threshold_bytes = 512 * kMiB, .touch_memory = false});
  ASSERT_TRUE(host.manager.alloc<std::byte>(512 * kMiB)->release());
  ASSERT_EQ(host.resource->usage().cached, 512 * kMiB);
  host.manager.set_budget(MemoryBudget::with_limit(256 * kMiB));
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.remaining_bytes(), 256 * kMiB);
  EXPECT_EQ(snapshot_of(host.manager).over_budget(), 0U);
  EXPECT_TRUE(host.manager.alloc<std::byte>(256 * kMiB));
  EXPECT_EQ(host.manager.alloc<std::byte>(256 * kMiB + 1).error().kind, ErrorKind::over_budget);
  EXPECT_EQ(host.resource->trim(0).value(), 512 * kMiB) << "what makes room on the device";
  EXPECT_EQ(host.resource->memory_info().free, 1024 * kMiB);
}

// ── figures ──

TEST(PeerFigures, are_exact_after_ten_in_five_out_ten_in_and_all_out) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::vector<TrackedBuffer<std::byte>> held;
  const auto expect = [&](std::uint64_t bytes, std::uint64_t peak, std::uint64_t blocks, std::uint64_t in, std::uint64_t out) {
    const auto stats = manager.stats();
    EXPECT_EQ(stats.allocated, bytes);
    EXPECT_EQ(stats.peak, peak);
    EXPECT_EQ(stats.live_allocations, blocks);
    EXPECT_EQ(stats.allocations, in);
    EXPECT_EQ(stats.frees, out);
    EXPECT_EQ(stats.allocation_bytes, in * 100);
    EXPECT_EQ(stats.deallocation_bytes, out * 100);
  };
  const auto add = [&] {
    for (int i = 0; i < 10; ++i) held.push_back(manager.alloc<std::byte>(100).value());
  };
  add();
  expect(1000, 1000, 10, 10, 0);
  held.resize(5);
  expect(500, 1000, 5, 10, 5);  // the peak stays
  add();
  expect(1500, 1500, 15, 20, 5);
  held.clear();
  expect(0, 1500, 0, 20, 20);
}

// ── tracking ──

TEST(PeerTracking, balanced_use_leaves_no_block_listed) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  std::vector<RawBlock> blocks;
  for (std::uint64_t i = 1; i <= 100; ++i) blocks.push_back(door.allocate_block(10 * i, kAlign, {}).value());
  EXPECT_EQ(listed(host.manager).size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) ASSERT_TRUE(door.deallocate(blocks[(i * 37) % 100]));  // another order
  EXPECT_TRUE(listed(host.manager).empty());
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
}

TEST(PeerTracking, freeing_every_second_block_lists_exactly_the_others) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  std::vector<RawBlock> blocks;
  for (std::uint64_t i = 1; i <= 10; ++i) blocks.push_back(door.allocate_block(100 * i, kAlign, {}).value());
  for (std::size_t i = 1; i < 10; i += 2) ASSERT_TRUE(door.deallocate(blocks[i]));
  EXPECT_EQ(listed(host.manager), (std::vector<std::uint64_t>{100, 300, 500, 700, 900}));
  for (std::size_t i = 0; i < 10; ++i) {
    const auto found = door.find(blocks[i].pointer);
    EXPECT_EQ(found.has_value(), i % 2 == 0) << i;
    if (found) {
      EXPECT_EQ(found->bytes, 100 * (i + 1));
    }
  }
  EXPECT_EQ(host.manager.allocated_bytes(), 2500U);
  for (std::size_t i = 0; i < 10; i += 2) ASSERT_TRUE(door.deallocate(blocks[i]));
}

// ── what every resource and its users may rely on ──

// Only what a DeviceResource must bring, nothing more.
class MinimalResource final : public DeviceResource {
public:
  Result<Block> allocate(AllocRequest const& request) override {
    next_ += 1 << 20;
    outstanding_ += request.bytes;
    return Block{.pointer = std::bit_cast<void*>(next_),
                 .bytes = request.bytes,
                 .alignment = request.alignment,
                 .stream = request.stream,
                 .tag = request.tag};
  }
  Result<void> deallocate(Block const& block) override {
    outstanding_ -= block.bytes;
    return {};
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return outstanding_; }
  [[nodiscard]] std::string_view name() const noexcept override { return "minimal"; }

private:
  std::uint64_t next_ = std::uint64_t{1} << 45;
  std::uint64_t outstanding_ = 0;
};

TEST(PeerContract, a_resource_of_four_functions_works_below_everything) {
  auto minimal = std::make_shared<MinimalResource>();
  auto device = Device::custom("minimal", minimal).value();
  auto logged = LoggingResource::create(FaultResource::create(minimal).value()).value();
  auto budget = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(2000), logged).value();
  auto runtime = DeviceRuntime::create(device, {.stack = budget}).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1500), runtime).value();
  auto door = door_on(manager);
  auto buffer = manager.alloc<float>(100).value();
  auto raw = manager.alloc_raw(300, AllocTag{"raw"}).value();
  auto reservation = manager.reserve_bytes(200).value();
  auto reserved = reservation.alloc<std::byte>(200).value();
  void* const pointer = door.allocate(600, kAlign, {}).value();
  EXPECT_EQ(minimal->bytes_outstanding(), 1500U);  // 400 + 300 + 200 + 600
  EXPECT_EQ(budget->account().stats().allocated, 1500U);
  EXPECT_EQ(door.allocate(1, kAlign, {}).error().layer, Layer::manager);
  ASSERT_TRUE(door.deallocate(pointer, 600));
  ASSERT_TRUE(buffer.release());
  ASSERT_TRUE(raw.release());
  ASSERT_TRUE(reserved.release());
  EXPECT_EQ(minimal->bytes_outstanding(), 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(budget->account().stats().claimed, 0U);
}

TEST(PeerContract, every_decorator_tells_what_stands_below_it) {
  auto below = std::make_shared<MinimalResource>();
  auto other = std::make_shared<MinimalResource>();
  auto device = Device::custom("minimal", below).value();
  const auto logged = LoggingResource::create(below).value();
  const auto faulty = FaultResource::create(below).value();
  const auto budget = GlobalDeviceBudget::create(device, MemoryBudget::unlimited(), logged).value();
  EXPECT_EQ(logged->inner(), below.get());
  EXPECT_EQ(faulty->inner(), below.get());
  EXPECT_EQ(budget->inner(), logged.get());
  EXPECT_EQ(below->inner(), nullptr);
  // Equality is that of handles: the same object or not, whatever it decorates.
  const auto copy = device;
  EXPECT_EQ(copy, device);
  EXPECT_NE(Device::custom("minimal", other).value(), device);
  const auto runtime = DeviceRuntime::create(device, {.stack = logged}).value();
  const auto same = runtime;
  EXPECT_EQ(same, runtime);
  EXPECT_NE(DeviceRuntime::create(device, {.stack = faulty}).value(), runtime);
}

TEST(PeerContract, allocations_go_on_after_a_stream_ended_that_earlier_frees_used) {
  auto host = host_manager(MemoryBudget::with_limit(1000), {.total_bytes = kMiB, .touch_memory = false, .stream_ordered = true});
  const StreamId stream = host.resource->create_stream().value();
  ASSERT_TRUE(host.resource->enqueue_work(stream, std::chrono::milliseconds{5}));
  ASSERT_TRUE(host.manager.alloc<std::byte>(600, AllocOptions{.stream = stream})->release());
  ASSERT_EQ(host.resource->usage().pending, 600U);
  ASSERT_TRUE(host.resource->destroy_stream(stream));
  auto next = host.manager.alloc<std::byte>(1000);
  EXPECT_TRUE(next);
  const auto refused = host.manager.alloc<std::byte>(1, AllocOptions{.stream = stream});
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget) << "the budget looks first";
  ASSERT_TRUE(next->release());
  EXPECT_EQ(host.manager.alloc<std::byte>(1, AllocOptions{.stream = stream}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.resource->reap_pending(ReapMode::synchronize), 1600U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

TEST(PeerContract, copies_of_a_manager_share_its_books_and_blocks_outlive_them_all) {
  std::optional<TrackedBuffer<std::byte>> left;
  std::shared_ptr<HostResource> resource;
  {
    auto host = host_manager(MemoryBudget::with_limit(1000));
    resource = host.resource;
    GpuMemoryManager copy = host.manager;
    left = copy.alloc<std::byte>(700).value();
    EXPECT_EQ(host.manager.allocated_bytes(), 700U);
    copy.set_budget(MemoryBudget::with_limit(800));
    EXPECT_EQ(host.manager.budget_limit_bytes(), 800U);
    EXPECT_FALSE(host.manager.alloc<std::byte>(101));
  }
  EXPECT_EQ(resource->bytes_outstanding(), 700U);
  std::thread{[&] { EXPECT_TRUE(left->release()); }}.join();
  EXPECT_EQ(resource->bytes_outstanding(), 0U);
}

}  // namespace
}  // namespace headroom::test
