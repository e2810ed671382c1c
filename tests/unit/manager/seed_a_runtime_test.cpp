// What a runtime adds to a manager and what it leaves as it was: the way through the stack, both budgets, overlays, reaping.
// tests/seed-a.md says which demand each of these tests stands for.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device_budgets.hpp"
#include "fake_stack.hpp"
#include "ledger_figures.hpp"
#include "log_events.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

// ── the same with and without ──

GpuMemoryManager manager_either_way(std::shared_ptr<HostResource> const& host, bool with_runtime) {
  auto device = host_device_over(host).value();
  if (!with_runtime) return GpuMemoryManager::create(device, MemoryBudget::with_limit(1000), "either").value();
  auto stack = std::make_shared<FakeStack>(host, FakeStackOptions{.limit = 100'000});
  auto runtime = DeviceRuntime::create(device, {.stack = std::move(stack)}).value();
  return GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1000), runtime, "either").value();
}

class EitherWay : public ::testing::TestWithParam<bool> {};

TEST_P(EitherWay, the_same_requests_leave_the_same_figures) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto manager = manager_either_way(host, GetParam());
  EXPECT_EQ(manager.runtime() != nullptr, GetParam());
  EXPECT_EQ(manager.name(), "either");
  EXPECT_EQ(manager.budget(), MemoryBudget::with_limit(1000));
  EXPECT_EQ(manager.device().shared_resource(), host);
  EXPECT_EQ(figures_of(manager), LedgerFigures{});
  {
    auto first = manager.alloc<std::uint64_t>(50).value();
    EXPECT_EQ(first.size(), 50U);
    EXPECT_EQ(figures_of(manager), (LedgerFigures{.claimed = 400, .allocated = 400, .peak = 400, .requests = 1}));
    EXPECT_EQ(host->bytes_outstanding(), 400U);
    auto over = manager.alloc<std::byte>(601);
    ASSERT_FALSE(over);
    EXPECT_EQ(over.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(over.error().layer, Layer::manager);
    EXPECT_EQ(over.error().required, 1001U);
    host->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
    auto failed = manager.alloc<std::byte>(1);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::driver);
    EXPECT_EQ(failed.error().device_code, 700);
    auto reservation = manager.reserve_bytes(300).value();
    auto paid = reservation.alloc<std::byte>(200).value();
    EXPECT_EQ(figures_of(manager), (LedgerFigures{.claimed = 700, .allocated = 600, .peak = 600, .requests = 4}));
    EXPECT_EQ(manager.remaining_bytes(), 300U);
    EXPECT_FALSE(manager.record_free(1));
    EXPECT_FALSE(manager.reset_tracking());
  }
  EXPECT_EQ(figures_of(manager), (LedgerFigures{.peak = 600, .requests = 4}));
  EXPECT_EQ(host->bytes_outstanding(), 0U) << "given back where it came from, by destruction alone";
  {
    auto kept = manager.alloc<std::byte>(100).value();
    host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  }
  const LedgerFigures charged{
      .claimed = 100, .allocated = 100, .peak = 600, .requests = 5, .failed_frees = 1, .failed_bytes = 100};
  EXPECT_EQ(figures_of(manager), charged);
  EXPECT_EQ(manager.retry_failed_deallocations(), 1U);
  EXPECT_TRUE(manager.reset_tracking());
  manager.reset_alloc_count();
  EXPECT_EQ(figures_of(manager), (LedgerFigures{.failed_frees = 1}));
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}
INSTANTIATE_TEST_SUITE_P(Runtime, EitherWay, ::testing::Bool(),
                         [](auto const& way) { return std::string{way.param ? "with" : "without"}; });

// ── through the stack ──

