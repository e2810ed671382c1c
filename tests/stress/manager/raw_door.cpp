// Many threads at one raw door. Nothing here is timed: every test asserts what must hold whatever the schedule.
#include <array>
#include <atomic>
#include <barrier>
#include <random>
#include <thread>
#include <vector>

#include "doors.hpp"
#include "on_threads.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kAlign = kMinimumAlignment;

void expect_empty(HostManager const& host, RawDoor const& door) {
  EXPECT_EQ(door.live_blocks(), 0U);
  EXPECT_EQ(door.addresses_twice(), 0U);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

TEST(RawDoorStress, addresses_are_reused_before_the_free_that_gave_them_back_returns) {
  constexpr int kThreads = 8;
  constexpr std::uint64_t kBlock = 4096;
  // Half as many places as threads: nearly every address goes straight from one thread's free, which is still under way, to another
  // thread's allocation.
  auto host =
      host_manager(MemoryBudget::unlimited(),
                   {.total_bytes = kBlock * kThreads / 2, .touch_memory = false, .free_latency = std::chrono::microseconds{20}});
  auto door = door_on(host.manager);
  std::atomic<std::uint64_t> granted{0};
  const std::uint64_t rounds = scaled(4000);
  on_threads(kThreads, [&](int) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const auto pointer = door.allocate(kBlock, kAlign, {});
      if (!pointer) {
        EXPECT_EQ(pointer.error().kind, ErrorKind::device_out_of_memory) << pointer.error().to_string();
        std::this_thread::yield();
        continue;
      }
      ++granted;
      const auto freed = door.deallocate(*pointer, kBlock);
      EXPECT_TRUE(freed) << freed.error().to_string();
    }
  });
  EXPECT_GT(granted, 0U);
  EXPECT_EQ(door.misuse_count(), 0U);
  EXPECT_EQ(host.manager.stats().frees, granted.load());
  expect_empty(host, door);
}

TEST(RawDoorStress, of_two_threads_that_free_one_block_exactly_one_does) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  constexpr int kThreads = 4;
  const std::uint64_t rounds = scaled(2000);
  std::barrier sync{kThreads};
  void* pointer = nullptr;
  std::atomic<int> freed{0};
  std::atomic<int> doubles{0};
  on_threads(kThreads, [&](int index) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (index == 0) pointer = door.allocate(100, kAlign, {}).value();
      sync.arrive_and_wait();
      if (const auto result = door.deallocate(pointer, 100)) {
        ++freed;
      } else if (result.error().kind == ErrorKind::double_free) {
        ++doubles;
      }
      sync.arrive_and_wait();
      if (index == 0) {
        EXPECT_EQ(freed.exchange(0), 1);
        EXPECT_EQ(doubles.exchange(0), kThreads - 1);
      }
      sync.arrive_and_wait();
    }
  });
  EXPECT_EQ(free_failures(host.manager, ErrorKind::double_free), rounds * (kThreads - 1));
  expect_empty(host, door);
}

TEST(RawDoorStress, blocks_change_hands_and_failed_frees_are_repeated_until_they_work) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1 << 22, .touch_memory = false});
  auto door = door_on(host.manager);
  host.resource->faults().add(
      {.operation = FaultOperation::deallocate, .nth = 7, .every = 7, .times = kFaultForever, .kind = ErrorKind::driver});
  std::array<std::atomic<void*>, 64> shelf{};  // exchange, acq_rel: whoever takes a pointer sees the block as its last holder did
  const std::uint64_t rounds = scaled(20'000);
  on_threads(4, [&](int index) {
    std::minstd_rand random{static_cast<unsigned>(index) + 1};
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const auto fresh = door.allocate(100 + random() % 4000, kAlign, {});
      void* const taken = shelf[random() % shelf.size()].exchange(fresh.value_or(nullptr), std::memory_order_acq_rel);
      while (true) {
        const auto freed = door.deallocate(taken, kUnknownBytes);
        if (freed) break;
        ASSERT_EQ(freed.error().kind, ErrorKind::driver) << freed.error().to_string();
      }
    }
  });
  for (auto& place : shelf) {
    while (!door.deallocate(place.load(), kUnknownBytes)) {
    }
  }
  EXPECT_EQ(door.misuse_count(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(host.manager.retry_failed_deallocations(), 0U);
  expect_empty(host, door);
}

TEST(RawDoorStress, retries_of_door_and_manager_together_free_every_block_once) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1 << 22, .touch_memory = false});
  auto door = door_on(host.manager);
  host.resource->faults().add(
      {.operation = FaultOperation::deallocate, .nth = 2, .every = 2, .times = kFaultForever, .kind = ErrorKind::driver});
  const std::uint64_t rounds = scaled(5000);
  std::atomic<bool> done{false};
  std::thread retrier{[&] {
    while (!done) static_cast<void>(host.manager.retry_failed_deallocations());
  }};
  std::thread reader{[&] {
    while (!done) {
      for (auto const& overlap : door.overlaps()) ADD_FAILURE() << overlap.first.pointer << " and " << overlap.second.pointer;
      static_cast<void>(door.live_blocks());
    }
  }};
  on_threads(3, [&](int index) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const auto pointer = door.allocate(1000 + static_cast<std::uint64_t>(index), kAlign, {});
      if (!pointer) {
        // What failed fills the device faster than the retrier empties it.
        ASSERT_EQ(pointer.error().kind, ErrorKind::device_out_of_memory) << pointer.error().to_string();
        static_cast<void>(host.manager.retry_failed_deallocations());
        continue;
      }
      // Once only: what failed is left to the retrier, after which the address may be another thread's block.
      static_cast<void>(door.deallocate(*pointer, 1000 + static_cast<std::uint64_t>(index)));
    }
  });
  done = true;
  retrier.join();
  reader.join();
  host.resource->faults().clear();
  static_cast<void>(host.manager.retry_failed_deallocations());
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 0U);
  expect_empty(host, door);
}

TEST(RawDoorStress, readers_find_whole_blocks_or_none) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  std::array<std::atomic<void*>, 16> shown{};
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    std::minstd_rand random{99};
    while (!done) {
      void* const pointer = shown[random() % shown.size()].load(std::memory_order_relaxed);
      if (pointer == nullptr) continue;
      const auto found = door.find(offset_by(pointer, 1));
      if (!found) continue;
      ASSERT_EQ(found->bytes % 1000, 0U);  // every block has a multiple
      ASSERT_GE(found->generation, 1U);
      ASSERT_LT(found->offset, found->bytes);
    }
  }};
  const std::uint64_t rounds = scaled(20'000);
  on_threads(4, [&](int index) {
    std::vector<void*> held(4);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      void*& place = held[i % held.size()];
      ASSERT_TRUE(door.deallocate(place, kUnknownBytes));
      place = door.allocate(1000 * (1 + i % 5), kAlign, {}).value();
      shown[static_cast<std::size_t>(index) * 4 + i % 4].store(place, std::memory_order_relaxed);
    }
    for (void* pointer : held) ASSERT_TRUE(door.deallocate(pointer, kUnknownBytes));
  });
  done = true;
  reader.join();
  EXPECT_EQ(door.misuse_count(), 0U);
  expect_empty(host, door);
}

}  // namespace
}  // namespace headroom::test
