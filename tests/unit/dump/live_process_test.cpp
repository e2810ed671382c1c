// Post-mortems of a process in full work, and a descriptor that takes its bytes bit by bit between signals.
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include "dump/byte_sink.hpp"
#include "managers.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

TEST(LiveProcess, a_dump_beside_busy_threads_is_whole_and_its_figures_hold_together) {
  auto manager = null_manager(MemoryBudget::unlimited(), "busy");
  auto held = manager.alloc<std::byte>(12'345).value();
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      while (!over.load()) {
        auto a = manager.alloc<std::byte>(1'000 + i).value();
        auto b = manager.alloc<std::byte>(70'000).value();
      }
    });
  }
  const auto view = flight::FlightView::of_this_process().value();
  for (int round = 0; round < 12; ++round) {
    const auto dump = read_post_mortem(post_mortem_text(view), "dump");
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_FALSE(dump->truncated);
    for (auto const& ledger : dump->ledgers) {
      EXPECT_LE(ledger.allocated, ledger.claimed);
      EXPECT_LE(ledger.allocated, ledger.peak);
    }
    bool has_held = false;
    for (auto const& allocation : dump->live) has_held = has_held || allocation.bytes == 12'345;
    EXPECT_TRUE(has_held);
    std::uint64_t listed = 0;
    for (auto const& lane : dump->lanes) {
      EXPECT_EQ(lane.main.listed + lane.main.lost.value(), lane.main.recorded);
      EXPECT_EQ(lane.journal.listed + lane.journal.lost.value(), lane.journal.recorded);
      for (auto const& ring : {lane.main, lane.journal}) {
        if (ring.listed == 0) continue;
        EXPECT_LT(ring.last.value(), ring.recorded);
        EXPECT_GE(*ring.last - ring.first.value() + 1, ring.listed);
        EXPECT_LE(ring.recorded - ring.listed, ring.lost.value());
      }
      listed += lane.main.listed + lane.journal.listed;
    }
    EXPECT_EQ(dump->events.size(), listed);
    // Each ring in its own order, without a number twice.
    std::map<std::pair<std::uint32_t, flight::Ring>, std::uint64_t> next;
    for (auto const& event : dump->events) {
      auto& least = next[{event.lane, event.ring}];
      EXPECT_GE(event.number, least);
      least = event.number + 1;
    }
  }
  over.store(true);
  for (auto& thread : threads) thread.join();
}

std::atomic<int> interruptions{0};

TEST(DescriptorSink, goes_on_after_signals_and_half_writes) {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { interruptions.fetch_add(1); };  // without SA_RESTART: a write that waits ends with EINTR
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4'096);
  std::string sent(300'000, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 % 251);
  const pthread_t writer = pthread_self();
  std::string received;
  std::thread reader{[&] {
    std::vector<char> piece(1'000);
    while (received.size() < sent.size()) {
      pthread_kill(writer, SIGUSR1);
      const ssize_t got = read(ends[0], piece.data(), piece.size());
      if (got <= 0) break;
      received.append(piece.data(), static_cast<std::size_t>(got));
    }
  }};
  dump::DescriptorSink sink{ends[1]};
  const int error = sink.write(sent);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(received == sent);
  EXPECT_GT(interruptions.load(), 0);
}

// As a terminal is that another program left so: it waits for room instead of ending half way.
TEST(DescriptorSink, goes_on_where_a_write_would_not_wait) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4'096);
  fcntl(ends[0], F_SETFL, 0);
  const std::string sent(300'000, 'x');
  dump::DescriptorSink sink{ends[1]};
  std::string received;
  std::thread reader{[&] {
    std::vector<char> piece(1'000);
    for (;;) {
      const ssize_t got = read(ends[0], piece.data(), piece.size());
      if (got <= 0) return;
      received.append(piece.data(), static_cast<std::size_t>(got));
    }
  }};
  EXPECT_EQ(sink.write(sent), 0);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(received.size(), sent.size());
}

TEST(DescriptorSink, says_why_it_cannot_go_on) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  dump::DescriptorSink sink{full};
  EXPECT_EQ(sink.write(std::string_view{"x"}), ENOSPC);
  close(full);
  dump::DescriptorSink closed{-1};
  EXPECT_EQ(closed.write(std::string_view{"x"}), EBADF);
}

}  // namespace
}  // namespace headroom::test