TEST(UsualStack, carries_requests_through_budget_and_log_to_the_device_and_back) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto device = host_device_over(host).value();
  auto log = LoggingResource::create(host).value();
  auto budget = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(900), log).value();
  auto runtime = DeviceRuntime::create(device, {.stack = budget}).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1000), runtime).value();
  const AllocTag tag{"usual"};
  {
    auto typed = manager.alloc<std::uint32_t>(100, tag).value();
    auto raw = manager.alloc_raw(300, tag).value();
    EXPECT_EQ(budget->account().stats().claimed, 700U);
    EXPECT_EQ(host->bytes_outstanding(), 700U);
    auto refused = manager.alloc<std::byte>(201);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().layer, Layer::device_account);
    EXPECT_EQ(log->operations(), 2U) << "refused by the budget above it";
  }
  expect_empty(budget->account());
  EXPECT_EQ(host->bytes_outstanding(), 0U);
  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 4U);
  const std::uint64_t bytes[] = {400, 300, 300, 400};  // the younger goes first
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i].kind, i < 2 ? flight::EventKind::resource_allocate : flight::EventKind::resource_free);
    EXPECT_EQ(lines[i].bytes(), bytes[i]);
    EXPECT_EQ(lines[i].tag(), tag.id());
  }
}

// A device and a stack that both write down what they are asked.
struct Recorded {
  explicit Recorded(std::optional<std::uint64_t> limit = std::nullopt)
      : below{std::make_shared<RecordingResource>()},
        device{Device::custom("recording", below).value()},
        stack{std::make_shared<FakeStack>(below, FakeStackOptions{.limit = limit})},
        runtime{DeviceRuntime::create(device, {.stack = stack}).value()},
        manager{GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(5000), runtime).value()} {}
  std::shared_ptr<RecordingResource> below;
  Device device;
  std::shared_ptr<FakeStack> stack;
  DeviceRuntime runtime;
  GpuMemoryManager manager;
};

TEST(RoutedManager, reaches_the_device_through_its_stack_alone) {
  Recorded recorded{10'000};
  {
    auto typed = recorded.manager.alloc<std::uint64_t>(10).value();
    auto raw = recorded.manager.alloc_raw(70, AllocTag{}).value();
    auto reservation = recorded.manager.reserve_bytes(200).value();
    auto paid = reservation.alloc<std::byte>(60).value();
    auto paid_raw = reservation.alloc_raw(50, AllocTag{}).value();
    EXPECT_EQ(recorded.stack->figures().allocates, 4);
    EXPECT_EQ(recorded.below->calls.size(), 4U);
  }
  EXPECT_EQ(recorded.stack->figures().deallocates, 4) << "destroyed, and given back the same way";
  EXPECT_EQ(recorded.stack->figures().claimed, 0U);
  EXPECT_EQ(recorded.below->calls.size(), 8U);
  EXPECT_EQ(recorded.manager.claimed_bytes(), 0U);
}

TEST(RoutedManager, empty_requests_hold_nothing_and_reach_no_layer) {
  Recorded recorded{0};
  {
    auto typed = recorded.manager.alloc<double>(0);
    auto raw = recorded.manager.alloc_raw(0, AllocTag{});
    ASSERT_TRUE(typed);
    ASSERT_TRUE(raw);
    EXPECT_EQ(typed->data(), nullptr);
    EXPECT_EQ(raw->data(), nullptr);
  }
  EXPECT_EQ(recorded.stack->figures().allocates, 0);
  EXPECT_EQ(recorded.stack->figures().deallocates, 0);
  EXPECT_TRUE(recorded.below->calls.empty());
  EXPECT_EQ(figures_of(recorded.manager), (LedgerFigures{.requests = 1}));
  EXPECT_EQ(recorded.manager.raw_alloc_count(), 1U);
}

TEST(RoutedManager, hands_out_a_typed_view_of_the_stacks_own_memory) {
  FakeRuntime fake{{.limit = 1000}, {.touch_memory = true}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto buffer = manager.alloc<std::uint32_t>(3).value();
  static_assert(std::is_same_v<decltype(buffer), TrackedBuffer<std::uint32_t>>);
  static_assert(std::is_same_v<decltype(buffer.data()), std::uint32_t*>);
  EXPECT_EQ(buffer.size(), 3U);
  EXPECT_EQ(buffer.size_bytes(), 12U);
  ASSERT_EQ(buffer.host_span().size(), 3U);
  buffer.data()[2] = 0x01020304;
  EXPECT_EQ(buffer.host_span()[2], 0x01020304U);
  EXPECT_EQ(fake.host->bytes_outstanding(), 12U);

  Recorded recorded;
  auto mapped = recorded.manager.alloc<std::uint32_t>(3).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped.data()), 0x11000U) << "where the resource put it";
}

