// CUDA resources after the driver has shut down, in forked children, and under many threads.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_resources.hpp"
#include "scale.hpp"

namespace headroom {
namespace {

using testing::make_fake_async;
using testing::make_fake_direct;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Sink final : ReturnSink {
  void returned(std::uint64_t bytes) noexcept override { total.fetch_add(bytes, std::memory_order_relaxed); }
  std::atomic<std::uint64_t> total{0};
};

// ── the driver is gone ──

TEST(CudaUnloaded, frees_are_taken_for_done_and_everything_else_says_so) {
  auto both = make_fake_async({.bytes = 16 * kMiB}).value();
  auto& resource = *both.resource;
  Sink sink;
  auto const a = resource.create_stream().value();
  auto pending = resource.allocate({.bytes = 100, .stream = a}).value();
  auto used = resource.allocate({.bytes = 2000, .stream = a}).value();
  auto live = resource.allocate({.bytes = 30000}).value();
  ASSERT_TRUE(resource.prepare_use(used, {}, UseKind::read));
  ASSERT_TRUE(resource.finish_use(used, {}, UseKind::read));
  for (auto* const block : {&pending, &used, &live}) block->returns_to = &sink;
  ASSERT_TRUE(resource.deallocate(pending));

  both.cuda->unload();
  EXPECT_TRUE(resource.deallocate(live));
  EXPECT_EQ(sink.total, 30000U);
  EXPECT_TRUE(resource.deallocate(used));
  EXPECT_EQ(sink.total, 32000U);
  EXPECT_EQ(resource.deallocate(used).error().kind, ErrorKind::double_free) << "misuse stays misuse";
  auto const refused = resource.allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 4);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("shut down"));
  EXPECT_FALSE(resource.memory_info().free);
  EXPECT_EQ(resource.memory_info().total, 16 * kMiB);
  EXPECT_FALSE(resource.pool_usage());
  EXPECT_FALSE(resource.create_stream());
  EXPECT_EQ(resource.reap_pending(ReapMode::synchronize).value(), 100U);
  EXPECT_EQ(sink.total, 32100U);
  EXPECT_EQ(resource.bytes_outstanding(), 0U);
  both.resource.reset();  // quietly
}

TEST(CudaUnloaded, every_way_of_reaping_gives_everything_back) {
  for (auto const mode : {ReapMode::query, ReapMode::synchronize, ReapMode::synchronize_next}) {
    for (bool const recorded : {false, true}) {
      auto both = make_fake_async({.bytes = 16 * kMiB}).value();
      auto& resource = *both.resource;
      both.cuda->freeze(true);
      ASSERT_TRUE(resource.deallocate(resource.allocate({.bytes = 100}).value()));
      if (recorded) {
        EXPECT_EQ(resource.reap_pending(ReapMode::query).value(), 0U);
      }
      both.cuda->unload();
      EXPECT_EQ(resource.reap_pending(mode).value(), 100U);
      EXPECT_EQ(resource.reap_pending(mode).value(), 0U);
    }
  }
}

TEST(CudaUnloaded, the_direct_resource_ends_quietly_too) {
  auto both = make_fake_direct({.bytes = 16 * kMiB}).value();
  Sink sink;
  auto live = both.resource->allocate({.bytes = 1000}).value();
  EXPECT_TRUE(both.resource->allocate({.bytes = 500}));  // left
  live.returns_to = &sink;
  both.cuda->unload();
  EXPECT_TRUE(both.resource->deallocate(live));
  EXPECT_EQ(sink.total, 1000U);
  EXPECT_EQ(both.resource->bytes_outstanding(), 500U);
  both.resource.reset();
}

// ── a forked child ──

