// The runtime: which stacks fit a device, and the pool of streams.
#include <headroom/runtime.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>

namespace headroom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A bottom with streams that counts them, and fails on demand.
class StreamSource : public DeviceResource {
public:
  explicit StreamSource(std::string uuid = {}) : uuid_(std::move(uuid)) {}
  Result<Block> allocate(AllocRequest const&) override { return Block{}; }
  Result<void> deallocate(Block const&) override { return success(); }
  std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  std::string_view name() const noexcept override { return "source"; }
  std::string_view device_uuid() const noexcept override { return uuid_; }
  Result<StreamId> create_stream() override {
    if (throws) throw std::runtime_error("broken");
    if (refuses) return fail(ErrorKind::driver, Layer::driver, "no stream");
    if (gives_default) return StreamId{};
    auto const now = ++alive;
    auto most = most_alive.load();
    while (most < now && !most_alive.compare_exchange_weak(most, now)) {
    }
    return StreamId{++last};
  }
  Result<void> destroy_stream(StreamId) override {
    --alive;
    if (throws) throw std::runtime_error("broken");
    return success();
  }
  Result<void> synchronize_stream(StreamId stream) override {
    synchronized = stream;
    return success();
  }
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    if (throws) throw 1;
    return mode == ReapMode::synchronize ? 100 : 1;
  }

  std::atomic<int> alive{0}, most_alive{0};
  std::atomic<std::uint64_t> last{0};
  std::atomic<bool> refuses{false}, throws{false}, gives_default{false};
  StreamId synchronized{};

private:
  std::string uuid_;
};

class Decorator : public DeviceResource {
public:
  explicit Decorator(std::shared_ptr<DeviceResource> inner) : inner_(std::move(inner)) {}
  Result<Block> allocate(AllocRequest const& request) override { return inner_->allocate(request); }
  Result<void> deallocate(Block const& block) override { return inner_->deallocate(block); }
  std::uint64_t bytes_outstanding() const noexcept override { return inner_->bytes_outstanding(); }
  std::optional<BudgetSnapshot> budget_snapshot() const noexcept override {
    return BudgetSnapshot{.limit_bytes = 500, .claimed_bytes = 20};
  }
  Result<StreamId> create_stream() override { return inner_->create_stream(); }
  Result<void> destroy_stream(StreamId stream) override { return inner_->destroy_stream(stream); }
  std::string_view name() const noexcept override { return "decorator"; }
  DeviceResource* inner() const noexcept override { return loop ? const_cast<Decorator*>(this) : inner_.get(); }  // NOLINT

  bool loop = false;

private:
  std::shared_ptr<DeviceResource> inner_;
};

Device device_over(std::shared_ptr<DeviceResource> resource) { return Device::custom("test", std::move(resource)).value(); }

TEST(Runtime, without_a_stack_uses_the_devices_own_resource) {
  auto const source = std::make_shared<StreamSource>();
  auto const device = device_over(source);
  auto const runtime = DeviceRuntime::create(device).value();
  EXPECT_EQ(&runtime.stack(), source.get());
  EXPECT_EQ(runtime.shared_stack(), source);
  EXPECT_EQ(runtime.device(), device);
  EXPECT_EQ(runtime.max_streams(), 32U);
  EXPECT_EQ(runtime.budget_snapshot().has_value(), false);
  EXPECT_FALSE(runtime.tracks_uses());
  EXPECT_TRUE(DeviceRuntime::create(host_device({.total_bytes = 4096}).value())->tracks_uses());
}

TEST(Runtime, copies_are_the_same_runtime_and_another_of_the_device_is_not) {
  auto const device = device_over(std::make_shared<StreamSource>());
  auto const runtime = DeviceRuntime::create(device).value();
  auto const copy = runtime;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy, runtime);
  EXPECT_FALSE(DeviceRuntime::create(device).value() == runtime);
}

