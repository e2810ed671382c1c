// Tiny rings, lapped without end by one writer, read in this process and in another one, at full speed and after a stall.
#include <atomic>
#include <iostream>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.hpp"
#include "flight/ring_reader.hpp"
#include "flight/ring_writer.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using flight::RingCursor;
using flight::RingRead;
using Word = StdAtomics::Word;

constexpr std::size_t kWords = 8;
constexpr std::size_t kMostSlots = 64;
constexpr std::uint64_t kKind = std::uint64_t{7} << 56;

// What one reader found. Its own line: readers share nothing.
struct alignas(64) Tally {
  std::uint64_t accepted = 0, lost = 0, torn = 0, next = 0;
  std::uint64_t stalled_at = 0;  // its cursor when it fell asleep
};

// Everything that both processes see.
struct Shared {
  alignas(64) Word head{0};
  Word reserve{0};
  alignas(64) Word slots[kMostSlots * kWords]{};
  alignas(64) std::atomic<std::uint64_t> done{0};
  alignas(64) std::atomic<std::uint64_t> asleep{0};
  Tally near_eager, near_sleeper, far_eager, far_sleeper;
};

struct RecordAt {
  Word const* slots;
  Word const* operator()(std::uint64_t index) const noexcept { return slots + index * kWords; }
};
using Reader = flight::RingReader<StdAtomics, kWords, RecordAt>;

struct Sizes {
  std::uint64_t records, block;
};

// All words of a record follow from its number: one word of another record and they disagree.
constexpr std::uint64_t word_of(std::uint64_t number, std::size_t index) noexcept {
  return (number + index) * (0x9E3779B97F4A7C15ULL + 2 * index);
}

void write_records(Shared& shared, Sizes sizes, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    // Uneven pauses between laps: a writer at full speed leaves readers of so small a ring hardly anything to get wrong.
    if (i % sizes.records == 0) {
      for (std::uint64_t pause = (i / sizes.records * 29) % 64; pause != 0; --pause)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    const std::uint64_t number = shared.head.load(std::memory_order_relaxed);
    std::uint64_t words[kWords];
    words[0] = kKind;
    for (std::size_t w = 1; w < kWords; ++w) words[w] = word_of(number, w);
    flight::RingWriter<StdAtomics, kWords>::write(shared.head, shared.reserve, shared.slots, sizes.records, sizes.block, words);
  }
}

class Follower {
public:
  Follower(Shared& shared, Sizes sizes, Tally& tally) noexcept
      : reader_{shared.head, shared.reserve, RecordAt{shared.slots}, sizes.records}, tally_{tally} {}

  /// One step; false when everything published was read.
  bool step() {
    const RingRead outcome = reader_.read(cursor_, words_);
    if (outcome == RingRead::nothing) return false;
    if (outcome == RingRead::damaged) ++tally_.torn;
    if (outcome == RingRead::accepted) {
      ++tally_.accepted;
      const std::uint64_t number = cursor_.next - 1;
      bool whole = words_[0] == (kKind | number);
      for (std::size_t w = 1; w < kWords; ++w) whole = whole && words_[w] == word_of(number, w);
      if (!whole) ++tally_.torn;
    }
    return true;
  }
  void drain() {
    while (step()) {
    }
    tally_.lost = cursor_.lost;
    tally_.next = cursor_.next;
  }
  [[nodiscard]] std::uint64_t next() const noexcept { return cursor_.next; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return cursor_.lost; }

private:
  Reader reader_;
  Tally& tally_;
  RingCursor cursor_;
  Reader::Words words_{};
};

void read_eagerly(Shared& shared, Sizes sizes, Tally& tally) {
  Follower follower{shared, sizes, tally};
  while (shared.done.load(std::memory_order_acquire) == 0) {
    if (!follower.step()) std::this_thread::yield();
  }
  follower.drain();
}

// Reads the first records that there are, tells so, sleeps until the writer has ended, and reads on.
void read_and_sleep(Shared& shared, Sizes sizes, Tally& tally) {
  Follower follower{shared, sizes, tally};
  while (follower.step()) {
  }
  tally.stalled_at = follower.next();
  shared.asleep.fetch_add(1, std::memory_order_release);
  while (shared.done.load(std::memory_order_acquire) == 0) usleep(200);
  follower.drain();
}

// A sleeper at cursor c that wakes after the last of `written` records finds `reserve` at the end of the last block begun.
std::uint64_t loss_of_a_sleeper(Sizes sizes, std::uint64_t at, std::uint64_t written) noexcept {
  const std::uint64_t reserve = (written + sizes.block - 1) / sizes.block * sizes.block;
  const std::uint64_t floor = reserve > sizes.records ? reserve - sizes.records : 0;
  return floor > at ? floor - at : 0;
}

