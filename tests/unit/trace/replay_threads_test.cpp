// Recorded threads are threads: in the order of the file, or each at its own pace.
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "replays.hpp"

namespace headroom::test {
namespace {

/// Hands out addresses and notes who asked for what, in order.
class NotingResource final : public DeviceResource {
public:
  struct Note {
    std::thread::id thread;
    std::uint64_t bytes;
    std::uint64_t stream;
  };

  Result<Block> allocate(AllocRequest const& request) override {
    std::scoped_lock const lock{mutex_};
    notes_.push_back({std::this_thread::get_id(), request.bytes, request.stream.value});
    next_ += 4096;
    auto* const pointer = reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr): only a number here
    return Block{.pointer = pointer, .bytes = request.bytes, .stream = request.stream, .tag = request.tag};
  }
  Result<void> deallocate(Block const&) override { return {}; }
  std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  std::string_view name() const noexcept override { return "noting"; }

  std::vector<Note> notes() const {
    std::scoped_lock const lock{mutex_};
    return notes_;
  }

private:
  mutable std::mutex mutex_;
  std::vector<Note> notes_;
  std::uintptr_t next_ = 0x1000;
};

GpuMemoryManager manager_over(std::shared_ptr<NotingResource> resource, MemoryBudget budget) {
  auto device = Device::custom("noting", std::move(resource));
  auto manager = GpuMemoryManager::create(device.value(), budget);
  return std::move(manager.value());
}

TEST(replay_in_file_order, applies_each_record_in_its_own_thread_and_in_the_order_of_the_file) {
  // Sizes are the position, threads alternate irregularly.
  std::vector<int> const threads = {3, 3, 9, 3, 5, 5, 9, 9, 9, 3, 5, 3};
  std::string records;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    records += std::to_string(threads[i]) + "," + std::to_string(i) + ",allocate,0x" + std::to_string(i + 1) + "," +
               std::to_string(i + 1) + ",0\n";
  }
  auto const resource = std::make_shared<NotingResource>();
  ReplayOptions options;
  options.loops = 20;
  auto const result = replayed(history_of(records), manager_over(resource, MemoryBudget::unlimited()), options);
  auto const notes = resource->notes();
  ASSERT_EQ(notes.size(), threads.size() * 20);
  std::set<std::pair<int, std::thread::id>> pairs;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    EXPECT_EQ(notes[i].bytes, i % threads.size() + 1);
    pairs.emplace(threads[i % threads.size()], notes[i].thread);
  }
  EXPECT_EQ(pairs.size(), 3U) << "each recorded thread is one thread, over all loops";
  EXPECT_FALSE(pairs.contains({3, std::this_thread::get_id()}));
  EXPECT_EQ(result.figures().loop_frees, 19U * threads.size());
}

TEST(replay_in_file_order, runs_a_single_recorded_thread_in_the_calling_one) {
  auto const resource = std::make_shared<NotingResource>();
  auto const result = replayed(history_of("7,0,allocate,0xa,64,0\n"), manager_over(resource, MemoryBudget::unlimited()));
  EXPECT_EQ(resource->notes().at(0).thread, std::this_thread::get_id());
}

TEST(replay_in_file_order, gives_exact_figures_for_interleaved_threads) {
  auto const history = history_of(
      "1,0,allocate,0xa,600,0\n"
      "2,1,allocate,0xb,300,0\n"
      "3,2,allocate,0xc,200,0\n"  // 1100: refused
      "2,3,free,0xa,600,0\n"      // freed by another thread
      "3,4,allocate,0xd,700,0\n"  // 1000
      "1,5,free,0xc,200,0\n"      // skipped
      "1,6,free,0xb,300,0\n");
  auto const manager = manager_with(MemoryBudget::with_limit(1000));
  for (int round = 0; round < 50; ++round) {
    auto const result = replayed(history, manager);
    EXPECT_EQ(result.figures().allocations, 3U);
    EXPECT_EQ(result.figures().frees, 2U);
    EXPECT_EQ(result.figures().refused, 1U);
    EXPECT_EQ(result.figures().peak_bytes, 1000U);
    EXPECT_EQ(result.figures().live_bytes, 700U);
    EXPECT_EQ(result.first_refusal()->line, 4U);
  }
}

TEST(replay_in_free_order, keeps_allocations_before_their_frees) {
  // Every block is freed by the other thread, and the addresses repeat, so that only waiting for the right one gives 0 live.
  std::string records;
  for (int i = 0; i < 300; ++i) {
    auto const pointer = "0x" + std::to_string(i % 3 + 1);
    records += "1," + std::to_string(i) + ",allocate," + pointer + ",1000,0\n";
    records += "2," + std::to_string(i) + ",free," + pointer + ",1000,0\n";
  }
  ReplayOptions options;
  options.order = ReplayOrder::free;
  options.loops = 3;
  auto const manager = manager_with(MemoryBudget::unlimited());
  auto const result = replayed(history_of(records), manager, options);
  EXPECT_EQ(result.figures().allocations, 300U);
  EXPECT_EQ(result.figures().frees, 300U);
  EXPECT_EQ(result.figures().unmatched_frees, 0U);
  EXPECT_EQ(result.figures().live_bytes, 0U);
  EXPECT_EQ(result.figures().loop_frees, 0U);
  EXPECT_GE(result.figures().peak_bytes, 1000U);
  EXPECT_LE(result.figures().peak_bytes, 300'000U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(replay, gives_each_recorded_stream_the_stream_it_was_told) {
  auto const resource = std::make_shared<NotingResource>();
  auto const history = history_of("0,0,allocate,0xa,1,0\n0,1,allocate,0xb,2,77\n0,2,allocate,0xc,3,99\n0,3,allocate,0xd,4,77\n");
  ASSERT_EQ(history.stream_ids().size(), 3U);
  EXPECT_EQ(history.stream_ids()[1], 77U);
  ReplayOptions options;
  options.streams = {StreamId{0}, StreamId{11}};  // none for 99: the default stream
  auto const result = replayed(history, manager_over(resource, MemoryBudget::unlimited()), options);
  auto const notes = resource->notes();
  ASSERT_EQ(notes.size(), 4U);
  EXPECT_EQ(notes[0].stream, 0U);
  EXPECT_EQ(notes[1].stream, 11U);
  EXPECT_EQ(notes[2].stream, 0U);
  EXPECT_EQ(notes[3].stream, 11U);
}

TEST(replay, refuses_more_threads_than_it_runs) {
  std::string records;
  for (std::size_t i = 0; i <= kMaxReplayThreads; ++i) records += std::to_string(i) + ",0,allocate,0xa,1,0\n";
  auto const result = replay(history_of(records), manager_with(MemoryBudget::unlimited()), {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace headroom::test