TEST(Runtime, accepts_a_stack_over_the_same_object_and_shows_its_budget) {
  auto const source = std::make_shared<StreamSource>();
  auto const stack = std::make_shared<Decorator>(std::make_shared<Decorator>(source));
  auto const runtime = DeviceRuntime::create(device_over(source), {.stack = stack});
  ASSERT_TRUE(runtime) << runtime.error().to_string();
  ASSERT_TRUE(runtime->budget_snapshot());
  EXPECT_EQ(runtime->budget_snapshot()->limit_bytes, 500U);
  EXPECT_EQ(runtime->budget_snapshot()->claimed_bytes, 20U);
}

TEST(Runtime, refuses_a_stack_over_another_device_and_names_both) {
  auto const made = DeviceRuntime::create(device_over(std::make_shared<StreamSource>()),
                                          {.stack = std::make_shared<Decorator>(std::make_shared<StreamSource>())});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(made.error().layer, Layer::runtime);
  EXPECT_THAT(made.error().message,
              AllOf(HasSubstr("'decorator'"), HasSubstr("another physical device"), HasSubstr("'test'"), HasSubstr("'source'")));
}

TEST(Runtime, the_uuid_decides_where_both_have_one) {
  auto const device = device_over(std::make_shared<StreamSource>("GPU-1"));
  EXPECT_TRUE(DeviceRuntime::create(device, {.stack = std::make_shared<StreamSource>("GPU-1")}));
  auto const other = DeviceRuntime::create(device, {.stack = std::make_shared<StreamSource>("GPU-2")});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("GPU-1"), HasSubstr("GPU-2")));
  EXPECT_FALSE(DeviceRuntime::create(device, {.stack = std::make_shared<StreamSource>()})) << "one without is another object";
}

TEST(Runtime, refuses_a_stack_that_decorates_itself) {
  auto const stack = std::make_shared<Decorator>(std::make_shared<StreamSource>());
  stack->loop = true;
  auto const made = DeviceRuntime::create(device_over(std::make_shared<StreamSource>()), {.stack = stack});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(made.error().message, HasSubstr("does not end"));
  EXPECT_FALSE(DeviceRuntime::create(device_over(stack)));
}

TEST(Runtime, passes_synchronize_and_reap_to_the_stack) {
  auto const source = std::make_shared<StreamSource>();
  auto runtime = DeviceRuntime::create(device_over(source)).value();
  ASSERT_TRUE(runtime.synchronize(StreamId{5}));
  EXPECT_EQ(source->synchronized, StreamId{5});
  EXPECT_EQ(runtime.reap_pending(), 100U);
  EXPECT_EQ(runtime.reap_pending(ReapMode::query), 1U);
}

// ── the pool ──

class StreamPool : public ::testing::Test {
protected:
  std::shared_ptr<StreamSource> const source_ = std::make_shared<StreamSource>();
  DeviceRuntime make(std::uint32_t max_streams) {
    return DeviceRuntime::create(device_over(source_), {.max_streams = max_streams}).value();
  }
};

