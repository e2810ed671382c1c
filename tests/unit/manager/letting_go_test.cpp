// A manager's device, runtime and stack are let go of with the last of its handles and buffers, whichever goes last.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <headroom/device_account.hpp>

#include "managers.hpp"
#include "on_threads.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

constexpr auto kLimit8192 = MemoryBudget::with_limit(8192);

struct LettingGo : ::testing::Test {
  std::shared_ptr<HostResource> host = HostResource::create({.total_bytes = 1 << 20, .touch_memory = false}).value();
  Device device = host_device_over(host).value();
  std::weak_ptr<DeviceResource> stack;

  /// A runtime whose stack nobody else holds.
  DeviceRuntime runtime() {
    auto budget = GlobalDeviceBudget::create(device, kLimit8192).value();
    stack = budget;
    return DeviceRuntime::create(device, {.stack = std::move(budget)}).value();
  }
  GpuMemoryManager manager() { return GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime()).value(); }
  /// Nobody sits at the device's account: the next one may have another budget.
  void expect_account_is_closed() const {
    const auto other = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(4096));
    EXPECT_TRUE(other) << other.error().to_string();
  }
};

TEST_F(LettingGo, a_buffer_that_outlives_its_manager_takes_the_stack_along) {
  TrackedBuffer<std::byte> buffer;
  TrackedBuffer<std::byte> last;
  {
    auto made = manager();
    buffer = made.alloc<std::byte>(100).value();
    last = made.alloc<std::byte>(200).value();
  }
  ASSERT_TRUE(buffer.release());
  EXPECT_FALSE(stack.expired()) << "a buffer is still out";
  ASSERT_TRUE(last.release());
  EXPECT_TRUE(stack.expired()) << "no handle, no buffer, and the stack is still held";
  expect_account_is_closed();
}

TEST_F(LettingGo, a_manager_without_buffers_takes_the_stack_along) {
  {
    auto made = manager();
  }
  EXPECT_TRUE(stack.expired());
  expect_account_is_closed();
}

TEST_F(LettingGo, a_core_that_let_go_is_used_again) {
  for (int life = 0; life < 100; ++life) {
    TrackedBuffer<std::byte> buffer;
    {
      auto made = manager();
      ASSERT_TRUE(made.ledger_cell()) << "100 lives must not use up 64 cells";
      buffer = made.alloc<std::byte>(100).value();
    }
    ASSERT_TRUE(buffer.release());
    ASSERT_TRUE(stack.expired());
  }
}

TEST_F(LettingGo, an_overlay_lets_its_runtime_go_with_its_last_buffer) {
  auto parent = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  TrackedBuffer<std::byte> buffer;
  {
    auto overlay = parent.with_runtime_overlay(runtime()).value();
    buffer = overlay.alloc<std::byte>(100).value();
  }
  EXPECT_FALSE(stack.expired());
  ASSERT_TRUE(buffer.release());
  EXPECT_TRUE(stack.expired());
  expect_account_is_closed();
  EXPECT_TRUE(parent.audit().clean()) << parent.audit().to_string();
}

TEST_F(LettingGo, an_overlay_that_outlives_its_parent_lets_go_all_the_same) {
  TrackedBuffer<std::byte> buffer;
  {
    std::optional parent = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
    auto overlay = parent->with_runtime_overlay(runtime()).value();
    parent.reset();
    buffer = overlay.alloc<std::byte>(100).value();
  }
  ASSERT_TRUE(buffer.release());
  EXPECT_TRUE(stack.expired());
}

// A block whose free failed is still the device's: the stack stays until it can be freed, or was written off.
TEST_F(LettingGo, a_free_that_failed_keeps_the_stack) {
  TrackedBuffer<std::byte> buffer;
  {
    auto made = manager();
    buffer = made.alloc<std::byte>(100).value();
  }
  host->faults().add({.operation = FaultOperation::deallocate, .nth = 1});
  ASSERT_FALSE(buffer.release());
  EXPECT_FALSE(stack.expired());
}

/// A stack whose end calls back into the library, as a user's may.
class CallsBack final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "calls-back";
  CallsBack(InnerResource inner, bool& called) noexcept : ResourceDecorator(std::move(inner)), called_(called) {}
  ~CallsBack() override {
    auto manager = null_manager(MemoryBudget::unlimited());
    called_ = manager.alloc<std::byte>(1).has_value() && manager.reserve_bytes(1).has_value();
  }

private:
  bool& called_;
};

TEST_F(LettingGo, no_lock_is_held_meanwhile) {
  bool called = false;
  TrackedBuffer<std::byte> direct;
  TrackedBuffer<std::byte> routed;
  {
    auto runtime = DeviceRuntime::create(device, {.stack = decorate<CallsBack>(host, called).value()}).value();
    direct = GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), std::move(runtime))
                 .value()
                 .alloc<std::byte>(10)
                 .value();
  }
  ASSERT_TRUE(direct.release());
  EXPECT_TRUE(std::exchange(called, false));
  auto parent = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  {
    auto runtime = DeviceRuntime::create(device, {.stack = decorate<CallsBack>(host, called).value()}).value();
    routed = parent.with_runtime_overlay(std::move(runtime)).value().alloc<std::byte>(10).value();
  }
  ASSERT_TRUE(routed.release());
  EXPECT_TRUE(called);
}

// Handles and buffers of one manager end on three threads at once, 200 times: whoever is last lets go, once.
TEST_F(LettingGo, the_last_of_several_threads_lets_go) {
  for (int round = 0; round < 200; ++round) {
    std::optional made = manager();
    std::vector<TrackedBuffer<std::byte>> buffers;
    for (int i = 0; i < 2; ++i) buffers.push_back(made->alloc<std::byte>(100).value());
    on_threads(3, [&](int index) {
      if (index == 2) {
        made.reset();
      } else {
        EXPECT_TRUE(buffers[static_cast<std::size_t>(index)].release());
      }
    });
    ASSERT_TRUE(stack.expired()) << "round " << round;
  }
  expect_account_is_closed();
}

TEST_F(LettingGo, the_last_of_several_threads_lets_an_overlay_go) {
  auto parent = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  for (int round = 0; round < 200; ++round) {
    std::optional overlay = parent.with_runtime_overlay(runtime()).value();
    std::vector<TrackedBuffer<std::byte>> buffers;
    for (int i = 0; i < 2; ++i) buffers.push_back(overlay->alloc<std::byte>(100).value());
    on_threads(3, [&](int index) {
      if (index == 2) {
        overlay.reset();
      } else {
        EXPECT_TRUE(buffers[static_cast<std::size_t>(index)].release());
      }
    });
    ASSERT_TRUE(stack.expired()) << "round " << round;
  }
  EXPECT_TRUE(parent.audit().clean()) << parent.audit().to_string();
}

}  // namespace
}  // namespace headroom::test
