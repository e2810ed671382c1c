// Situations that real users reported about other systems, tried on a manager: see tests/cases.md. What a device must do for it
// (context, holes, cache, late frees) is in cases_device_test.cpp.
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "doors.hpp"
#include "on_threads.hpp"
#include "scale.hpp"
#include "yield_at.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
using Buffer = TrackedBuffer<std::byte>;

// S03
TEST(Cases, sixty_four_threads_get_exactly_ten_blocks_in_every_round) {
  constexpr int kThreads = 64;
  constexpr std::uint64_t kBlock = 4096;
  auto manager = null_manager(MemoryBudget::with_limit(10 * kBlock));
  std::barrier sync{kThreads};
  std::atomic<std::uint64_t> granted{0};
  const std::uint64_t rounds = scaled(300);
  const YieldAt window{TestPoint::claim_before_exchange};
  on_threads(kThreads, [&](int index) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      auto block = manager.alloc<std::byte>(kBlock);
      if (block) ++granted;
      EXPECT_LE(manager.claimed_bytes(), 10 * kBlock);
      sync.arrive_and_wait();  // everyone has asked, nobody has freed
      if (index == 0) {
        EXPECT_EQ(granted.exchange(0), 10U);
        EXPECT_EQ(manager.allocated_bytes(), 10 * kBlock);
      }
      sync.arrive_and_wait();
      if (block) {
        EXPECT_TRUE(block->release());
      }
      sync.arrive_and_wait();
    }
  });
  EXPECT_EQ(manager.peak_bytes(), 10 * kBlock);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