TEST_F(StreamPool, hands_out_different_streams_and_never_the_default) {
  auto runtime = make(3);
  std::vector<StreamLease> leases;
  std::set<std::uint64_t> ids;
  for (int at = 0; at < 3; ++at) {
    leases.push_back(runtime.acquire_stream().value());
    ids.insert(leases.back().id().value);
    EXPECT_FALSE(leases.back().empty());
  }
  EXPECT_EQ(ids, (std::set<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(runtime.streams_in_use(), 3U);
}

TEST_F(StreamPool, is_a_hard_error_at_the_cap_that_names_the_cap) {
  auto runtime = make(2);
  auto const first = runtime.acquire_stream().value();
  {
    auto const second = runtime.acquire_stream().value();
    auto const third = runtime.acquire_stream();
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().kind, ErrorKind::stream_misuse);
    EXPECT_EQ(third.error().layer, Layer::runtime);
    EXPECT_THAT(third.error().message, AllOf(HasSubstr("all 2 streams"), HasSubstr("max_streams"), HasSubstr("'test'")));
    EXPECT_EQ(runtime.streams_in_use(), 2U);
  }
  EXPECT_EQ(runtime.streams_in_use(), 1U);
  EXPECT_TRUE(runtime.acquire_stream());
  EXPECT_EQ(source_->last, 2U);
}

TEST_F(StreamPool, of_no_streams_gives_none) {
  EXPECT_EQ(make(0).acquire_stream().error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(source_->last, 0U) << "the resource was not asked";
}

TEST_F(StreamPool, reuses_the_stream_that_came_back_last) {
  auto runtime = make(32);
  auto first = std::optional(runtime.acquire_stream().value());
  auto second = std::optional(runtime.acquire_stream().value());
  first.reset();
  second.reset();
  EXPECT_EQ(runtime.acquire_stream()->id(), StreamId{2});
  for (int round = 0; round < 100; ++round) static_cast<void>(runtime.acquire_stream().value());
  EXPECT_EQ(source_->last, 2U);
  EXPECT_EQ(source_->alive, 2);
}

TEST_F(StreamPool, lease_moves_and_gives_back_once) {
  auto runtime = make(4);
  StreamLease empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty.id(), StreamId{});
  auto first = runtime.acquire_stream().value();
  auto second = runtime.acquire_stream().value();
  auto moved = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(first.id(), StreamId{});
  EXPECT_EQ(moved.id(), StreamId{1});
  EXPECT_EQ(runtime.streams_in_use(), 2U);
  moved = std::move(second);
  EXPECT_EQ(moved.id(), StreamId{2});
  EXPECT_EQ(runtime.streams_in_use(), 1U) << "what was assigned over went back";
  auto& itself = moved;
  moved = std::move(itself);
  EXPECT_EQ(moved.id(), StreamId{2});
  EXPECT_EQ(runtime.streams_in_use(), 1U);
  moved = StreamLease{};
  EXPECT_EQ(runtime.streams_in_use(), 0U);
}

TEST_F(StreamPool, destroys_its_streams_with_the_last_handle_or_lease) {
  std::optional<StreamLease> lease;
  {
    auto runtime = make(4);
    auto const copy = runtime;
    static_cast<void>(runtime.acquire_stream().value());
    lease = runtime.acquire_stream().value();
    auto const other = runtime.acquire_stream().value();
  }
  EXPECT_EQ(source_->alive, 2) << "the lease keeps the runtime alive";
  lease.reset();
  EXPECT_EQ(source_->alive, 0);
}

TEST_F(StreamPool, keeps_stack_and_device_alive) {
  std::weak_ptr<StreamSource> watched;
  std::optional<StreamLease> lease;
  {
    auto const source = std::make_shared<StreamSource>();
    watched = source;
    auto runtime = DeviceRuntime::create(device_over(source)).value();
    lease = runtime.acquire_stream().value();
  }
  EXPECT_FALSE(watched.expired());
  lease.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(StreamPool, gives_the_place_back_when_no_stream_could_be_made) {
  auto runtime = make(1);
  source_->refuses = true;
  for (int round = 0; round < 3; ++round) {
    auto const refused = runtime.acquire_stream();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().message, "no stream");
    EXPECT_EQ(runtime.streams_in_use(), 0U);
  }
  source_->refuses = false;
  EXPECT_TRUE(runtime.acquire_stream());
}

TEST_F(StreamPool, refuses_the_default_stream_from_a_resource) {
  auto runtime = make(1);
  source_->gives_default = true;
  auto const refused = runtime.acquire_stream();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::stream_misuse);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("default stream"), HasSubstr("'source'")));
  EXPECT_EQ(runtime.streams_in_use(), 0U);
}

