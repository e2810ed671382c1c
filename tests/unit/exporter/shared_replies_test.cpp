// Answers made once for many, and taken back from whoever does not take them.
#include "shared_replies.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

using namespace std::chrono_literals;

constexpr BodyRoom::Limits kRoomy{};
const Request kText{};
const Request kPacked{.accepts_gzip = true};
const Request kOpenMetrics{.accept = "application/openmetrics-text"};

/// Who makes an answer waits in here until it is told to go on.
class Gate {
public:
  void pass() {
    std::unique_lock lock{mutex_};
    ++came_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return may_pass_; });
  }
  void wait_for_one() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return came_ != 0; });
  }
  void open() {
    const std::lock_guard lock{mutex_};
    may_pass_ = true;
    changed_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
  bool may_pass_ = false;
};

/// A client that keeps what it got until the answer is taken back.
class Deaf {
public:
  explicit Deaf(std::shared_ptr<SharedBody> body)
      : taker_{std::make_unique<SharedBody::Taker>(std::move(body),
                                                   [this] {
                                                     const std::lock_guard lock{mutex_};
                                                     is_ended_ = true;
                                                     ended_.notify_all();
                                                   })},
        thread_{[this] {
          std::unique_lock lock{mutex_};
          ended_.wait(lock, [this] { return is_ended_ || may_go_; });
          lock.unlock();
          taker_.reset();
        }} {}
  ~Deaf() {
    {
      const std::lock_guard lock{mutex_};
      may_go_ = true;
      ended_.notify_all();
    }
    thread_.join();
  }
  Deaf(Deaf const&) = delete;
  Deaf& operator=(Deaf const&) = delete;
  [[nodiscard]] bool was_ended() {
    const std::lock_guard lock{mutex_};
    return is_ended_;
  }
  SharedBody::Taker& taker() { return *taker_; }

private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false;
  bool may_go_ = false;
  std::unique_ptr<SharedBody::Taker> taker_;
  std::thread thread_;
};

Route of_size(std::size_t size) {
  return [size](Request const&) { return Reply{.body = std::string(size, 'x'), .content_type = "text/x"}; };
}

TEST(SharedReplies, who_asks_while_one_is_made_shares_the_next_with_all_others) {
  SharedReplies replies{kRoomy};
  Gate gate;
  std::atomic<int> made{0};
  const Route make = [&](Request const&) {
    const int number = ++made;
    if (number == 1) gate.pass();
    return Reply{.body = "number " + std::to_string(number)};
  };
  Reply first;
  std::thread leader{[&] { first = replies.get(kText, make); }};
  gate.wait_for_one();
  constexpr std::size_t kOthers = 12;
  std::vector<Reply> others(kOthers);
  std::vector<std::thread> threads;
  for (auto& other : others) threads.emplace_back([&] { other = replies.get(kText, make); });
  while (replies.asking() < kOthers + 1) std::this_thread::yield();
  gate.open();
  leader.join();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 2);
  EXPECT_EQ(first.shared->bytes(), "number 1");
  for (auto const& other : others) EXPECT_EQ(other.shared, others.front().shared);
  EXPECT_EQ(others.front().shared->bytes(), "number 2") << "none is older than its request";
  EXPECT_EQ(replies.get(kText, make).shared->bytes(), "number 3");
  EXPECT_EQ(replies.asking(), 0U);
}

