// Threads that come and go, more threads than lanes, and blocks that outlive their thread's lane.
#include <atomic>
#include <barrier>
#include <bit>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include <pthread.h>

#include "child_process.hpp"
#include "flight/recorder.hpp"
#include "flight/thread_state.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using flight::FlightView;
using Buffer = TrackedBuffer<std::byte>;

// Everything ever written, and every event that found no place.
struct Emitted {
  std::uint64_t main = 0, journal = 0, refused_no_lane = 0, refused_reentrant = 0;
};
Emitted emitted_so_far() {
  Emitted sum;
  const auto view = FlightView::of_this_process().value();
  for (auto const& lane : view.lanes()) {
    sum.main += lane.main_head;
    sum.journal += lane.journal_head;
  }
  const auto process = view.process();
  sum.refused_no_lane = process.refused_no_lane;
  sum.refused_reentrant = process.refused_reentrant;
  return sum;
}

// Bits set in the table's bitmaps: slots that are taken by live blocks or wait in a thread's cache.
std::uint64_t slots_taken() {
  std::uint64_t taken = 0;
  for (std::uint32_t i = 0; i < flight::recorder.geometry[flight::Region::live_shares].count; ++i) {
    for (auto const& word : flight::recorder.shares[i].bitmap) taken += static_cast<std::uint64_t>(std::popcount(word.load()));
  }
  return taken;
}