TEST_F(StreamPool, lets_no_exception_of_a_resource_out) {
  {
    auto runtime = make(2);
    auto const lease = runtime.acquire_stream().value();
    source_->throws = true;
    auto const refused = runtime.acquire_stream();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_THAT(refused.error().message, HasSubstr("broken"));
    EXPECT_EQ(runtime.streams_in_use(), 1U);
    EXPECT_EQ(runtime.reap_pending().error().kind, ErrorKind::driver);
  }
  EXPECT_EQ(source_->alive, 0) << "the throwing destroy_stream was asked once";
}

TEST_F(StreamPool, of_a_resource_without_streams_says_so) {
  class NoStreams : public StreamSource {
    // NOLINTNEXTLINE(bugprone-parent-virtual-call): the default is what is tested
    Result<StreamId> create_stream() override { return DeviceResource::create_stream(); }
  };
  auto runtime = DeviceRuntime::create(device_over(std::make_shared<NoStreams>())).value();
  EXPECT_EQ(runtime.acquire_stream().error().kind, ErrorKind::unsupported);
  EXPECT_EQ(runtime.streams_in_use(), 0U);
}

TEST_F(StreamPool, resource_may_call_back_while_it_makes_a_stream) {
  class Nosy : public StreamSource {
  public:
    Result<StreamId> create_stream() override {
      seen = runtime->streams_in_use();  // would deadlock if the pool's lock were held
      return StreamSource::create_stream();
    }
    std::optional<DeviceRuntime> runtime;
    std::uint32_t seen = 0;
  };
  auto const nosy = std::make_shared<Nosy>();
  nosy->runtime = DeviceRuntime::create(device_over(nosy)).value();
  EXPECT_TRUE(nosy->runtime->acquire_stream());
  EXPECT_EQ(nosy->seen, 1U);
  nosy->runtime.reset();  // it would keep itself alive
}

TEST_F(StreamPool, holds_the_cap_for_threads_that_come_and_go) {
  constexpr int kThreads = 8;
  constexpr std::uint32_t kCap = 5;
  {
    auto runtime = make(kCap);
    std::array<std::atomic<int>, kCap + 1> holders{};
    std::atomic<int> violations{0}, granted{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (int round = 0; round < 2000; ++round) {
          auto lease = runtime.acquire_stream();
          if (!lease) {
            if (lease.error().kind != ErrorKind::stream_misuse) ++violations;
            continue;
          }
          ++granted;
          auto const id = lease->id().value;
          if (id == 0 || id > kCap || holders.at(id).fetch_add(1) != 0) ++violations;  // nobody else has it
          if (runtime.streams_in_use() > kCap) ++violations;
          if (round % 16 == 0) std::this_thread::yield();
          --holders.at(id);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(violations, 0);
    EXPECT_GT(granted, 0);
    EXPECT_LE(source_->most_alive, static_cast<int>(kCap));
    EXPECT_EQ(runtime.streams_in_use(), 0U);
  }
  EXPECT_EQ(source_->alive, 0);
}

TEST_F(StreamPool, forked_child_touches_nothing_of_the_device) {
  auto runtime = std::optional(make(4));
  auto lease = std::optional(runtime->acquire_stream().value());
  static_cast<void>(runtime->acquire_stream().value());
  auto const child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool polite = runtime->acquire_stream().error().kind == ErrorKind::unsupported;
    polite = polite && runtime->synchronize(lease->id()).error().kind == ErrorKind::unsupported;
    polite = polite && runtime->reap_pending().error().kind == ErrorKind::unsupported;
    polite = polite && runtime->streams_in_use() == 0;
    polite = polite && DeviceRuntime::create(device_over(source_)).error().kind == ErrorKind::unsupported;
    lease.reset();
    runtime.reset();
    polite = polite && source_->alive == 2 && source_.use_count() > 1;  // neither streams nor stack were let go
    _exit(polite ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  lease.reset();
  runtime.reset();
  EXPECT_EQ(source_->alive, 0);
}

}  // namespace
}  // namespace headroom
