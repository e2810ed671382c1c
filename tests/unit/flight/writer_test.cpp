// The recorder as its readers see it: lanes, live table, re-entrancy, fork.
#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <headroom/flight_publish.hpp>

#include "base/test_point.hpp"
#include "flight/recorder.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::EventReader;
using flight::FlightView;

struct Followed {
  std::vector<flight::Event> events;
  std::uint64_t accepted = 0;
  std::uint64_t lost = 0;
};

// Everything that a reader from the first record on can know: accepted and lost add up to what was written.
Followed follow_from_zero() {
  EventReader reader{FlightView::of_this_process().value(), EventReader::Start::zero};
  Followed followed;
  std::vector<flight::Gap> gaps;
  reader.poll(followed.events, gaps);
  followed.accepted = reader.accepted();
  followed.lost = reader.lost();
  return followed;
}

TEST(Recorder, accepted_and_lost_add_up_to_what_was_written) {
  auto manager = null_manager(MemoryBudget::unlimited());
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(manager.alloc<std::byte>(64));
  const auto followed = follow_from_zero();
  EXPECT_EQ(followed.accepted + followed.lost, FlightView::of_this_process()->process().events_recorded);
  EXPECT_GT(followed.lost, 0U) << "20,000 events do not fit a ring of 2,048";
}

TEST(Recorder, an_allocation_record_says_what_happened) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto buffer = manager.alloc<std::byte>(5555, AllocTag{"record-tag"}).value();
  const auto allocations = events_of(EventKind::allocate);
  ASSERT_FALSE(allocations.empty());
  auto const& event = allocations.back();
  EXPECT_EQ(event.bytes(), 5555U);
  EXPECT_EQ(event.allocated_after(), 5555U);
  EXPECT_EQ(event.words[2], reinterpret_cast<std::uintptr_t>(buffer.data()));
  EXPECT_NE(event.flags() & flight::kFlagPeak, 0U);
  EXPECT_EQ(FlightView::of_this_process()->label(event.tag()), "record-tag");
  EXPECT_EQ(event.ledger(), manager.ledger_cell());
}

TEST(Recorder, a_new_thread_continues_the_numbering_of_a_lane_given_back) {
  auto manager = null_manager(MemoryBudget::unlimited());
  for (int i = 0; i < 200; ++i) {
    std::thread{[&] { ASSERT_TRUE(manager.alloc<std::byte>(1)); }}.join();
  }
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(manager.stats().allocations, 200U);
  const auto process = FlightView::of_this_process()->process();
  EXPECT_LE(process.lanes_in_use, 4U) << "lanes of ended threads must be taken again";
  EXPECT_EQ(process.refused_no_lane, 0U);
}

TEST(Recorder, more_threads_than_lanes_share_the_rest_and_the_books_stay_exact) {
  auto manager = null_manager(MemoryBudget::unlimited());
  constexpr int kThreads = 80;
  constexpr int kRounds = 200;
  std::atomic<int> started{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      auto first = manager.alloc<std::byte>(3).value();  // takes a lane, or finds none left
      ++started;
      go.wait(false);
      for (int k = 0; k < kRounds; ++k) ASSERT_TRUE(manager.alloc<std::byte>(7));
    });
  }
  while (started != kThreads) std::this_thread::yield();
  go = true;
  go.notify_all();
  for (auto& thread : threads) thread.join();
  const auto stats = manager.stats();
  EXPECT_EQ(stats.allocations, static_cast<std::uint64_t>(kThreads) * (kRounds + 1));
  EXPECT_EQ(stats.frees, stats.allocations);
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Recorder, a_full_live_table_goes_on_untracked_and_comes_back) {
  auto manager = null_manager(MemoryBudget::unlimited());
  const std::uint32_t slots = flight::recorder.geometry[flight::Region::live_slots].count;
  std::vector<TrackedBuffer<std::byte>> held;
  for (std::uint32_t i = 0; i < slots + 100; ++i) held.push_back(manager.alloc<std::byte>(2).value());
  auto full = snapshot_of(manager);
  EXPECT_GE(full.live_untracked, 100U);
  EXPECT_EQ(full.live_untracked_bytes, 2 * full.live_untracked);
  EXPECT_EQ(full.live_allocations, slots + 100U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  held.clear();
  EXPECT_EQ(snapshot_of(manager).live_untracked, 0U);
  auto tracked_again = manager.alloc<std::byte>(2).value();
  EXPECT_EQ(snapshot_of(manager).live_untracked, 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

#ifdef HEADROOM_TEST_POINTS
GpuMemoryManager* signalled = nullptr;

TEST(Recorder, a_signal_handler_inside_an_emit_uses_shared_words_and_is_counted) {
  auto manager = null_manager(MemoryBudget::unlimited());
  signalled = &manager;
  {
    auto warm = manager.alloc<std::byte>(1, AllocTag{"signal"}).value();
  }
  struct sigaction action{};
  action.sa_handler = [](int) {
    for (int i = 0; i < 3; ++i) static_cast<void>(signalled->alloc<std::byte>(5));
  };
  struct sigaction before{};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const auto refused_before = FlightView::of_this_process()->process().refused_reentrant;
  test_point_handler.store(
      [](TestPoint at) noexcept {
        if (at == TestPoint::book_before_record) {
          test_point_handler.store(nullptr);
          std::raise(SIGUSR1);
        }
      },
      std::memory_order_release);
  {
    auto interrupted = manager.alloc<std::byte>(100).value();
  }
  test_point_handler.store(nullptr);
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(manager.stats().allocations, 5U);
  EXPECT_EQ(manager.stats().frees, 5U);
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(FlightView::of_this_process()->process().refused_reentrant, refused_before + 6);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  const auto followed = follow_from_zero();
  EXPECT_EQ(followed.accepted + followed.lost, FlightView::of_this_process()->process().events_recorded);
}
#endif

TEST(Fork, a_child_leaves_the_parents_books_alone_and_refuses_politely) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto buffer = manager.alloc<std::byte>(4096).value();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto refused = manager.alloc<std::byte>(1);
    const bool polite = !refused && refused.error().kind == ErrorKind::unsupported;
    const bool released = buffer.release().has_value();  // must touch neither device nor books
    const bool none_made = !GpuMemoryManager::create(null_device().value(), MemoryBudget::unlimited());
    _exit(polite && released && none_made ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(manager.allocated_bytes(), 4096U);
  EXPECT_TRUE(manager.audit().clean());
}

TEST(Marks, carry_label_and_value) {
  auto manager = null_manager(MemoryBudget::unlimited());
  flight::mark("step", 42);
  const auto marks = events_of(EventKind::mark);
  ASSERT_FALSE(marks.empty());
  EXPECT_EQ(marks.back().words[2], 42U);
  EXPECT_EQ(FlightView::of_this_process()->label(static_cast<std::uint32_t>(marks.back().words[6])), "step");
}

}  // namespace
}  // namespace headroom::test