TEST(Threads, ten_thousand_short_ones_reuse_lanes_and_lose_nothing) {
  constexpr std::uint64_t kAtOnce = 8;
  auto manager = null_manager(MemoryBudget::unlimited());
  {
    auto warm = manager.alloc<std::byte>(1).value();
  }
  const auto before = emitted_so_far();
  const std::uint64_t rounds = scaled(10'000 / kAtOnce);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      threads.emplace_back([&] { ASSERT_TRUE(manager.alloc<std::byte>(1 + round % 100)); });
    }
    for (auto& thread : threads) thread.join();
  }
  const std::uint64_t threads = rounds * kAtOnce;
  const auto after = emitted_so_far();
  const auto process = FlightView::of_this_process()->process();
  EXPECT_EQ(after.main - before.main, 2 * threads) << "one record for each allocation and each free";
  EXPECT_EQ(after.journal - before.journal, 2 * threads) << "one for each thread that came and each that went";
  EXPECT_EQ(after.refused_no_lane, before.refused_no_lane);
  EXPECT_LE(FlightView::of_this_process()->header().lanes_used.load(), kAtOnce + 2);
  EXPECT_EQ(process.lanes_in_use, 1U) << "this thread's own";
  EXPECT_EQ(manager.stats().allocations, threads + 1);
  EXPECT_EQ(manager.stats().frees, threads + 1);
  EXPECT_LE(slots_taken(), flight::kSlotCache) << "what this thread keeps for itself; ended threads gave theirs back";
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Threads, two_hundred_at_once_have_every_event_recorded_or_counted_as_refused) {
  constexpr int kThreads = 200;
  auto manager = null_manager(MemoryBudget::unlimited());
  {
    auto warm = manager.alloc<std::byte>(1).value();
  }
  const auto before = emitted_so_far();
  const std::uint64_t rounds = scaled(2000);
  std::barrier start{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      auto first = manager.alloc<std::byte>(static_cast<std::size_t>(i) + 1).value();  // takes a lane, or finds none left
      start.arrive_and_wait();                                                         // all of them live now
      for (std::uint64_t round = 0; round < rounds; ++round) ASSERT_TRUE(manager.alloc<std::byte>(1 + round % 50));
      start.arrive_and_wait();  // and until here
    });
  }
  for (auto& thread : threads) thread.join();
  const std::uint64_t allocations = kThreads * (rounds + 1);
  const auto after = emitted_so_far();
  const std::uint64_t refused = after.refused_no_lane - before.refused_no_lane;
  std::cout << kThreads << " living threads: " << after.main - before.main << " recorded, " << refused << " refused of "
            << 2 * allocations << " emitted\n";
  EXPECT_EQ(after.main - before.main + refused, 2 * allocations);
  EXPECT_EQ(after.refused_reentrant, before.refused_reentrant);
  EXPECT_EQ(manager.stats().allocations, allocations + 1);
  EXPECT_EQ(manager.stats().frees, allocations + 1);
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  const auto ledger = snapshot_of(manager);
  EXPECT_EQ(ledger.in_flight_bytes, 0U);
  EXPECT_EQ(tag_bytes(ledger, "untagged"), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// ── Blocks that end after their thread's lane ──

std::optional<GpuMemoryManager> late_manager;
pthread_key_t earlier_key;
pthread_key_t later_key;
std::atomic<int> key_destructors{0};

struct ThreadLocalBuffers {
  std::vector<Buffer> held;
  ~ThreadLocalBuffers() {
    // Allocates once more while thread_locals die, and lets go of all.
    held.push_back(late_manager->alloc<std::byte>(33).value());
  }
};
thread_local ThreadLocalBuffers thread_buffers;

// Frees what the key held and allocates again; the first time it also leaves a block for the next round of destructors.
void key_destructor(pthread_key_t key, void* value) {
  ++key_destructors;
  auto* held = static_cast<std::vector<Buffer>*>(value);
  const bool again = held->size() == 1;
  delete held;
  {
    auto passing = late_manager->alloc<std::byte>(7).value();
  }
  if (!again) return;
  auto* more = new std::vector<Buffer>;
  more->push_back(late_manager->alloc<std::byte>(11).value());
  more->push_back(late_manager->alloc<std::byte>(12).value());
  pthread_setspecific(key, more);
}

void hold_in(pthread_key_t key) {
  auto* held = new std::vector<Buffer>;
  held->push_back(late_manager->alloc<std::byte>(100).value());
  pthread_setspecific(key, held);
}

bool say_if(bool wrong, const char* what) {
  if (wrong) std::printf("wrong: %s\n", what);
  return wrong;
}

// The recorder makes its pthread key when it starts, and destructors run in the order of the keys: one of ours is older, one younger.
const Role kLateBuffers{"late-buffers", [](auto const&) {
                          pthread_key_create(&earlier_key, [](void* value) { key_destructor(earlier_key, value); });
                          late_manager = null_manager(MemoryBudget::unlimited());
                          pthread_key_create(&later_key, [](void* value) { key_destructor(later_key, value); });
                          {
                            auto warm = late_manager->alloc<std::byte>(1).value();
                          }
                          const auto before = emitted_so_far();
                          constexpr int kThreads = 500;
                          for (int i = 0; i < kThreads; ++i) {
                            std::thread{[i] {
                              // Who comes first, a thread_local or a key, is the thread's choice; the last one's first allocation is in a destructor.
                              if (i % 4 == 0) thread_buffers.held.push_back(late_manager->alloc<std::byte>(50).value());
                              if (i % 4 != 3) hold_in(earlier_key);
                              if (i % 4 != 3) hold_in(later_key);
                              if (i % 4 == 1) thread_buffers.held.push_back(late_manager->alloc<std::byte>(50).value());
                              if (i % 4 == 3) pthread_setspecific(later_key, new std::vector<Buffer>);
                            }}.join();
                          }
                          // In 3 of 4 threads each key runs twice and allocates 100, 7, 11, 12 and 7 bytes; in half of all a thread_local has 50 and 33.
                          const std::uint64_t allocations = kThreads * 3 / 4 * 10 + kThreads / 2 * 2 + kThreads / 4;
                          const auto after = emitted_so_far();
                          const auto stats = late_manager->stats();
                          bool wrong = say_if(stats.allocations != allocations + 1, "allocations");
                          wrong |= say_if(stats.frees != stats.allocations, "frees");
                          wrong |= say_if(stats.allocated != 0 || stats.claimed != 0, "bytes");
                          wrong |= say_if(!late_manager->audit().clean(), late_manager->audit().to_string().c_str());
                          wrong |= say_if(after.main - before.main + after.refused_no_lane != 2 * allocations, "events");
                          wrong |=
                              say_if(FlightView::of_this_process()->process().lanes_in_use != 1, "a lane was not given back");
                          wrong |= say_if(slots_taken() > flight::kSlotCache, "a slot was not given back");
                          wrong |= say_if(key_destructors != kThreads * 3 / 4 * 4 + kThreads / 4, "destructors");
                          std::printf("%d threads, %llu allocations, %d key destructors\n", kThreads,
                                      static_cast<unsigned long long>(allocations), key_destructors.load());
                          return wrong ? 1 : 0;
                        }};

TEST(Threads, blocks_may_end_after_their_threads_lane_in_any_order) {
  const TemporaryFolder folder;
  Child child{"late-buffers", {}, {.environment = {"HEADROOM_DIR=" + folder.path()}}};
  EXPECT_EQ(child.wait(), 0) << child.output() << child.errors();
  std::cout << child.output();
}

}  // namespace
}  // namespace headroom::test
