// Many threads at one ledger. Nothing here is timed: every test asserts what must hold whatever the schedule.
#include <array>
#include <atomic>
#include <barrier>
#include <random>
#include <thread>
#include <vector>

#include "managers.hpp"
#include "most_held.hpp"
#include "on_threads.hpp"
#include "scale.hpp"
#include "yield_at.hpp"

namespace headroom::test {
namespace {

using Buffer = TrackedBuffer<std::byte>;

TEST(Stress, sixty_four_threads_at_a_limit_of_ten_blocks) {
  constexpr std::uint64_t kBlock = 1000;
  auto manager = null_manager(MemoryBudget::with_limit(10 * kBlock));
  MostHeld held;
  std::atomic<std::uint64_t> granted{0};
  std::atomic<std::uint64_t> refused{0};
  const std::uint64_t rounds = scaled(3000);
  // Threads give way while they hold a block and after a refusal: the limit is reached nearly all the time, and the last block that
  // fits is what many look for at once. Not in each round: beside other busy programs a turn of the scheduler takes milliseconds.
  constexpr std::uint64_t kEvery = 8;
  const YieldAt window{TestPoint::claim_before_exchange, 3 * kEvery};
  on_threads(64, [&](int) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto buffer = manager.alloc<std::byte>(kBlock);
      if (!buffer) {
        EXPECT_EQ(buffer.error().kind, ErrorKind::over_budget);
        EXPECT_GE(*buffer.error().required, 10 * kBlock + 1);
        ++refused;
        if (i % kEvery == 0) std::this_thread::yield();
        continue;
      }
      ++granted;
      held.took();
      if (i % kEvery == 0) std::this_thread::yield();
      held.gives();
    }
  });
  EXPECT_LE(held.most(), 10U);
  EXPECT_LE(manager.peak_bytes(), 10 * kBlock);
  EXPECT_EQ(granted + refused, 64 * rounds);
  EXPECT_EQ(manager.stats().allocations, granted.load());
  EXPECT_EQ(manager.stats().refusals, refused.load());
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Stress, each_round_grants_exactly_what_fits) {
  constexpr int kThreads = 16;
  auto manager = null_manager(MemoryBudget::with_limit(10));
  std::atomic<int> granted{0};
  std::barrier sync{kThreads};
  const std::uint64_t rounds = scaled(2000);
  const YieldAt window{TestPoint::claim_before_exchange};
  on_threads(kThreads, [&](int index) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      {
        auto buffer = manager.alloc<std::byte>(1);
        if (buffer) ++granted;
        sync.arrive_and_wait();  // everyone has asked, nobody has freed
        if (index == 0) {
          EXPECT_EQ(granted.exchange(0), 10);
        }
        sync.arrive_and_wait();
      }
      sync.arrive_and_wait();  // everyone has freed
    }
  });
}

TEST(Stress, a_hopeless_requester_never_gets_a_fitting_one_refused) {
  auto manager = null_manager(MemoryBudget::with_limit(1 << 20));
  const std::uint64_t rounds = scaled(1'000'000);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> refused{0};
  std::thread hopeless{[&] {
    while (!done) {
      EXPECT_FALSE(manager.alloc<std::byte>((1 << 20) + 1));
      EXPECT_FALSE(manager.alloc<std::byte>(SIZE_MAX));
    }
  }};
  on_threads(2, [&](int) {
    for (std::uint64_t i = 0; i < rounds / 2; ++i) {
      if (!manager.alloc<std::byte>(1 << 18)) ++refused;
    }
  });
  done = true;
  hopeless.join();
  EXPECT_EQ(refused, 0U) << "of " << rounds << " requests that always fit";
}

