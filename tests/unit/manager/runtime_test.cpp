// A manager with a runtime: the way that allocations and frees take, both budgets, and what holds the runtime.
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "fake_stack.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

TEST(ManagerRuntime, without_one_there_is_none_and_the_devices_own_resource_is_asked) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  EXPECT_EQ(host.manager.runtime(), nullptr);
  auto buffer = host.manager.alloc<std::byte>(600).value();
  EXPECT_EQ(host.resource->bytes_outstanding(), 600U);
  EXPECT_TRUE(host.manager.reap_pending_deallocations());
  ASSERT_TRUE(buffer.release());
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

TEST(ManagerRuntime, allocations_and_frees_go_through_its_stack) {
  FakeRuntime fake{{.limit = 10'000}};
  auto manager = fake.manager(MemoryBudget::with_limit(5000));
  ASSERT_NE(manager.runtime(), nullptr);
  EXPECT_EQ(*manager.runtime(), fake.runtime);
  auto buffer = manager.alloc<std::uint32_t>(100).value();
  auto raw = manager.alloc_raw(300, AllocTag{"raw"}).value();
  EXPECT_EQ(fake.stack->figures().allocates, 2);
  EXPECT_EQ(fake.stack->figures().reserved_requests, 0);
  EXPECT_EQ(fake.stack->figures().claimed, 700U);
  EXPECT_EQ(manager.allocated_bytes(), 700U);
  EXPECT_EQ(fake.host->bytes_outstanding(), 700U);
  EXPECT_EQ(manager.alloc_count(), 1U);
  EXPECT_EQ(manager.raw_alloc_count(), 1U);
  ASSERT_TRUE(buffer.release());
  ASSERT_TRUE(raw.release());
  EXPECT_EQ(fake.stack->figures().deallocates, 2);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(manager.peak_bytes(), 700U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(ManagerRuntime, of_another_device_is_refused) {
  FakeRuntime fake;
  auto other = host_device().value();
  auto refused = GpuMemoryManager::with_runtime(other, MemoryBudget::unlimited(), fake.runtime);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(refused.error().message.find("which is another object"), std::string::npos) << refused.error().message;
}

TEST(ManagerRuntime, a_refusal_of_the_stacks_budget_keeps_its_figures_and_gives_the_local_claim_back) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(5000));
  auto held = manager.alloc<std::byte>(800).value();
  EventWatch events;
  auto refused = manager.alloc<std::byte>(201);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().requested, 201U);
  EXPECT_EQ(refused.error().current, 800U);
  EXPECT_EQ(refused.error().required, 1001U);
  EXPECT_EQ(refused.error().limit, 1000U);
  EXPECT_EQ(manager.claimed_bytes(), 800U);
  EXPECT_EQ(manager.stats().refusals, 1U);
  const auto recorded = events.of(manager, flight::EventKind::refusal);
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].error_layer(), Layer::device_account);
  auto exact = manager.alloc<std::byte>(200);
  EXPECT_TRUE(exact) << "the account is right again for whoever comes next";
  auto raw = manager.alloc_raw(1, AllocTag{});
  ASSERT_FALSE(raw);
  EXPECT_EQ(raw.error().layer, Layer::device_account);
  EXPECT_EQ(manager.claimed_bytes(), 1000U);
}

