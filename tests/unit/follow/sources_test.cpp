// Models over what really is: this process while its threads are at work, and recorded histories.
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <latch>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "managers.hpp"
#include "on_threads.hpp"
#include "scale.hpp"
#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

TEST(FollowFlight, a_ledger_at_rest_is_what_its_manager_says) {
  auto host = test::host_manager(MemoryBudget::with_limit(1 << 20), {.touch_memory = false}, "at rest");
  std::vector<TrackedBuffer<std::byte>> held;
  for (std::size_t i = 1; i <= 100; ++i) held.push_back(host.manager.alloc<std::byte>(i, AllocTag{"steps"}).value());
  held.erase(held.begin(), held.begin() + 50);
  Model model{flight_source(flight::FlightView::of_this_process().value())};
  ASSERT_TRUE(model.catch_up());
  auto const cell = host.manager.ledger_cell().value();
  auto const state = model.state_at(cell, ~std::uint64_t{0});
  EXPECT_EQ(state.name, "at rest");
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, 3775U) << "51 + … + 100";
  EXPECT_EQ(state.live_allocations, 50U);
  EXPECT_EQ(state.claimed, 3775U);
  EXPECT_EQ(state.limit, 1U << 20U);
  ASSERT_EQ(state.tags.size(), 1U);
  EXPECT_EQ(state.tags[0].name, "steps");
  auto const peak = model.peak(cell);
  EXPECT_EQ(peak.bytes, 5050U);
  ASSERT_TRUE(peak.ticks.has_value());
  EXPECT_EQ(model.state_at(cell, *peak.ticks).live_allocations, 100U);
  auto const live = model.live_at(cell, ~std::uint64_t{0});
  ASSERT_EQ(live.size(), 50U);
  EXPECT_EQ(live.front().bytes, 51U);
  EXPECT_THAT(live.front().site, testing::HasSubstr("sources_test.cpp"));
}

TEST(FollowFlight, a_model_that_follows_busy_threads_ends_with_their_books) {
  auto host = test::host_manager(MemoryBudget::with_limit(1ULL << 30), {.touch_memory = false}, "busy");
  auto const cell = host.manager.ledger_cell().value();
  std::atomic<int> at_work{4};
  std::array<std::vector<TrackedBuffer<std::byte>>, 4> held;
  std::array<AllocTag, 4> const tags{AllocTag{"a"}, AllocTag{"b"}, AllocTag{"c"}, AllocTag{"d"}};
  Model model{flight_source(flight::FlightView::of_this_process().value()), {.memory_bytes = std::size_t{4} << 20U}};
  auto const since = ticks_now();
  std::latch following{1};  // the others begin after its first poll: else they may be done before it has begun
  test::on_threads(5, [&](int index) {
    if (index == 4) {
      // The follower: whatever it sees meanwhile keeps the invariants.
      EXPECT_TRUE(model.poll());
      following.count_down();
      while (at_work.load(std::memory_order_acquire) != 0) {
        EXPECT_TRUE(model.poll());
        auto const state = model.state_at(cell, ~std::uint64_t{0});
        std::uint64_t sum = state.unattributed_bytes;
        for (auto const& tag : state.tags) sum += tag.bytes;
        EXPECT_EQ(sum, state.allocated);
        EXPECT_LE(model.memory_bytes(), std::size_t{4} << 20U);
        std::this_thread::yield();
      }
      return;
    }
    following.wait();
    std::mt19937 random{static_cast<unsigned>(index)};
    auto& mine = held.at(static_cast<std::size_t>(index));
    for (int i = 0; i < 5000; ++i) {
      if (mine.size() < 50 && random() % 2 == 0) {
        mine.push_back(host.manager.alloc<std::byte>(1 + random() % 1000, tags.at(random() % 4)).value());
      } else if (!mine.empty()) {
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(random() % mine.size()));
      }
    }
    at_work.fetch_sub(1, std::memory_order_release);
  });
  ASSERT_TRUE(model.catch_up());
  auto const state = model.state_at(cell, ~std::uint64_t{0});
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, host.manager.allocated_bytes());
  std::uint64_t blocks = 0;
  for (auto const& mine : held) blocks += mine.size();
  EXPECT_EQ(state.live_allocations, blocks);
  auto const snapshot = test::snapshot_of(host.manager);
  for (auto const& tag : state.tags) EXPECT_EQ(tag.bytes, test::tag_bytes(snapshot, tag.name)) << tag.name;
  EXPECT_EQ(model.losses().events_read + model.losses().events_lost, model.source().process().events_recorded);
  EXPECT_GT(model.last_ticks(), since);
}

