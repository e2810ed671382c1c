// The raw door of a manager with a runtime: blocks come through its stack and go back through it, and both budgets know.
#include <bit>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "device_budgets.hpp"
#include "doors.hpp"
#include "fake_stack.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kAlign = kMinimumAlignment;

TEST(RawDoorRuntime, allocates_and_frees_through_the_stack) {
  FakeRuntime fake{{.limit = 10'000}};
  auto manager = fake.manager(MemoryBudget::with_limit(5000));
  auto door = door_on(manager);
  void* const small = door.allocate(300, kAlign, {}).value();  // first, so that the next place is aligned to no more than 256
  void* const large = door.allocate(700, 4096, {}, AllocTag{"door"}).value();
  EXPECT_EQ(std::bit_cast<std::uint64_t>(large) % 4096, 0U);
  EXPECT_EQ(fake.stack->figures().allocates, 2);
  EXPECT_EQ(fake.stack->figures().reserved_requests, 0);
  EXPECT_EQ(fake.stack->figures().claimed, 1000U);
  EXPECT_EQ(fake.host->bytes_outstanding(), 1000U);
  EXPECT_EQ(manager.allocated_bytes(), 1000U);
  EXPECT_EQ(manager.raw_alloc_count(), 2U);
  EXPECT_EQ(manager.alloc_count(), 0U);
  ASSERT_TRUE(door.deallocate(large, 700));
  EXPECT_EQ(fake.stack->figures().deallocates, 1);
  EXPECT_EQ(fake.stack->figures().claimed, 300U);
  ASSERT_TRUE(door.deallocate(small, kUnknownBytes));
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.host->bytes_outstanding(), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(RawDoorRuntime, zero_bytes_and_null_reach_no_stack) {
  FakeRuntime fake{{.limit = 10}};
  auto manager = fake.manager(MemoryBudget::with_limit(10));
  auto door = door_on(manager);
  EXPECT_EQ(door.allocate(0, kAlign, {}).value(), nullptr);
  EXPECT_TRUE(door.deallocate(nullptr, 0));
  EXPECT_EQ(fake.stack->figures().allocates, 0);
  EXPECT_EQ(fake.stack->figures().deallocates, 0);
}

TEST(RawDoorRuntime, either_budget_refuses_and_neither_keeps_anything) {
  FakeRuntime fake{{.limit = 800}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto door = door_on(manager);
  const auto local = door.allocate(1001, kAlign, {});
  ASSERT_FALSE(local);
  EXPECT_EQ(local.error().layer, Layer::manager);
  EXPECT_EQ(fake.stack->figures().allocates, 0);
  const auto global = door.allocate(801, kAlign, {});
  ASSERT_FALSE(global);
  EXPECT_EQ(global.error().layer, Layer::device_account);
  EXPECT_EQ(global.error().limit, 800U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
  void* const exact = door.allocate(800, kAlign, {}).value();
  EXPECT_TRUE(door.deallocate(exact, 800));
}

TEST(RawDoorRuntime, a_pending_free_on_another_stream_credits_the_account_once_the_device_has_it) {
  auto stack = stack_of(MemoryBudget::with_limit(1000), stream_ordered());
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  auto manager = GpuMemoryManager::with_runtime(stack.device, MemoryBudget::with_limit(1000), runtime).value();
  auto door = door_on(manager);
  const StreamId own = stack.host->create_stream().value();
  const StreamId other = stack.host->create_stream().value();
  void* const pointer = door.allocate(600, kAlign, own).value();
  ASSERT_TRUE(stack.host->enqueue_work(other, std::chrono::milliseconds{20}));
  std::thread{[&] { EXPECT_TRUE(door.deallocate(pointer, 600, other)); }}.join();
  EXPECT_EQ(manager.claimed_bytes(), 0U) << "the manager's part is over with the accepted free";
  EXPECT_EQ(stack.stats().allocated, 600U);
  EXPECT_EQ(stack.stats().pending_free, 600U);
  stack.host->advance(std::chrono::milliseconds{10});
  EXPECT_EQ(runtime.reap_pending(ReapMode::query), 0U) << "the work of the stream that it was freed on is still running";
  stack.host->advance(std::chrono::milliseconds{11});
  EXPECT_EQ(runtime.reap_pending(ReapMode::query), 600U);
  expect_empty(stack.budget->account());
}

TEST(RawDoorRuntime, a_shortage_waits_for_the_doors_pending_frees) {
  auto stack = stack_of(MemoryBudget::with_limit(1000), stream_ordered());
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  auto manager = GpuMemoryManager::with_runtime(stack.device, MemoryBudget::with_limit(1000), runtime).value();
  auto door = door_on(manager);
  for (int i = 0; i < 100; ++i) {
    const auto pointer = door.allocate(1000, kAlign, {});
    ASSERT_TRUE(pointer) << pointer.error().to_string();
    ASSERT_TRUE(door.deallocate(*pointer, 1000));
  }
  ASSERT_TRUE(runtime.reap_pending());
  expect_empty(stack.budget->account());
}

TEST(RawDoorRuntime, misuse_leaves_manager_account_and_stack_alone) {
  auto stack = stack_of(MemoryBudget::with_limit(5000));
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  auto manager = GpuMemoryManager::with_runtime(stack.device, MemoryBudget::with_limit(5000), runtime).value();
  auto door = door_on(manager);
  auto buffer = manager.alloc<std::byte>(500).value();
  auto raw = manager.alloc_raw(200, AllocTag{"raw"}).value();
  const RawBlock kept = door.allocate_block(1000, kAlign, {}).value();
  const RawBlock freed = door.allocate_block(300, kAlign, {}).value();
  ASSERT_TRUE(door.deallocate(freed));
  const Books books = books_of(door);
  const auto before = stack.stats();
  int asked = 0;
  stack.watching->in_deallocate = [&] { ++asked; };
  int stranger = 0;
  EXPECT_EQ(door.deallocate(freed).error().kind, ErrorKind::double_free);
  EXPECT_EQ(door.deallocate(kept.pointer, 999).error().kind, ErrorKind::wrong_size);
  EXPECT_EQ(door.deallocate(&stranger, 4).error().kind, ErrorKind::unknown_pointer);
  EXPECT_EQ(door.deallocate(offset_by(kept.pointer, 256), 744).error().kind, ErrorKind::unknown_pointer);
  EXPECT_EQ(door.deallocate(buffer.data(), 500).error().kind, ErrorKind::wrong_owner);
  EXPECT_EQ(door.deallocate(raw.data(), 200).error().kind, ErrorKind::wrong_owner);
  EXPECT_EQ(asked, 0) << "the stack hears nothing of misuse";
  EXPECT_EQ(door.misuse_count(), 6U);
  EXPECT_EQ(books_of(door), books);
  const auto after = stack.stats();
  EXPECT_EQ(after.claimed, 1700U);  // 500 + 200 + 1000
  EXPECT_EQ(after.claimed, before.claimed);
  EXPECT_EQ(after.frees, before.frees);
  EXPECT_EQ(after.failed_frees, 0U);
  ASSERT_TRUE(door.deallocate(kept));
  ASSERT_TRUE(buffer.release());
  ASSERT_TRUE(raw.release());
  expect_empty(stack.budget->account());
}

TEST(RawDoorRuntime, a_free_that_the_device_refuses_stays_charged_in_both_books_and_can_be_repeated) {
  auto stack = stack_of(MemoryBudget::with_limit(1000));
  auto runtime = DeviceRuntime::create(stack.device, {.stack = stack.budget}).value();
  auto manager = GpuMemoryManager::with_runtime(stack.device, MemoryBudget::with_limit(1000), runtime).value();
  auto door = door_on(manager);
  void* const pointer = door.allocate(400, kAlign, {}).value();
  stack.host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  const auto refused = door.deallocate(pointer, 400);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(manager.allocated_bytes(), 400U);
  EXPECT_EQ(manager.deallocation_failure_bytes(), 400U);
  EXPECT_EQ(stack.stats().allocated, 400U);
  EXPECT_EQ(stack.stats().failed_frees, 1U);
  ASSERT_TRUE(door.deallocate(pointer, 400));
  EXPECT_EQ(manager.deallocation_failure_bytes(), 0U);
  expect_empty(stack.budget->account());
}

TEST(RawDoorRuntime, beside_a_reservation_takes_nothing_of_it) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto door = door_on(manager);
  auto reservation = manager.reserve_bytes(600).value();
  EXPECT_EQ(door.allocate(401, kAlign, {}).error().kind, ErrorKind::over_budget);
  void* const pointer = door.allocate(400, kAlign, {}).value();
  EXPECT_EQ(reservation.remaining_bytes(), 600U);
  EXPECT_EQ(fake.stack->figures().unspent, 600U);
  EXPECT_EQ(fake.stack->figures().reserved_requests, 0);
  auto spent = reservation.alloc_raw(600, AllocTag{"reserved"}).value();
  EXPECT_EQ(manager.allocated_bytes(), 1000U);
  ASSERT_TRUE(door.deallocate(pointer, 400));
  EXPECT_EQ(door.deallocate(spent.data(), 600).error().kind, ErrorKind::wrong_owner);
  EXPECT_EQ(manager.claimed_bytes(), 600U);
  ASSERT_TRUE(spent.release());
  reservation.release();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(fake.stack->figures().unspent, 0U);
}

TEST(RawDoorRuntime, keeps_the_stack_for_what_is_live) {
  std::weak_ptr<FakeStack> stack;
  std::optional<RawDoor> door;
  void* pointer = nullptr;
  {
    FakeRuntime fake{{.limit = 1000}};
    stack = fake.stack;
    door = door_on(fake.manager(MemoryBudget::with_limit(1000)));
    pointer = door->allocate(400, kAlign, {}).value();
  }
  ASSERT_FALSE(stack.expired()) << "the block is freed through it";
  EXPECT_EQ(stack.lock()->figures().claimed, 400U);
  EXPECT_TRUE(door->deallocate(pointer, 400));
  EXPECT_EQ(stack.lock()->figures().claimed, 0U);
}

}  // namespace
}  // namespace headroom::test