TEST(Stress, readers_never_see_allocated_above_claimed_or_peak) {
  auto manager = null_manager(MemoryBudget::with_limit(1 << 20));
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    const auto view = flight::FlightView::of_this_process().value();
    const std::uint32_t cell = manager.ledger_cell().value();
    do {
      const auto words = view.words(cell);
      ASSERT_LE(words.allocated, words.claimed);
      ASSERT_LE(words.allocated, words.peak);
      ASSERT_LE(words.claimed, 1U << 20);
    } while (!done);
  }};
  const std::uint64_t rounds = scaled(100'000);
  on_threads(4, [&](int index) {
    std::minstd_rand random{static_cast<unsigned>(index) + 1};
    std::array<Buffer, 8> held;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto& place = held[random() % held.size()];
      if (place.size() != 0) {
        ASSERT_TRUE(place.release());
      } else if (auto buffer = manager.alloc<std::byte>(1 + random() % 50'000)) {
        place = std::move(*buffer);
      }
    }
  });
  done = true;
  reader.join();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Stress, a_moving_budget_is_never_passed_by_a_claim_made_under_it) {
  // The budget only shrinks and grows between two values while the writers know the larger: claimed may exceed the smaller only by
  // what was claimed before it came into force.
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> violations{0};
  std::thread governor{[&] {
    while (!done) {
      manager.set_budget(MemoryBudget::with_limit(200));
      const std::uint64_t at_change = manager.claimed_bytes();
      for (int i = 0; i < 50; ++i) {
        const std::uint64_t now = manager.claimed_bytes();
        if (now > std::max<std::uint64_t>(at_change, 200)) ++violations;
      }
      manager.set_budget(MemoryBudget::with_limit(1000));
    }
  }};
  const std::uint64_t rounds = scaled(100'000);
  const YieldAt window{TestPoint::claim_before_exchange, 200};
  on_threads(3, [&](int) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto a = manager.alloc<std::byte>(150);
      auto b = manager.alloc<std::byte>(150);
    }
  });
  done = true;
  governor.join();
  EXPECT_EQ(violations, 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(Stress, peak_and_pressure_are_right_whenever_all_is_quiet) {
  auto manager = null_manager(MemoryBudget::with_limit(100'000));
  constexpr int kThreads = 4;
  const std::uint64_t rounds = scaled(2000);
  std::barrier sync{kThreads};
  on_threads(kThreads, [&](int index) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto big = manager.alloc<std::byte>(20'000 + i % 5'000);
      auto small = manager.alloc<std::byte>(100);
      if (index == 1) manager.reset_peak();
      if (i % 2 == 0) big = tl::unexpected(Error{});
      sync.arrive_and_wait();
      if (index == 0) {
        const auto stats = manager.stats();
        ASSERT_GE(stats.peak, stats.allocated);
        const auto ledger = snapshot_of(manager);
        const auto level = pressure_level(stats.claimed, 100'000);
        const auto with_margin = pressure_level(stats.claimed + 1000, 100'000);
        ASSERT_TRUE(ledger.pressure == level || ledger.pressure == with_margin)
            << to_string(ledger.pressure) << " at " << stats.claimed << " claimed";
      }
      sync.arrive_and_wait();
    }
  });
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(snapshot_of(manager).pressure, PressureLevel::none);
}

TEST(Stress, failed_frees_and_retries_on_many_threads_keep_the_books) {
  auto host = host_manager(MemoryBudget::with_limit(1 << 20), {.total_bytes = 1 << 22, .touch_memory = false});
  host.resource->faults().add(
      {.operation = FaultOperation::deallocate, .nth = 7, .every = 7, .times = kFaultForever, .kind = ErrorKind::driver});
  host.resource->faults().add({.operation = FaultOperation::allocate, .nth = 11, .every = 11, .times = kFaultForever});
  const std::uint64_t rounds = scaled(20'000);
  on_threads(4, [&](int index) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto buffer = host.manager.alloc<std::byte>(100 + i % 1000);
      if (i % 50 == 0 && index % 2 == 0) static_cast<void>(host.manager.retry_failed_deallocations());
    }
  });
  host.resource->faults().clear();
  static_cast<void>(host.manager.retry_failed_deallocations());
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

TEST(Stress, a_reader_loses_exactly_what_it_did_not_accept) {
  auto manager = null_manager(MemoryBudget::unlimited());
  flight::EventReader reader{flight::FlightView::of_this_process().value(), flight::EventReader::Start::zero};
  std::atomic<bool> done{false};
  std::uint64_t bad = 0;
  std::thread following{[&] {
    std::vector<flight::Event> events;
    std::vector<flight::Gap> gaps;
    while (!done) {
      reader.poll(events, gaps);
      for (auto const& event : events) {
        if (event.kind == flight::EventKind::allocate && event.bytes() == 0) ++bad;
      }
      events.clear();
      gaps.clear();
    }
    reader.poll(events, gaps);
  }};
  const std::uint64_t rounds = scaled(200'000);
  on_threads(3, [&](int) {
    for (std::uint64_t i = 0; i < rounds; ++i) ASSERT_TRUE(manager.alloc<std::byte>(64));
  });
  done = true;
  following.join();
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  EXPECT_EQ(bad, 0U);
  EXPECT_EQ(reader.accepted() + reader.lost(), flight::FlightView::of_this_process()->process().events_recorded);
}

TEST(Stress, managers_come_and_go_beside_readers) {
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    while (!done) {
      const auto view = flight::FlightView::of_this_process();
      if (!view) continue;
      for (auto const& ledger : view->ledgers()) ASSERT_LE(ledger.allocated, ledger.claimed);
    }
  }};
  const std::uint64_t rounds = scaled(300);
  on_threads(3, [&](int) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      auto manager = null_manager(MemoryBudget::with_limit(1000));
      auto buffer = manager.alloc<std::byte>(10, AllocTag{"coming"});
      ASSERT_TRUE(buffer);
      ASSERT_EQ(manager.allocated_bytes(), 10U);
      ASSERT_EQ(manager.stats().allocations, 1U);
    }
  });
  done = true;
  reader.join();
}

}  // namespace
}  // namespace headroom::test