class SharedMemory {
public:
  SharedMemory() {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) shared_ = new (memory) Shared;
  }
  ~SharedMemory() { munmap(shared_, sizeof(Shared)); }
  SharedMemory(SharedMemory const&) = delete;
  SharedMemory& operator=(SharedMemory const&) = delete;
  [[nodiscard]] Shared& operator*() const noexcept { return *shared_; }

private:
  Shared* shared_ = nullptr;
};

class TinyRing : public testing::TestWithParam<Sizes> {};

TEST_P(TinyRing, lapped_without_end_yields_whole_records_and_exact_losses) {
  const Sizes sizes = GetParam();
  const std::uint64_t laps = scaled(sizes.records == 2 ? 10'000'000 : 20'000'000 / sizes.records);
  const std::uint64_t before_the_stall = sizes.records / 2;
  const std::uint64_t written = laps * sizes.records + 1 + before_the_stall;  // ends within a block
  const SharedMemory memory;
  Shared& shared = *memory;
  write_records(shared, sizes, before_the_stall);

  std::cout.flush();             // what waits in it would be printed by each child too
  std::vector<pid_t> processes;  // forked before there are threads
  for (const bool eager : {true, false}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (eager) read_eagerly(shared, sizes, shared.far_eager);
      if (!eager) read_and_sleep(shared, sizes, shared.far_sleeper);
      _exit(0);
    }
    processes.push_back(child);
  }
  std::thread eager{[&] { read_eagerly(shared, sizes, shared.near_eager); }};
  std::thread sleeper{[&] { read_and_sleep(shared, sizes, shared.near_sleeper); }};
  while (shared.asleep.load(std::memory_order_acquire) != 2) std::this_thread::yield();
  write_records(shared, sizes, written - before_the_stall);
  shared.done.store(1, std::memory_order_release);
  eager.join();
  sleeper.join();
  for (const pid_t child : processes) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

  struct Named {
    const char* name;
    Tally const& tally;
  };
  for (auto const& [name, tally] :
       {Named{"eager, this process", shared.near_eager}, Named{"eager, other process", shared.far_eager},
        Named{"sleeper, this process", shared.near_sleeper}, Named{"sleeper, other process", shared.far_sleeper}}) {
    std::cout << "N=" << sizes.records << " B=" << sizes.block << ", " << laps << " laps, " << written << " written; " << name
              << ": " << tally.accepted << " accepted, " << tally.lost << " lost, " << tally.torn << " torn\n";
    EXPECT_EQ(tally.accepted + tally.lost, written) << name;
    EXPECT_EQ(tally.torn, 0U) << name;
  }
  for (Tally const* tally : {&shared.near_sleeper, &shared.far_sleeper}) {
    EXPECT_EQ(tally->stalled_at, before_the_stall);
    EXPECT_EQ(tally->lost, loss_of_a_sleeper(sizes, before_the_stall, written));
  }
}

TEST_P(TinyRing, a_reader_stalled_again_and_again_loses_what_was_predicted_each_time) {
  const Sizes sizes = GetParam();
  const SharedMemory memory;
  Shared& shared = *memory;
  Follower follower{shared, sizes, shared.near_sleeper};
  std::atomic<std::uint64_t> turn{0};        // odd: the writer's
  const std::uint64_t rounds = scaled(300);  // each costs two turns of the scheduler
  // Two threads that take turns: the writer's stores reach the reader through the ring's own orders and `turn`.
  std::thread writer{[&] {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      turn.wait(2 * round, std::memory_order_acquire);
      write_records(shared, sizes, round * 7 % (5 * sizes.records));
      turn.store(2 * round + 2, std::memory_order_release);
      turn.notify_one();
    }
  }};
  std::uint64_t lost = 0;
  std::uint64_t head = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t at = follower.next();
    turn.store(2 * round + 1, std::memory_order_release);
    turn.notify_one();
    turn.wait(2 * round + 1, std::memory_order_acquire);
    head += round * 7 % (5 * sizes.records);
    lost += loss_of_a_sleeper(sizes, at, head);
    follower.drain();
    ASSERT_EQ(follower.lost(), lost) << "round " << round;
    ASSERT_EQ(follower.next(), head);
  }
  writer.join();
  EXPECT_EQ(shared.near_sleeper.accepted + lost, head);
  EXPECT_EQ(shared.near_sleeper.torn, 0U);
  EXPECT_GT(lost, 0U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TinyRing, testing::Values(Sizes{2, 1}, Sizes{8, 2}, Sizes{8, 4}, Sizes{64, 32}),
                         [](auto const& tested) {
                           return "N" + std::to_string(tested.param.records) + "B" + std::to_string(tested.param.block);
                         });

}  // namespace
}  // namespace headroom::test