TEST(RoutedManager, raw_requests_arrive_below_with_tag_stream_and_alignment) {
  Recorded recorded;
  const AllocTag tag{"raw-below"};
  void* address = nullptr;
  {
    auto block = recorded.manager.alloc_raw(333, AllocOptions{.tag = tag, .stream = {6}, .alignment = 2048}).value();
    static_assert(std::is_same_v<decltype(block.data()), void*>);
    EXPECT_EQ(block.size_bytes(), 333U);
    address = block.data();
    EXPECT_EQ(recorded.manager.allocated_bytes(), 333U);
  }
  ASSERT_EQ(recorded.below->calls.size(), 2U);
  auto const& asked = recorded.below->calls[0];
  EXPECT_EQ(asked.what, "allocate");
  EXPECT_EQ(asked.request.bytes, 333U);
  EXPECT_EQ(asked.request.alignment, 2048U);
  EXPECT_EQ(asked.request.stream, StreamId{6});
  EXPECT_EQ(asked.request.tag, tag.id());
  EXPECT_EQ(recorded.below->calls[1].what, "deallocate");
  EXPECT_EQ(recorded.below->calls[1].block.pointer, address);
  EXPECT_EQ(recorded.manager.allocated_bytes(), 0U);
}

TEST(RoutedManager, a_failure_below_keeps_its_kind_and_rolls_the_local_claim_back) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc_raw(400, AllocTag{}).value();
  for (const ErrorKind kind : {ErrorKind::driver, ErrorKind::device_out_of_memory, ErrorKind::stream_misuse}) {
    fake.host->faults().add({.operation = FaultOperation::allocate, .kind = kind, .device_code = 2});
    auto refused = manager.alloc_raw(600, AllocTag{});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, kind);
    EXPECT_EQ(refused.error().device_code, 2);
    EXPECT_EQ(manager.claimed_bytes(), 400U);
    EXPECT_EQ(fake.stack->figures().claimed, 400U);
  }
  EXPECT_TRUE(manager.alloc_raw(600, AllocTag{})) << "an exact fit in both budgets";
}

TEST(RoutedManager, raw_blocks_that_are_destroyed_settle_both_books_unless_the_free_failed) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  {
    auto block = manager.alloc_raw(300, AllocTag{}).value();
    EXPECT_EQ(fake.stack->figures().claimed, 300U);
  }
  EXPECT_EQ(figures_of(manager), (LedgerFigures{.peak = 300}));
  EXPECT_EQ(fake.stack->figures().deallocates, 1);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  {
    auto block = manager.alloc_raw(200, AllocTag{}).value();
    fake.host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  }
  EXPECT_EQ(figures_of(manager),
            (LedgerFigures{.claimed = 200, .allocated = 200, .peak = 300, .failed_frees = 1, .failed_bytes = 200}));
  EXPECT_EQ(fake.stack->figures().claimed, 200U);
}

// ── both budgets ──

