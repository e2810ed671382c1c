// The processes of a machine as its page shows them: who lives, who ended and how it was then, and what is beyond the bounds.
#include "node_followed.hpp"

#include <atomic>
#include <list>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "node_support.hpp"

namespace headroom::exporter {
namespace {

using flight::EventKind;
using flight::Ring;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class NodeFollowedTest : public testing::Test {
protected:
  explicit NodeFollowedTest(NodeFollowed::Limits limits = {}) : followed_{options(limits)} {}

  NodeFollowed::Options options(NodeFollowed::Limits limits) {
    return {.limits = limits,
            .is_whole =
                [this](flight::FlightView const& view) {
                  const std::lock_guard lock{mutex_};
                  return !damaged_.contains(view.memory().data());
                },
            .let_go = {}};
  }

  /// Started later than those before it, with one manager that holds `bytes`.
  FakeProcess& start(std::uint64_t bytes) {
    auto& process = processes_.emplace_back(processes_.size() + 1, "train", 100 + processes_.size());
    process.file().header().start_realtime_ns = 1'000 * (processes_.size() + 1);
    process.open(0, "pool");
    process.allocate(0, 1, bytes);
    known_.push_back({.id = process.id(), .run = process.file().header().run, .view = process.view()});
    followed_.arrive(process.view(), process.id());
    return process;
  }
  NodeBooks::Known& known(FakeProcess const& process) {
    return *std::ranges::find(known_, process.id(), [](auto const& one) { return one.id; });
  }
  void end(FakeProcess const& process, Ending ending) {
    known(process).view.reset();
    known(process).ending = ending;
  }
  void damage(FakeProcess const& process) {
    const std::lock_guard lock{mutex_};
    damaged_.insert(process.first());
  }
  void tick(std::chrono::seconds later = std::chrono::seconds{0}) {
    now_ += later;
    followed_.tick([this] { return known_; }, now_);
  }
  /// All four ticks of a second: every process was read.
  void second() {
    for (int i = 0; i < 4; ++i) tick();
    now_ += std::chrono::seconds{1};
  }
  /// Of those at rest, too, everything was read.
  void seconds() {
    for (std::uint32_t i = 0; i < Followed::kRestTicks; ++i) second();
  }
  std::shared_ptr<NodeFollowed::Process> followed(FakeProcess const& process) {
    for (auto const& one : followed_.living()) {
      if (one->id == process.id()) return one;
    }
    return nullptr;
  }
  std::vector<std::uint64_t> pids() {
    std::vector<std::uint64_t> list;
    for (auto const& one : followed_.living()) list.push_back(std::stoull(one->name));
    return list;
  }

  NodeFollowed::Clock::time_point now_{std::chrono::hours{1}};
  std::list<FakeProcess> processes_;
  std::vector<NodeBooks::Known> known_;
  std::mutex mutex_;  // guards damaged_
  std::set<std::byte const*> damaged_;
  NodeFollowed followed_;
};

TEST_F(NodeFollowedTest, lists_the_living_newest_first) {
  start(10);
  start(20);
  start(30);
  tick();
  EXPECT_THAT(pids(), ElementsAre(102, 101, 100));
  const auto look = followed_.look(*followed_.living().front(), {});
  ASSERT_TRUE(look);
  EXPECT_EQ(look->ledgers.at(0).allocated, 30U);
}

TEST_F(NodeFollowedTest, who_ended_stays_as_it_was_until_the_books_let_go) {
  auto& killed = start(500);
  auto& exited = start(7);
  second();
  exited.close(0);
  exited.exit();
  end(killed, Ending::killed);
  end(exited, Ending::exited);
  tick();
  EXPECT_THAT(pids(), IsEmpty());
  killed.allocate(0, 1, 1'000);  // what comes later is not of this process any more
  const auto ended = followed_.ended();
  ASSERT_THAT(ended, SizeIs(2));
  for (auto const& one : ended) {
    const auto json = nlohmann::json::parse(one->figures);
    const bool is_killed = one->id == killed.id();
    EXPECT_EQ(json["state"], is_killed ? "killed" : "exited");
    EXPECT_EQ(json["allocated_bytes"], is_killed ? 500 : 0);
    ASSERT_TRUE(one->details);
    ASSERT_THAT(one->details->histories, SizeIs(1));
    EXPECT_EQ(one->details->histories.begin()->second.back().high, is_killed ? 500U : 7U);
  }
  std::erase_if(known_, [&](auto const& one) { return one.id == killed.id(); });
  tick();
  ASSERT_THAT(followed_.ended(), SizeIs(1));
  EXPECT_EQ(followed_.ended()[0]->id, exited.id());
}

TEST_F(NodeFollowedTest, who_was_there_for_less_than_a_tick_is_listed_as_ended) {
  auto& process = start(40);
  process.refuse(0, 2);
  end(process, Ending::killed);
  tick();
  ASSERT_THAT(followed_.ended(), SizeIs(1));
  const auto json = nlohmann::json::parse(followed_.ended()[0]->figures);
  EXPECT_EQ(json["allocated_bytes"], 40);
  EXPECT_EQ(json["failures"], 2);
}

TEST_F(NodeFollowedTest, an_end_that_nobody_saw_is_unknown) {
  end(start(1), Ending::unknown);
  tick();
  ASSERT_THAT(followed_.ended(), SizeIs(1));
  EXPECT_EQ(nlohmann::json::parse(followed_.ended()[0]->figures)["state"], "unknown");
}

TEST_F(NodeFollowedTest, a_damaged_file_is_let_go_of_and_nothing_of_it_is_shown) {
  auto& looked_at = start(1);
  auto& sampled = start(2);
  auto& ends = start(3);
  second();
  const auto process = followed(looked_at);
  damage(looked_at);
  EXPECT_FALSE(followed_.look(*process, {}));
  EXPECT_THAT(pids(), ElementsAre(102, 101));
  damage(sampled);
  damage(ends);
  end(ends, Ending::killed);
  second();  // the books still know the two, and do not bring them back
  EXPECT_THAT(pids(), IsEmpty());
  EXPECT_THAT(followed_.ended(), IsEmpty());
}

TEST_F(NodeFollowedTest, a_run_that_is_not_the_one_that_came_is_damaged) {
  auto& process = start(1);
  const auto one = followed(process);
  process.file().header().run = 0;  // zeros, where a page is gone
  EXPECT_FALSE(followed_.look(*one, {}));
}

TEST_F(NodeFollowedTest, failures_from_before_anybody_looked_are_there_at_the_first_look) {
  auto& process = start(1);
  process.file().write(0, Ring::journal, flight::record(EventKind::refusal, 5));
  second();
  const auto one = followed(process);
  EXPECT_THAT(followed_.look(*one, {})->failures, IsEmpty());  // nobody has read the events
  EXPECT_TRUE(followed_.attend(*one, now_));
  EXPECT_THAT(followed_.look(*one, {})->failures, SizeIs(1));
}

TEST_F(NodeFollowedTest, what_failed_before_it_was_killed_is_told) {
  auto& process = start(1);
  second();
  process.file().write(0, Ring::journal, flight::record(EventKind::refusal, 5));
  end(process, Ending::killed);
  tick();
  ASSERT_THAT(followed_.ended(), SizeIs(1));
  EXPECT_THAT(followed_.ended()[0]->details->failures, SizeIs(1));
}

TEST_F(NodeFollowedTest, a_process_at_rest_has_every_second_and_one_that_moves_is_seen_at_once) {
  auto& process = start(100);
  second();
  second();
  process.allocate(0, 1, 50);  // claim and allocated move
  second();
  const auto look = followed_.look(*followed(process), {});
  ASSERT_THAT(look->histories, SizeIs(1));
  EXPECT_EQ(look->histories.begin()->second.back().high, 150U);
}

class FewPlaces : public NodeFollowedTest {
protected:
  FewPlaces()
      : NodeFollowedTest({.processes = 4, .stories = 2, .histories = 3, .ended = 2, .ended_details = 1, .ended_managers = 8}) {}
  [[nodiscard]] bool has_stories(FakeProcess const& process) { return followed(process)->followed.has_stories(); }
};

TEST_F(FewPlaces, whoever_was_looked_at_longest_ago_gives_its_stories_up) {
  auto& first = start(1);
  auto& second = start(1);
  auto& third = start(1);
  EXPECT_TRUE(followed_.attend(*followed(first), now_));
  EXPECT_TRUE(followed_.attend(*followed(second), now_ + std::chrono::seconds{1}));
  EXPECT_FALSE(followed_.attend(*followed(third), now_ + std::chrono::seconds{9}));
  EXPECT_TRUE(has_stories(first));
  EXPECT_FALSE(has_stories(third));
  EXPECT_TRUE(followed_.attend(*followed(third), now_ + std::chrono::seconds{10}));
  EXPECT_FALSE(has_stories(first));
  EXPECT_TRUE(has_stories(second));
  EXPECT_TRUE(has_stories(third));
}

TEST_F(FewPlaces, failures_take_a_place_but_people_come_first) {
  auto& failing = start(1);
  auto& also_failing = start(1);
  auto& looked_at = start(1);
  auto& late = start(1);
  second();
  failing.refuse(0, 1);
  also_failing.refuse(0, 1);
  seconds();
  EXPECT_TRUE(has_stories(failing));
  EXPECT_TRUE(has_stories(also_failing));
  late.refuse(0, 1);
  seconds();
  EXPECT_FALSE(has_stories(late)) << "of two that failed a moment ago nobody gives way to a third";
  EXPECT_TRUE(followed_.attend(*followed(looked_at), now_));
  EXPECT_TRUE(has_stories(looked_at));
  EXPECT_EQ(has_stories(failing) + has_stories(also_failing), 1);
}

TEST_F(FewPlaces, what_is_beyond_the_bounds_is_counted) {
  std::vector<FakeProcess*> all;
  for (std::uint64_t bytes = 1; bytes <= 5; ++bytes) all.push_back(&start(bytes));
  second();
  EXPECT_THAT(pids(), SizeIs(4));
  EXPECT_EQ(followed_.left_out().processes, 1U);
  EXPECT_EQ(followed_.left_out().histories, 1U);
  for (auto const* process : {all[0], all[1], all[2]}) end(*process, Ending::killed);
  second();
  // Whoever had no room is there now, and so is its past.
  EXPECT_THAT(pids(), ElementsAre(104, 103));
  EXPECT_EQ(followed_.left_out().processes, 0U);
  seconds();
  EXPECT_EQ(followed_.left_out().histories, 0U);
  const auto ended = followed_.ended();
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_EQ(followed_.left_out().ended, 1U);
  EXPECT_TRUE(ended[0]->details);
  EXPECT_FALSE(ended[1]->details);
}

TEST_F(FewPlaces, stories_that_nobody_cares_for_end) {
  auto& process = start(1);
  second();
  EXPECT_TRUE(followed_.attend(*followed(process), now_));
  tick(std::chrono::seconds{599});
  second();
  EXPECT_TRUE(has_stories(process));
  tick(std::chrono::seconds{1});
  second();
  EXPECT_FALSE(has_stories(process));
  EXPECT_TRUE(followed_.attend(*followed(process), now_));
  EXPECT_TRUE(has_stories(process));
}

/// Whatever happens at once: figures are those of whole files, and bounds hold.
TEST_F(FewPlaces, looks_from_many_threads_while_processes_come_and_go) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> people;
  for (int count = 0; count < 3; ++count) {
    people.emplace_back([&] {
      while (!is_over) {
        for (auto const& process : followed_.living()) {
          (void)followed_.attend(*process, NodeFollowed::Clock::now());
          if (const auto look = followed_.look(*process, {})) {
            EXPECT_EQ(look->process.run, process->run);
            for (auto const& ledger : look->ledgers) EXPECT_EQ(ledger.allocated, 64U);
          }
        }
        for (auto const& one : followed_.ended()) EXPECT_EQ(nlohmann::json::parse(one->figures)["allocated_bytes"], 64);
      }
    });
  }
  for (int round = 0; round < 40; ++round) {
    auto& process = start(64);
    now_ += std::chrono::seconds{11};
    second();
    if (round % 4 == 3) damage(process);
    end(process, round % 2 == 0 ? Ending::killed : Ending::exited);
    if (known_.size() > 6) known_.erase(known_.begin());
    tick();
    EXPECT_LE(followed_.living().size(), 4U);
    EXPECT_LE(followed_.ended().size(), 2U);
  }
  is_over = true;
  for (auto& one : people) one.join();
  EXPECT_EQ(followed_.errors(), 0U);
}

}  // namespace
}  // namespace headroom::exporter