TEST(ManagerRuntime, the_local_budget_refuses_before_the_stack_is_asked) {
  FakeRuntime fake{{.limit = 10'000}};
  auto manager = fake.manager(MemoryBudget::with_limit(100));
  auto refused = manager.alloc_raw(101, AllocTag{"big"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::manager);
  EXPECT_EQ(fake.stack->figures().allocates, 0);
}

TEST(ManagerRuntime, a_device_failure_comes_through_and_leaves_both_budgets_as_they_were) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  fake.host->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
  auto refused = manager.alloc<std::byte>(400);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(ManagerRuntime, a_failed_free_stays_charged_and_its_retry_goes_through_the_stack) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto raw = manager.alloc_raw(400, AllocTag{"raw"}).value();
  fake.host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  EXPECT_FALSE(raw.release());
  EXPECT_EQ(manager.deallocation_failure_count(), 1U);
  EXPECT_EQ(manager.deallocation_failure_bytes(), 400U);
  EXPECT_EQ(manager.claimed_bytes(), 400U);
  EXPECT_EQ(fake.stack->figures().claimed, 400U);
  EXPECT_EQ(manager.retry_failed_deallocations(), 1U);
  EXPECT_EQ(fake.stack->figures().deallocates, 2);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(ManagerRuntime, pending_frees_are_reaped_on_request) {
  FakeRuntime fake{{}, {.touch_memory = false, .stream_ordered = true}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  ASSERT_TRUE(manager.alloc<std::byte>(400).value().release());
  EXPECT_EQ(fake.host->usage().pending, 400U);
  EXPECT_TRUE(manager.reap_pending_deallocations());
  EXPECT_EQ(fake.host->usage().pending, 0U);
}

TEST(ManagerRuntime, buffers_keep_it_and_the_last_one_lets_it_go) {
  std::weak_ptr<FakeStack> stack;
  std::optional<TrackedBuffer<std::byte>> buffer;
  {
    FakeRuntime fake{{.limit = 1000}};
    stack = fake.stack;
    auto manager = fake.manager(MemoryBudget::with_limit(1000));
    buffer = manager.alloc<std::byte>(10).value();
  }
  ASSERT_FALSE(stack.expired()) << "the buffer is freed through it";
  std::thread{[&] { EXPECT_TRUE(buffer->release()); }}.join();
  auto next = null_manager(MemoryBudget::unlimited());  // takes the core, which is quiet now
  EXPECT_TRUE(stack.expired());
}

TEST(ManagerRuntime, a_manager_without_buffers_lets_it_go_at_once) {
  std::weak_ptr<FakeStack> stack;
  {
    FakeRuntime fake{{.limit = 1000}};
    stack = fake.stack;
    auto manager = fake.manager(MemoryBudget::with_limit(1000));
    ASSERT_TRUE(manager.alloc<std::byte>(10).value().release());
    const auto copy = manager;  // NOLINT(performance-unnecessary-copy-initialization): a second handle
  }
  EXPECT_TRUE(stack.expired());
}

class ThrowingStack final : public DeviceResource {
public:
  explicit ThrowingStack(std::shared_ptr<DeviceResource> below) : below_{std::move(below)} {}
  Result<Block> allocate(AllocRequest const&) override { throw std::runtime_error{"no"}; }
  Result<void> deallocate(Block const&) override { throw std::runtime_error{"no"}; }
  Result<void> reserve(std::uint64_t) override { throw 7; }
  Result<std::uint64_t> reap_pending(ReapMode) override { throw std::runtime_error{"no reaping"}; }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "throwing"; }
  [[nodiscard]] DeviceResource* inner() const noexcept override { return below_.get(); }

private:
  std::shared_ptr<DeviceResource> below_;
};

TEST(ManagerRuntime, lets_no_exception_of_a_stack_out) {
  auto device = host_device({.touch_memory = false}).value();
  auto runtime = DeviceRuntime::create(device, {.stack = std::make_shared<ThrowingStack>(device.shared_resource())}).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1000), runtime).value();
  EXPECT_EQ(manager.alloc<std::byte>(1).error().kind, ErrorKind::driver);
  EXPECT_EQ(manager.alloc_raw(1, AllocTag{}).error().kind, ErrorKind::driver);
  EXPECT_EQ(manager.reserve_bytes(1).error().kind, ErrorKind::driver);
  auto reaped = manager.reap_pending_deallocations();
  ASSERT_FALSE(reaped);
  EXPECT_EQ(reaped.error().message, "the resource threw: no reaping");
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

}  // namespace
}  // namespace headroom::test