TEST(RoutedManager, every_way_in_meets_the_local_budget) {
  FakeRuntime fake{{.limit = 100'000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto overlay = manager.with_runtime_overlay(fake.runtime).value();
  auto held = manager.alloc<std::byte>(400).value();
  auto expect_local = [](Error const& error) {
    EXPECT_EQ(error.kind, ErrorKind::over_budget);
    EXPECT_EQ(error.layer, Layer::manager);
    EXPECT_EQ(error.current, 400U);
    EXPECT_EQ(error.limit, 1000U);
  };
  expect_local(manager.alloc<std::byte>(601).error());
  expect_local(manager.alloc_raw(601, AllocTag{}).error());
  expect_local(manager.reserve_bytes(601).error());
  expect_local(overlay.alloc<std::byte>(601).error());
  expect_local(overlay.alloc_raw(601, AllocTag{}).error());
  EXPECT_EQ(fake.stack->figures().allocates, 1);
  EXPECT_EQ(fake.stack->figures().reserves, 0);
  EXPECT_TRUE(overlay.alloc_raw(600, AllocTag{}));
}

TEST(RoutedManager, looks_and_figures_are_of_the_local_budget_alone) {
  FakeRuntime fake{{.limit = 300}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(300).value();
  EXPECT_EQ(fake.runtime.budget_snapshot()->claimed_bytes, 300U);
  EXPECT_TRUE(manager.check_budget(700)) << "full below, which this does not look at";
  EXPECT_FALSE(manager.check_budget(701));
  EXPECT_EQ(manager.remaining_bytes(), 700U);
  EXPECT_EQ(manager.budget_limit_bytes(), 1000U);
  EXPECT_EQ(manager.alloc<std::byte>(1).error().layer, Layer::device_account);
}

// Shows a test what others see while a reservation is asked for below.
class ReserveWatcher final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "reserve-watcher";
  using ResourceDecorator::ResourceDecorator;
  std::function<void()> in_reserve = [] {};
  Result<void> reserve(std::uint64_t bytes) override {
    in_reserve();
    return ResourceDecorator::reserve(bytes);
  }
};

TEST(RoutedManager, reserves_below_before_its_own_books_move) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto device = host_device_over(host).value();
  auto fake = std::make_shared<FakeStack>(host, FakeStackOptions{.limit = 2000});
  auto watcher = decorate<ReserveWatcher>(fake).value();
  auto runtime = DeviceRuntime::create(device, {.stack = watcher}).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1000), runtime).value();
  auto held = manager.alloc<std::byte>(100).value();
  const LedgerFigures untouched{.claimed = 100, .allocated = 100, .peak = 100, .requests = 1};
  int looks = 0;
  watcher->in_reserve = [&] {
    ++looks;
    EXPECT_EQ(figures_of(manager), untouched);
  };
  auto reservation = manager.reserve_bytes(600).value();
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(fake->figures().unspent, 600U);
  EXPECT_EQ(figures_of(manager), (LedgerFigures{.claimed = 700, .allocated = 100, .peak = 100, .requests = 1}));
}

// ── overlays ──

TEST(TwoWaysIn, what_is_under_way_on_one_counts_on_the_other) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto watching = decorate<WatchingDecorator>(host).value();
  auto device = Device::custom("watched", watching).value();
  auto parent = GpuMemoryManager::create(device, MemoryBudget::with_limit(1000)).value();
  auto stack = std::make_shared<FakeStack>(watching, FakeStackOptions{});
  auto overlay = parent.with_runtime_overlay(DeviceRuntime::create(device, {.stack = stack}).value()).value();
  for (auto const& [first, second] : {std::pair{&parent, &overlay}, std::pair{&overlay, &parent}}) {
    std::optional<TrackedBuffer<std::byte>> rest;
    bool looked = false;  // once: what it asks for comes here as well
    watching->in_allocate = [&, other = second] {
      if (std::exchange(looked, true)) return;
      auto refused = other->alloc<std::byte>(401);
      ASSERT_FALSE(refused) << "600 of 1000 are claimed, though not delivered";
      EXPECT_EQ(refused.error().current, 600U);
      rest = other->alloc<std::byte>(400).value();
    };
    auto buffer = first->alloc<std::byte>(600).value();
    ASSERT_TRUE(rest);
    EXPECT_EQ(parent.allocated_bytes(), 1000U);
    EXPECT_EQ(overlay.remaining_bytes(), 0U);
  }
  EXPECT_EQ(parent.claimed_bytes(), 0U);
}

