// Listeners of pressure and several threads: order, nothing left behind, removal.
#include <atomic>
#include <chrono>
#include <thread>

#include "pressure_log.hpp"
#include "stop_at.hpp"

namespace headroom::test {
namespace {

using enum PressureLevel;
using ::testing::ElementsAre;
using ListenerThreads = Listeners;

constexpr std::chrono::minutes kForEver{10};  // a test that waits that long has failed

TEST_F(ListenerThreads, eight_threads_are_told_in_order_one_at_a_time_and_the_last_level_is_told) {
  std::atomic<int> inside{0};
  add([&](PressureChange const& change) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    heard.push_back(change);  // unguarded: deliveries follow each other, which a thread sanitizer checks
    inside.fetch_sub(1);
  });
  up_and_down();  // there is something to hear, however the threads follow each other
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto odd = static_cast<unsigned>(10 * t + i % 7);
        auto held = manager.alloc<std::byte>(100 + odd);
        if (i % 100 == t) manager.set_budget(MemoryBudget::with_limit(i % 200 < 100 ? 700 : 1000));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_FALSE(heard.empty());
  for (std::size_t i = 1; i < heard.size(); ++i) ASSERT_GT(heard[i].sequence, heard[i - 1].sequence);
  const auto now = snapshot_of(manager);
  EXPECT_EQ(heard.back().sequence, now.pressure_sequence);
  EXPECT_EQ(heard.back().to, now.pressure);
  EXPECT_EQ(now.pressure, none);
  EXPECT_EQ(heard.size() + totals().dropped, now.pressure_sequence);
  EXPECT_TRUE(manager.audit().clean());
}

// Another thread makes one more change whenever one was told: the first one tells them all, and then nothing is left.
TEST_F(ListenerThreads, changes_of_others_are_told_to_the_last_however_many) {
  constexpr std::uint64_t kChanges = guard::PressureListeners::kMostInOneCall;
  ledger.set_pressure_margin(0);
  std::atomic<std::uint64_t> told{0}, made{0};
  add([&](PressureChange const& change) {
    heard.push_back(change);
    const std::uint64_t number = ++told;
    while (number <= kChanges && made < number) std::this_thread::yield();
  });
  Bytes base;
  Bytes edge;
  std::thread tells{[&] { base = take(700); }};
  for (std::uint64_t i = 0; i < kChanges; ++i) {
    while (told != i + 1) std::this_thread::yield();
    if (i % 2 == 0) {
      edge = take(300);
    } else {
      edge = {};
    }
    ++made;
  }
  tells.join();
  EXPECT_EQ(heard.size(), kChanges + 1);
  const auto now = snapshot_of(manager);
  EXPECT_EQ(heard.back().sequence, now.pressure_sequence);
  EXPECT_EQ(heard.back().to, now.pressure);
  EXPECT_EQ(now.pressure, low);
}

TEST_F(ListenerThreads, coming_and_going_while_changes_are_told) {
  std::atomic<bool> stop{false};
  listen();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) auto held = manager.alloc<std::byte>(400);
    });
  }
  for (int i = 0; i < 300; ++i) {
    std::atomic<bool> removed{false};
    const auto id = listeners.add([&](PressureChange const&) { EXPECT_FALSE(removed); }).value();
    EXPECT_TRUE(listeners.remove(id, kForEver));
    removed = true;  // and the flag's end: nobody may call it any more
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(listeners.size(), 1U);
  for (std::size_t i = 1; i < heard.size(); ++i) ASSERT_GT(heard[i].sequence, heard[i - 1].sequence);
}

TEST_F(ListenerThreads, a_change_whose_thread_is_slow_to_note_it_holds_later_ones_back_and_comes_first) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  listen();
  Bytes first;
  Bytes second;
  std::thread slow;
  {
    const StopAt before_note{TestPoint::pressure_before_note};
    slow = std::thread{[&] { first = take(700); }};
    StopAt::wait_until_reached();
    second = take(200);
    EXPECT_TRUE(heard.empty());
  }
  slow.join();
  EXPECT_THAT(levels(), ElementsAre(low, medium));
}

TEST_F(ListenerThreads, a_change_that_comes_as_the_deliverer_is_done_is_told_by_it) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  std::vector<std::thread::id> told_by;
  add([&](PressureChange const& change) {
    heard.push_back(change);
    told_by.push_back(std::this_thread::get_id());
  });
  Bytes first;
  Bytes second;
  std::thread delivers;
  std::thread::id deliverer;
  {
    const StopAt stop{TestPoint::notices_before_give_up};
    delivers = std::thread{[&] { first = take(700); }};
    deliverer = delivers.get_id();
    StopAt::wait_until_reached();
    second = take(200);  // finds somebody delivering, and leaves
    EXPECT_THAT(levels(), ElementsAre(low));
  }
  delivers.join();
  EXPECT_THAT(levels(), ElementsAre(low, medium));
  EXPECT_THAT(told_by, ElementsAre(deliverer, deliverer));
}

TEST_F(ListenerThreads, a_change_that_comes_after_the_deliverer_gave_up_is_told_by_its_own_thread) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  listen();
  Bytes first;
  Bytes second;
  std::thread delivers;
  {
    const StopAt after{TestPoint::notices_after_give_up};
    delivers = std::thread{[&] { first = take(700); }};
    StopAt::wait_until_reached();
    second = take(200);
    EXPECT_THAT(levels(), ElementsAre(low, medium));
  }
  delivers.join();
  EXPECT_THAT(levels(), ElementsAre(low, medium));
}

class BlockedListener : public Listeners {
protected:
  void block() {
    blocked = add([this](PressureChange const&) {
      begun = true;
      begun.notify_all();
      let_go.wait(false);
      ended = true;
    });
    thread = std::thread{[this] { held = take(1000); }};
    begun.wait(false);
  }
  void release() {
    let_go = true;
    let_go.notify_all();
  }

  std::atomic<bool> begun{false}, let_go{false}, ended{false};
  ListenerId blocked{};
  std::thread thread;
  Bytes held;
};

TEST_F(BlockedListener, delays_notices_and_nothing_else) {
  listen();
  block();
  manager.set_budget(MemoryBudget::with_limit(4000));
  {
    auto other = manager.alloc<std::byte>(500);
    EXPECT_TRUE(other);
  }
  EXPECT_FALSE(ended);
  release();
  thread.join();
  EXPECT_THAT(levels(), ElementsAre(critical, none));
}

TEST_F(BlockedListener, is_waited_for_when_it_is_removed) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  block();
  const PassedPoint waits{TestPoint::removal_before_wait};
  bool had_ended = false;
  std::thread remover{[&] {
    EXPECT_TRUE(listeners.remove(blocked, kForEver));
    had_ended = ended;
  }};
  PassedPoint::wait_until_passed();
  release();
  remover.join();
  thread.join();
  EXPECT_TRUE(had_ended);
  EXPECT_EQ(listeners.size(), 0U);
}

TEST_F(BlockedListener, is_not_waited_for_without_bound) {
  block();
  EXPECT_TRUE(listeners.remove(blocked, std::chrono::milliseconds{1}));
  EXPECT_FALSE(ended);
  release();
  thread.join();
}

TEST_F(BlockedListener, is_not_waited_for_inside_a_callback) {
  block();
  {
    const guard::CallbackScope inside{guard::Callback::hook};
    EXPECT_TRUE(listeners.remove(blocked, kForEver));
  }
  EXPECT_FALSE(ended);
  release();
  thread.join();
}

}  // namespace
}  // namespace headroom::test