TEST(FollowFlight, a_file_that_cannot_be_read_is_an_error) {
  auto const missing = Model::open_flight("/nonexistent/x.flight");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
  auto const no_history = Model::open_history("/nonexistent/x.csv");
  ASSERT_FALSE(no_history);
  EXPECT_EQ(no_history.error().kind, ErrorKind::io);
}

std::string history_path(std::string_view name) { return std::string{HEADROOM_TEST_DATA} + '/' + std::string{name} + ".csv.xz"; }

TEST(FollowHistory, a_shipped_history_gives_the_recorded_figures) {
  auto model = Model::open_history(history_path("gpt2")).value();
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.ended());
  auto const peak = model.peak(0);
  EXPECT_EQ(peak.bytes, 10'579'622'600U);
  ASSERT_TRUE(peak.ticks.has_value());
  EXPECT_EQ(model.state_at(0, *peak.ticks).allocated, 10'579'622'600U);
  auto const end = model.state_at(0, ~std::uint64_t{0});
  EXPECT_EQ(end.known, Known::exact);
  EXPECT_EQ(end.allocated, 0U);
  EXPECT_EQ(end.live_allocations, 0U);
  EXPECT_EQ(end.peak, 10'579'622'600U);
  EXPECT_FALSE(end.limit.has_value());
  EXPECT_EQ(model.losses().gaps, 0U);
}

TEST(FollowHistory, what_is_live_at_the_end_is_the_leak_list) {
  auto model = Model::open_history(history_path("resnet")).value();
  ASSERT_TRUE(model.catch_up());
  auto const leaks = model.alive_since(0, model.last_ticks() + 1, model.last_ticks());
  EXPECT_EQ(leaks.bytes, 68'157'440U);
  EXPECT_EQ(leaks.allocations, 3U);
}

TEST(FollowHistory, recorded_failures_are_stories) {
  auto model = Model::open_history(history_path("oom_batch")).value();
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  EXPECT_EQ(stories.size(), 43U);
  EXPECT_GT(stories.at(0).requested, 0U);
  EXPECT_EQ(stories.at(0).end, FailureEnd::failed);
}

class Written : public testing::Test {
protected:
  std::string write(std::string_view rows) {
    std::ofstream file{path_};
    file << "Thread,Time,Action,Pointer,Size,Stream\n" << rows;
    return path_;
  }
  void TearDown() override { static_cast<void>(std::remove(path_.c_str())); }

private:
  std::string path_ = testing::TempDir() + "follow-history-" + std::to_string(::getpid()) + ".csv";
};

TEST_F(Written, unmatched_frees_change_nothing_and_times_never_go_back) {
  auto model = Model::open_history(write("0,0,free,0x10,64,0\n"
                                         "0,10,allocate,0x20,100,0\n"
                                         "1,5,allocate,0x30,1,0\n"
                                         "0,20,free,0x20,100,0\n"))
                   .value();
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 11).allocated, 101U) << "the second one is stamped back, and counts from 10 on";
  EXPECT_EQ(model.state_at(0, 10).allocated, 0U) << "ticks are microseconds, from 1 on";
  EXPECT_EQ(model.state_at(0, 21).allocated, 1U);
  EXPECT_EQ(model.monotonic_ns(11), 10'000U);
}

TEST_F(Written, more_than_a_ledger_can_hold_is_an_error_with_the_line) {
  auto model = Model::open_history(write("0,0,allocate,0x10,17592186044415,0\n0,1,allocate,0x20,1,0\n")).value();
  auto const done = model.catch_up();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::overflow);
  EXPECT_THAT(done.error().to_string(), testing::HasSubstr(":3: size 1"));
}

}  // namespace
}  // namespace headroom::follow