TEST(RefusedOverlay, keeps_neither_runtime_nor_books_open) {
  const auto is_open = [](std::string_view name) {
    for (auto const& ledger : flight::FlightView::of_this_process()->ledgers()) {
      if (ledger.name == name) return true;
    }
    return false;
  };
  FakeRuntime fake;
  std::optional parent{GpuMemoryManager::create(fake.device, MemoryBudget::with_limit(1000), "refused-overlay").value()};
  auto blind = std::make_shared<FakeStack>(fake.host, FakeStackOptions{.tracks_uses = false});
  const std::weak_ptr<FakeStack> stack = blind;
  std::optional runtime{DeviceRuntime::create(fake.device, {.stack = std::move(blind)}).value()};
  auto refused = parent->with_runtime_overlay(*runtime);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(figures_of(*parent), LedgerFigures{});
  EXPECT_EQ(parent->runtime(), nullptr);
  runtime.reset();
  EXPECT_TRUE(stack.expired());
  EXPECT_TRUE(is_open("refused-overlay"));
  parent.reset();
  EXPECT_FALSE(is_open("refused-overlay"));
}

// ── the runtime itself, and reaping ──

TEST(LentRuntime, shows_tests_and_diagnostics_the_very_stack) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::unlimited());
  auto held = manager.alloc<std::byte>(300).value();
  ASSERT_NE(manager.runtime(), nullptr);
  EXPECT_EQ(*manager.runtime(), fake.runtime);
  EXPECT_EQ(&manager.runtime()->stack(), fake.stack.get());
  EXPECT_EQ(manager.runtime()->budget_snapshot()->claimed_bytes, 300U);
  EXPECT_EQ(manager.runtime()->stack().bytes_outstanding(), 300U);
  EXPECT_EQ(manager.runtime()->device(), fake.device);
}

TEST(LentRuntime, of_the_caller_goes_on_without_the_manager) {
  FakeRuntime fake{{.limit = 1000}};
  std::optional manager{fake.manager(MemoryBudget::unlimited())};
  ASSERT_TRUE(manager->alloc<std::byte>(300).value().release());
  const DeviceRuntime mine = *manager->runtime();
  manager.reset();
  EXPECT_EQ(mine, fake.runtime);
  const auto block = mine.stack().allocate({.bytes = 1000}).value();
  EXPECT_EQ(mine.budget_snapshot()->claimed_bytes, 1000U);
  EXPECT_TRUE(mine.stack().deallocate(block));
}

TEST(Reaping, gives_what_follows_the_bytes_that_an_error_path_dropped) {
  const auto stack = stack_of(MemoryBudget::with_limit(1024), stream_ordered());
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  auto manager = GpuMemoryManager::with_runtime(stack.device, MemoryBudget::with_limit(5000), runtime).value();
  {
    std::vector<RuntimeAllocBlock> temporary;
    temporary.push_back(manager.alloc_raw(512, AllocTag{}).value());
    temporary.push_back(manager.alloc_raw(256, AllocTag{}).value());
    stack.fault->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver});
    EXPECT_FALSE(manager.alloc_raw(256, AllocTag{}));
  }
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(stack.stats().claimed, 768U) << "pending on their stream";
  EXPECT_EQ(stack.stats().pending_free, 768U);
  EXPECT_TRUE(manager.reap_pending_deallocations());
  expect_empty(stack.budget->account());
  const auto before = stack.host->now();
  EXPECT_TRUE(manager.alloc_raw(1024, AllocTag{}));
  EXPECT_EQ(stack.host->now(), before) << "the whole budget, and nothing had to be waited for";
}

}  // namespace
}  // namespace headroom::test