TEST(SharedReplies, keep_formats_and_packings_apart) {
  SharedReplies replies{kRoomy};
  Gate gate;
  std::atomic<int> made{0};
  const Route make = [&](Request const& request) {
    if (++made == 1) gate.pass();
    return Reply{.body = std::string(1'000, request.accept.empty() ? 't' : 'o'), .content_type = "text/x"};
  };
  std::thread leader{[&] { (void)replies.get(kText, make); }};
  gate.wait_for_one();
  Reply text, packed, open_metrics;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { text = replies.get(kText, make); });
  threads.emplace_back([&] { packed = replies.get(kPacked, make); });
  threads.emplace_back([&] { open_metrics = replies.get(kOpenMetrics, make); });
  while (replies.asking() < 4) std::this_thread::yield();
  gate.open();
  leader.join();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 4);
  EXPECT_EQ(text.shared->bytes(), std::string(1'000, 't'));
  EXPECT_FALSE(text.shared->is_packed());
  EXPECT_TRUE(packed.shared->is_packed());
  EXPECT_TRUE(packed.shared->bytes().starts_with("\x1f\x8b"));
  EXPECT_EQ(open_metrics.shared->bytes(), std::string(1'000, 'o'));
  EXPECT_EQ(open_metrics.content_type, "text/x");
  EXPECT_FALSE(replies.get(kPacked, of_size(255)).shared->is_packed()) << "not worth it";
}

TEST(SharedReplies, what_cannot_be_made_is_an_error_for_all_who_waited_and_for_no_one_later) {
  SharedReplies replies{kRoomy};
  const Route bad = [](Request const&) -> Reply { throw std::runtime_error{"no"}; };
  EXPECT_THROW((void)replies.get(kText, bad), std::runtime_error);
  EXPECT_EQ(replies.get(kText, of_size(3)).shared->bytes(), "xxx");
  EXPECT_EQ(replies.asking(), 0U);
}

TEST(SharedReplies, give_their_room_back_with_the_last_who_has_one) {
  SharedReplies replies{kRoomy};
  auto first = replies.get(kText, of_size(60));
  const auto second = replies.get(kText, of_size(70));
  EXPECT_EQ(replies.bytes(), 130U);
  auto copy = first.shared;
  first = {};
  EXPECT_EQ(replies.bytes(), 130U);
  copy.reset();
  EXPECT_EQ(replies.bytes(), 70U);
}

TEST(SharedReplies, are_taken_back_from_whoever_takes_nothing_and_only_as_many_as_it_needs) {
  SharedReplies replies{{.bytes = 200, .stall = 0ms, .age = 1h, .patience = 1h}};
  std::vector<std::unique_ptr<Deaf>> deaf;
  for (int i = 0; i < 3; ++i) deaf.push_back(std::make_unique<Deaf>(replies.get(kText, of_size(60)).shared));
  EXPECT_EQ(replies.bytes(), 180U);
  std::size_t beside = 0;
  const auto next = replies.get(kText, [&](Request const& request) {
    beside = replies.bytes();
    return of_size(60)(request);
  });
  EXPECT_EQ(next.status, 200);
  EXPECT_EQ(next.shared->bytes().size(), 60U);
  EXPECT_EQ(beside, 120U) << "before it was made, there was room for it";
  EXPECT_TRUE(deaf[0]->was_ended()) << "the oldest";
  EXPECT_FALSE(deaf[1]->was_ended());
  EXPECT_FALSE(deaf[2]->was_ended());
}

TEST(SharedReplies, of_more_than_there_is_room_for_are_on_their_way_one_at_a_time) {
  SharedReplies replies{{.bytes = 100, .stall = 0ms, .age = 1h, .patience = 1h}};
  Deaf deaf{replies.get(kText, of_size(500)).shared};
  const auto next = replies.get(kText, [&](Request const& request) {
    EXPECT_EQ(replies.bytes(), 0U);
    return of_size(500)(request);
  });
  EXPECT_EQ(next.shared->bytes().size(), 500U);
  EXPECT_TRUE(deaf.was_ended());
}

TEST(SharedReplies, stay_with_whoever_takes_them_until_they_are_old) {
  SharedReplies patient{{.bytes = 100, .stall = 1h, .age = 1h, .patience = 0ms}};
  {
    Deaf slow{patient.get(kText, of_size(80)).shared};
    slow.taker().note_progress();
    const auto refused = patient.get(kText, of_size(80));
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.headers, testing::Contains(std::pair<std::string, std::string>{"Retry-After", "1"}));
    EXPECT_EQ(refused.shared, nullptr);
    EXPECT_FALSE(slow.was_ended());
    EXPECT_FALSE(slow.taker().is_over());
  }
  EXPECT_EQ(patient.get(kText, of_size(80)).status, 200) << "it has its room back";

  SharedReplies strict{{.bytes = 100, .stall = 1h, .age = 0ms, .patience = 1h}};
  Deaf slow{strict.get(kText, of_size(80)).shared};
  EXPECT_EQ(strict.get(kText, of_size(80)).status, 200);
  EXPECT_TRUE(slow.was_ended());
}

TEST(SharedReplies, whoever_begins_to_take_one_that_was_taken_back_is_ended_at_once) {
  SharedReplies replies{{.bytes = 100, .stall = 0ms, .age = 0ms, .patience = 0ms}};
  const auto kept = replies.get(kText, of_size(80));
  EXPECT_EQ(replies.get(kText, of_size(80)).status, 503) << "it is kept by nobody who could be ended";
  bool is_ended = false;
  const SharedBody::Taker late{kept.shared, [&] { is_ended = true; }};
  EXPECT_TRUE(is_ended);
  EXPECT_TRUE(late.is_over());
}

TEST(SharedReplies, a_crowd_never_has_more_than_there_is_room_for) {
  SharedReplies replies{{.bytes = 1'000, .stall = 0ms, .age = 1h, .patience = 1h}};
  std::atomic<std::size_t> most{0};
  const Route make = [&](Request const& request) {
    // One is made at a time: nobody else adds to it meanwhile.
    const auto with_this = replies.bytes() + 300;
    if (with_this > most) most = with_this;
    return of_size(300)(request);
  };
  constexpr int kClients = 12, kRounds = 40;
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const Request request = i % 2 == 0 ? kText : kOpenMetrics;
      std::unique_ptr<Deaf> kept;  // each keeps one until it is ended or has the next
      for (int round = 0; round < kRounds; ++round) {
        const auto reply = replies.get(request, make);
        if (reply.status == 200 && reply.shared->bytes().size() == 300) ++answered;
        kept = std::make_unique<Deaf>(reply.shared);
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(answered, kClients * kRounds);
  EXPECT_LE(most, 1'000U);
  EXPECT_EQ(replies.bytes(), 0U);
}

}  // namespace
}  // namespace headroom::exporter