// `check` in a child: 0 = what it returned was true.
template <class Check>
int status_of_child(Check const& check) {
  auto const child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

template <class Value>
bool refused_as_unsupported(Result<Value> const& result) {
  return !result && result.error().kind == ErrorKind::unsupported;
}

bool refuses_everything(DeviceResource& resource, Block const& block) {
  auto const stream = block.stream;
  return refused_as_unsupported(resource.allocate({.bytes = 1})) && refused_as_unsupported(resource.allocate({.bytes = 0})) &&
         refused_as_unsupported(resource.deallocate(block)) && refused_as_unsupported(resource.fill_zero(block, 0, 1, stream)) &&
         refused_as_unsupported(resource.copy_in(block, 0, {}, stream)) && refused_as_unsupported(resource.create_stream()) &&
         refused_as_unsupported(resource.destroy_stream(stream)) && refused_as_unsupported(resource.synchronize_stream(stream)) &&
         refused_as_unsupported(resource.prepare_use(block, stream, UseKind::read)) &&
         refused_as_unsupported(resource.finish_use(block, stream, UseKind::read)) &&
         refused_as_unsupported(resource.record_use(block, stream, UseKind::read)) && !resource.memory_info().free &&
         resource.memory_info().total == 16 * kMiB;
}

TEST(CudaForkedChild, all_work_is_refused_and_destructors_do_nothing) {
  auto both = make_fake_async({.bytes = 16 * kMiB}).value();
  auto const stream = both.resource->create_stream().value();
  auto const block = both.resource->allocate({.bytes = 1000, .stream = stream}).value();
  auto const freed = both.cuda->calls(testing::CudaCall::free_async);
  auto const status = status_of_child([&] {
    auto& resource = *both.resource;
    auto const refused = refuses_everything(resource, block) && refused_as_unsupported(resource.reap_pending(ReapMode::query)) &&
                         refused_as_unsupported(resource.pool_usage()) && refused_as_unsupported(resource.trim(0)) &&
                         refused_as_unsupported(resource.reset_pool_high_water()) &&
                         refused_as_unsupported(device::CudaAccess::async(both.cuda.get(), 0, {}));
    both.resource.reset();
    return refused && both.cuda->calls(testing::CudaCall::free_async) == freed &&
           both.cuda->calls(testing::CudaCall::stream_destroy) == 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(both.resource->deallocate(block)) << "the parent goes on";
}

TEST(CudaForkedChild, the_direct_resource_refuses_too) {
  auto both = make_fake_direct({.bytes = 16 * kMiB}).value();
  auto const stream = both.resource->create_stream().value();
  auto const block = both.resource->allocate({.bytes = 1000, .stream = stream}).value();
  auto const status = status_of_child([&] {
    auto const refused = refuses_everything(*both.resource, block) && refused_as_unsupported(both.resource->trim(0));
    both.resource.reset();
    return refused && both.cuda->calls(testing::CudaCall::free) == 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(both.resource->deallocate(block));
}

// ── threads ──

// Blocks pass from thread to thread and are used and freed on whatever stream; some threads reap all the while.
void pass_blocks_on(DeviceResource& resource, std::vector<StreamId> const& streams, Sink& sink) {
  constexpr std::size_t kThreads = 4;
  auto const rounds = test::scaled(1500);
  std::mutex mutex;
  std::vector<Block> shelf;  // under the mutex
  std::atomic<std::uint64_t> asked{0};
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      auto const any_stream = [&] { return streams[random() % streams.size()]; };
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto const block =
            resource.allocate({.bytes = 1 + random() % 3000, .alignment = 256U << random() % 3, .stream = any_stream()});
        ASSERT_TRUE(block) << block.error().to_string();
        asked.fetch_add(block->bytes, std::memory_order_relaxed);
        if (random() % 4 == 0) {
          auto const on = any_stream();
          auto const kind = random() % 2 == 0 ? UseKind::read : UseKind::write;
          EXPECT_TRUE(resource.prepare_use(*block, on, kind));
          EXPECT_TRUE(resource.finish_use(*block, on, kind));
        }
        Block freed;
        {
          std::lock_guard const lock(mutex);
          shelf.push_back(*block);
          if (shelf.size() < 16) continue;
          std::swap(shelf[random() % shelf.size()], shelf.back());
          freed = shelf.back();
          shelf.pop_back();
        }
        if (random() % 2 == 0) freed.stream = any_stream();
        freed.returns_to = &sink;
        EXPECT_TRUE(resource.deallocate(freed));
        if (random() % 32 == 0) {
          constexpr std::array kModes{ReapMode::query, ReapMode::synchronize_next, ReapMode::synchronize};
          EXPECT_TRUE(resource.reap_pending(kModes.at(random() % kModes.size())));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto block : shelf) {
    block.returns_to = &sink;
    EXPECT_TRUE(resource.deallocate(block));
  }
  EXPECT_TRUE(resource.reap_pending(ReapMode::synchronize));
  EXPECT_EQ(resource.bytes_outstanding(), 0U);
  EXPECT_EQ(sink.total, asked.load());
}

TEST(CudaThreads, the_async_resource_loses_no_byte_and_misuses_no_call) {
  auto const both = make_fake_async({.devices = 2, .bytes = 4096 * kMiB}, 1).value();
  std::vector<StreamId> streams{{}, {both.cuda->foreign_stream(1)}};
  for (int more = 0; more < 4; ++more) streams.push_back(both.resource->create_stream().value());
  Sink sink;
  pass_blocks_on(*both.resource, streams, sink);
  EXPECT_EQ(device::CudaAccess::tracked_blocks(*both.resource), 0U);
  EXPECT_THAT(both.cuda->active_devices(), ::testing::ElementsAre(1));
}

TEST(CudaThreads, the_direct_resource_loses_no_byte_and_misuses_no_call) {
  auto const both = make_fake_direct({.bytes = 4096 * kMiB}).value();
  std::vector<StreamId> streams{{}};
  for (int more = 0; more < 4; ++more) streams.push_back(both.resource->create_stream().value());
  Sink sink;
  pass_blocks_on(*both.resource, streams, sink);
}

TEST(CudaThreads, streams_come_and_go_while_others_free_on_them) {
  auto const both = make_fake_async({.bytes = 4096 * kMiB}).value();
  auto& resource = *both.resource;
  std::atomic<std::uint64_t> asked{0};
  Sink sink;
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&] {
      auto const rounds = test::scaled(200);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto const stream = resource.create_stream().value();
        auto const other = resource.create_stream().value();
        for (int free = 0; free < 3; ++free) {
          auto block = resource.allocate({.bytes = 700, .stream = stream}).value();
          asked.fetch_add(block.bytes, std::memory_order_relaxed);
          EXPECT_TRUE(resource.prepare_use(block, other, UseKind::write));
          EXPECT_TRUE(resource.finish_use(block, other, UseKind::write));
          block.returns_to = &sink;
          EXPECT_TRUE(resource.deallocate(block));
        }
        EXPECT_TRUE(resource.destroy_stream(stream));
        EXPECT_TRUE(resource.destroy_stream(other));
        EXPECT_TRUE(resource.reap_pending(ReapMode::query));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(resource.reap_pending(ReapMode::synchronize));
  EXPECT_EQ(sink.total, asked.load());
  EXPECT_EQ(resource.bytes_outstanding(), 0U);
}

}  // namespace
}  // namespace headroom