// S05 and S64: too large is said before anything is asked, in one event.
TEST(Cases, sizes_near_the_end_of_64_bits_are_one_event_each_and_nothing_else) {
  auto host = host_manager(MemoryBudget::with_limit(kGiB));
  auto held = host.manager.alloc<std::byte>(1000).value();
  host.resource->faults().add({.operation = FaultOperation::allocate, .times = kFaultForever});  // would tell of a call
  EventWatch events;
  std::vector<Error> errors;
  for (const std::uint64_t bytes : {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX / 2 + 1}) {
    errors.push_back(host.manager.alloc<std::byte>(bytes).map_error([](Error const& e) { return e; }).error());
    EXPECT_EQ(errors.back().requested, bytes);
  }
  for (const std::uint64_t count : {std::uint64_t{1} << 61, (std::uint64_t{1} << 61) - 1}) {
    errors.push_back(host.manager.alloc<std::uint64_t>(count).map_error([](Error const& e) { return e; }).error());
  }
  for (auto const& error : errors) {
    EXPECT_EQ(error.kind, ErrorKind::overflow) << error.to_string();
    EXPECT_EQ(error.layer, Layer::request);
    EXPECT_FALSE(error.message.empty());
  }
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 5U);
  EXPECT_EQ(host.resource->faults().failures(), 0U) << "the device was not asked";
  EXPECT_EQ(host.manager.claimed_bytes(), 1000U);
  EXPECT_EQ(host.manager.peak_bytes(), 1000U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

// S07
TEST(Cases, a_budget_below_use_is_over_by_so_much_and_never_a_wrapped_number) {
  auto manager = null_manager(MemoryBudget::with_limit(kGiB));
  auto held = manager.alloc<std::byte>(kGiB).value();
  manager.set_budget(MemoryBudget::with_limit(kGiB - 300));
  EXPECT_EQ(manager.remaining_bytes(), 0U);
  const auto seen = snapshot_of(manager);
  EXPECT_EQ(seen.remaining(), 0U);
  EXPECT_EQ(seen.over_budget(), 300U);
  EXPECT_EQ(seen.pressure, PressureLevel::critical);
  const auto refused = manager.alloc<std::byte>(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().current, kGiB);
  EXPECT_EQ(refused.error().required, kGiB + 1);
  EXPECT_EQ(refused.error().limit, kGiB - 300);
  manager.set_budget(MemoryBudget::with_limit(0));
  EXPECT_EQ(manager.remaining_bytes(), 0U);
  EXPECT_EQ(snapshot_of(manager).over_budget(), kGiB);
}

// S13
TEST(Cases, of_24_reservations_of_2000_mib_on_46068_mib_23_are_granted) {
  auto manager = null_manager(MemoryBudget::with_limit(46'068 * kMiB));
  std::vector<GpuMemoryReservation> granted;
  for (int i = 0; i < 23; ++i) granted.push_back(manager.reserve_bytes(2000 * kMiB).value());
  const auto refused = manager.reserve_bytes(2000 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().current, 46'000 * kMiB);
  EXPECT_EQ(refused.error().required, 48'000 * kMiB);
  EXPECT_EQ(manager.remaining_bytes(), 68 * kMiB);
  EXPECT_TRUE(manager.reserve_bytes(68 * kMiB)) << "the rest, to the last byte";
}

// S18
TEST(Cases, a_limit_is_the_same_in_every_thread_and_no_other_devices) {
  auto first = GpuMemoryManager::create(null_device().value(), MemoryBudget::unlimited()).value();
  auto second = GpuMemoryManager::create(null_device().value(), MemoryBudget::unlimited()).value();
  first.set_budget(MemoryBudget::with_limit(5 * kGiB));
  for (int i = 0; i < 3; ++i) {
    std::thread{[&] {
      EXPECT_EQ(first.budget_limit_bytes(), 5 * kGiB);
      EXPECT_EQ(second.budget_limit_bytes(), std::nullopt) << "not set, which is not 0";
      EXPECT_EQ(second.remaining_bytes(), std::nullopt);
      EXPECT_FALSE(first.alloc<std::byte>(5 * kGiB + 1));
      EXPECT_TRUE(second.alloc<std::byte>(5 * kGiB + 1));
    }}.join();
  }
  EXPECT_EQ(snapshot_of(first).limit, 5 * kGiB);
  EXPECT_EQ(snapshot_of(second).limit, std::nullopt);
}

// S20: A, B and C as one. Two threads compete for room that only one of them can have: with the least of the three amounts still
// held, the limit has no room for all of them again.
TEST(Cases, several_amounts_reserved_as_one_are_had_whole_or_not_at_all) {
  constexpr std::array<std::uint64_t, 3> kAmounts{100, 200, 300};
  constexpr std::uint64_t kTotal = 600;
  auto manager = null_manager(MemoryBudget::with_limit(kTotal + 50));
  const auto cell = manager.ledger_cell().value();
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> had{0};
  std::thread reader{[&] {
    const auto view = flight::FlightView::of_this_process().value();
    while (!done) {
      const auto claimed = view.words(cell).claimed;
      EXPECT_TRUE(claimed == 0 || claimed == kTotal) << claimed << " bytes are a partial hold";
    }
  }};
  const std::uint64_t rounds = scaled(5000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        if (manager.reserve_bytes(kTotal)) ++had;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  done = true;
  reader.join();
  EXPECT_GT(had, 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);

  threads.clear();
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto reservation = manager.reserve_bytes(kTotal);
        if (!reservation) {
          EXPECT_EQ(reservation.error().kind, ErrorKind::over_budget);
          continue;
        }
        std::vector<Buffer> parts;
        for (const std::uint64_t amount : kAmounts) {
          auto part = reservation->alloc<std::byte>(amount);
          ASSERT_TRUE(part) << "paid for: " << part.error().to_string();
          parts.push_back(std::move(*part));
        }
        EXPECT_EQ(reservation->remaining_bytes(), 0U);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(manager.peak_bytes(), kTotal);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

// S37: what programs may depend on is a number, a word and figures. The text is for people.
TEST(Cases, an_error_is_known_by_kind_layer_and_figures_without_its_text) {
  static_assert(static_cast<int>(ErrorKind::over_budget) == 0 && static_cast<int>(ErrorKind::device_out_of_memory) == 1 &&
                static_cast<int>(ErrorKind::overflow) == 2 && static_cast<int>(ErrorKind::parse) == 14 && kErrorKindCount == 15);
  auto budget = host_manager(MemoryBudget::with_limit(1000));
  auto device = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1024, .touch_memory = false});
  const Error over = budget.manager.alloc<std::byte>(1001).map_error([](Error const& e) { return e; }).error();
  const Error full = device.manager.alloc<std::byte>(2048).map_error([](Error const& e) { return e; }).error();
  EXPECT_EQ(to_string(over.kind), "over_budget");
  EXPECT_EQ(to_string(over.layer), "manager");
  EXPECT_EQ(over.requested, 1001U);
  EXPECT_EQ(over.current, 0U);
  EXPECT_EQ(over.limit, 1000U);
  EXPECT_EQ(over.device_code, 0);
  EXPECT_EQ(to_string(full.kind), "device_out_of_memory");
  EXPECT_EQ(to_string(full.layer), "driver");
  EXPECT_EQ(full.requested, 2048U);
  EXPECT_EQ(full.device_free, 1024U);
  EXPECT_EQ(full.limit, std::nullopt) << "no budget had a say";
  EXPECT_EQ(full.device_code, 2);
}

// S61
TEST(Cases, an_exception_at_the_third_of_five_leaves_nothing_and_the_tags_tell_who_held_what) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  const AllocTag weights{"case-weights"};
  const AllocTag cache{"case-cache"};
  const auto load = [&] {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) {
      auto buffer = host.manager.alloc<std::byte>(400, i == 0 ? weights : cache);
      if (!buffer) {
        const auto ledger = snapshot_of(host.manager);
        EXPECT_EQ(tag_bytes(ledger, "case-weights"), 400U);
        EXPECT_EQ(tag_bytes(ledger, "case-cache"), 400U);
        EXPECT_STREQ(buffer.error().holders[0].tag, "case-weights");
        EXPECT_EQ(buffer.error().holders[0].bytes + buffer.error().holders[1].bytes, 800U);
        throw std::runtime_error{buffer.error().to_string()};
      }
      buffers.push_back(std::move(*buffer));
    }
  };
  EXPECT_THROW(load(), std::runtime_error);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_EQ(tag_bytes(snapshot_of(host.manager), "case-cache"), 0U);
}

// S63
TEST(Cases, zero_bytes_three_times_freed_each_and_null_freed_too) {
  auto host = host_manager(MemoryBudget::with_limit(0));
  auto door = door_on(host.manager);
  std::array<void*, 3> blocks{};
  for (auto& block : blocks) block = door.allocate(0, kMinimumAlignment, {}).value();
  EXPECT_EQ(blocks, (std::array<void*, 3>{nullptr, nullptr, nullptr})) << "the one documented representation";
  for (void* const block : blocks) EXPECT_TRUE(door.deallocate(block, 0));
  EXPECT_TRUE(door.deallocate(nullptr, kUnknownBytes));
  EXPECT_EQ(door.misuse_count(), 0U);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.manager.stats().refusals, 0U);
  EXPECT_TRUE(host.manager.alloc<double>(0)->release());
}

}  // namespace
}  // namespace headroom::test
