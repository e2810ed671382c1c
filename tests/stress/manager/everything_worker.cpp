#include "everything_worker.hpp"

#include <chrono>
#include <numeric>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include <headroom/launch.hpp>

namespace headroom::test {
namespace {

using testing::Held;

constexpr std::size_t kMostHeld = 12;
constexpr std::size_t kMostOnShelf = 32;
const std::array<AllocTag, 3> kTags{AllocTag{"weights"}, AllocTag{"kv-cache"}, AllocTag{"scratch"}};

constexpr std::array<std::string_view, kOperations> kNames{
    "alloc",   "alloc_raw", "door_alloc", "free",      "free_of_another_thread",
    "reserve", "spend",     "drop",       "overlay",   "launch",
    "reap",    "budget",    "retry",      "write_off", "bad_request",
    "look"};

// How often each is done, of 1000.
constexpr std::array<std::uint64_t, kOperations> kShares{190, 70, 90, 230, 100, 40, 90, 30, 10, 60, 15, 10, 10, 5, 10, 40};
static_assert(std::accumulate(kShares.begin(), kShares.end(), std::uint64_t{0}) == 1000);

}  // namespace

void Tally::add(Tally const& other) noexcept {
  for (std::size_t i = 0; i < done.size(); ++i) done[i] += other.done[i];
  for (std::size_t i = 0; i < refused.size(); ++i) refused[i] += other.refused[i];
  failed_frees += other.failed_frees;
  failed_uses += other.failed_uses;
  retried += other.retried;
  written_off_bytes += other.written_off_bytes;
}

std::uint64_t Tally::operations() const noexcept { return std::accumulate(done.begin(), done.end(), std::uint64_t{0}); }

std::string Tally::to_string() const {
  std::string text = std::to_string(operations()) + " operations (";
  for (std::size_t i = 0; i < done.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::string{kNames[i]} + " " + std::to_string(done[i]);
  }
  text += "), refused:";
  for (std::size_t i = 0; i < refused.size(); ++i) {
    if (refused[i] == 0) continue;
    text += " " + std::string{headroom::to_string(static_cast<ErrorKind>(i))} + " " + std::to_string(refused[i]);
  }
  return text + "; failed frees " + std::to_string(failed_frees) + ", failed uses " + std::to_string(failed_uses) +
         ", retries that worked " + std::to_string(retried) + ", bytes written off " + std::to_string(written_off_bytes);
}

void Worker::step() {
  std::uint64_t choice = below(1000);
  std::size_t at = 0;
  while (choice >= kShares[at]) choice -= kShares[at++];
  // A full hand frees.
  const auto operation = held_.size() >= kMostHeld ? Operation::free : static_cast<Operation>(at);
  ++tally_.done[static_cast<std::size_t>(operation)];
  switch (operation) {
    case Operation::alloc: return alloc();
    case Operation::alloc_raw: return alloc_raw();
    case Operation::door_alloc: return door_alloc();
    case Operation::free: return free_one();
    case Operation::free_of_another_thread: return free_of_another_thread();
    case Operation::reserve: return reserve();
    case Operation::spend: return spend();
    case Operation::drop: return drop();
    case Operation::overlay: return overlay();
    case Operation::launch: return launch();
    case Operation::reap: return reap();
    case Operation::budget_change: return budget_change();
    case Operation::retry: return retry();
    case Operation::write_off: return write_off();
    case Operation::bad_request: return bad_request();
    case Operation::look: return look();
  }
}

void Worker::finish() {
  for (auto& holding : held_) give_back(holding);
  held_.clear();
}

std::uint64_t Worker::any_size() {
  const std::uint64_t kind = below(16);
  if (kind == 0) return 0;
  return 1 + below(kind == 1 ? kOneMiB : 64 * 1024);
}

AllocOptions Worker::any_options(Origin origin) {
  auto const& streams = world_.streams_of(origin);
  return {
      .tag = kTags[below(kTags.size())], .stream = streams[below(streams.size())], .alignment = kMinimumAlignment << below(4)};
}

// Shortage and failures on purpose are part of the game; anything else is not.
void Worker::count_refusal(Error const& error) {
  ++tally_.refused[static_cast<std::size_t>(error.kind)];
  EXPECT_TRUE(error.kind == ErrorKind::over_budget || error.kind == ErrorKind::device_out_of_memory ||
              error.kind == ErrorKind::driver)
      << error.to_string();
  if (error.kind == ErrorKind::over_budget) {
    EXPECT_TRUE(error.requested && error.current && error.limit) << error.to_string();
    EXPECT_GT(*error.requested + *error.current, *error.limit) << "refused although it fits: " << error.to_string();
  }
}

void Worker::keep(Result<Held> held, Origin origin) {
  if (!held) return count_refusal(held.error());
  if (below(4) != 0) {
    held_.push_back({*std::move(held), origin});
    return;
  }
  Holding holding{*std::move(held), origin};
  {
    const std::scoped_lock lock{world_.mutex};
    if (world_.shelf.size() < kMostOnShelf) {
      world_.shelf.push_back(std::move(holding));
      return;
    }
  }
  held_.push_back(std::move(holding));
}

void Worker::alloc() {
  const Origin origin = any_manager();
  const auto options = any_options(origin);
  keep(testing::held(world_.manager(origin).alloc<std::byte>(any_size(), options)), origin);
}

void Worker::alloc_raw() {
  const Origin origin = any_manager();
  const auto options = any_options(origin);
  auto raw = world_.manager(origin).alloc_raw(any_size(), options);
  if (origin == Origin::plain) {
    ASSERT_FALSE(raw);
    EXPECT_EQ(raw.error().kind, ErrorKind::no_runtime);
    return;
  }
  keep(testing::held(std::move(raw)), origin);
}

void Worker::door_alloc() {
  const Origin origin = below(2) == 0 ? Origin::door_on_plain : Origin::door_on_overlay;
  RawDoor& door = origin == Origin::door_on_plain ? world_.door_on_plain : world_.door_on_overlay;
  const auto options = any_options(origin);
  keep(door.allocate_block(any_size(), options.alignment, options.stream, options.tag).map([&](RawBlock const& block) {
    return Held{testing::DoorBlock{door, block}};
  }),
       origin);
}

void Worker::free_one() {
  if (held_.empty()) return;
  std::swap(held_[below(held_.size())], held_.back());
  give_back(held_.back());
  held_.pop_back();
}

void Worker::free_of_another_thread() {
  std::optional<Holding> taken;
  {
    const std::scoped_lock lock{world_.mutex};
    if (world_.shelf.empty()) return;
    std::swap(world_.shelf[below(world_.shelf.size())], world_.shelf.back());
    taken = std::move(world_.shelf.back());
    world_.shelf.pop_back();
  }
  give_back(*taken);
}

void Worker::clear_shelf() {
  std::vector<Holding> left;
  {
    const std::scoped_lock lock{world_.mutex};
    left = std::exchange(world_.shelf, {});
  }
  for (auto& holding : left) give_back(holding);
}

void Worker::give_back(Holding& holding) {
  if (auto* block = std::get_if<testing::DoorBlock>(&holding.held.owner)) return give_back_to_door(*block);
  if (below(8) == 0) {  // as a destructor does it
    holding.held = Held{};
    return;
  }
  const auto freed = holding.held.release();
  if (freed) return;
  ++tally_.failed_frees;
  EXPECT_EQ(freed.error().kind, ErrorKind::driver) << freed.error().to_string();
}

// By generation: once a free failed, a retry of the manager's may have been faster, and the address may be another block's.
void Worker::give_back_to_door(testing::DoorBlock& block) {
  auto freed = block.door->deallocate(block.block);
  if (freed) return;
  ++tally_.failed_frees;
  EXPECT_EQ(freed.error().kind, ErrorKind::driver) << freed.error().to_string();
  for (std::uint64_t tries = below(3); tries != 0 && !freed; --tries) {
    freed = block.door->deallocate(block.block);
    if (freed || freed.error().kind != ErrorKind::driver) break;
    ++tally_.failed_frees;
  }
  if (freed) return;
  const ErrorKind kind = freed.error().kind;
  EXPECT_TRUE(kind == ErrorKind::driver || kind == ErrorKind::double_free || kind == ErrorKind::use_after_free ||
              kind == ErrorKind::unknown_pointer)
      << freed.error().to_string();
}

void Worker::reserve() {
  const Origin origin = any_manager();
  auto reservation = world_.manager(origin).reserve_bytes(below(512 * 1024));
  if (!reservation) return count_refusal(reservation.error());
  auto token = std::make_shared<SharedToken>(SharedToken{*std::move(reservation), origin});
  // Whoever is displaced ends here, or with the last thread that spends of it.
  const std::scoped_lock lock{world_.mutex};
  std::swap(world_.tokens[below(world_.tokens.size())], token);
}

void Worker::spend() {
  std::shared_ptr<SharedToken> token;
  {
    const std::scoped_lock lock{world_.mutex};
    token = world_.tokens[below(world_.tokens.size())];
  }
  if (!token) return;
  const auto options = any_options(token->origin);
  const std::uint64_t bytes = below(64 * 1024);
  auto held = token->origin == Origin::plain || below(2) == 0 ? testing::held(token->reservation.alloc<std::byte>(bytes, options))
                                                              : testing::held(token->reservation.alloc_raw(bytes, options));
  if (!held && held.error().kind == ErrorKind::invalid_argument) {
    ++tally_.refused[static_cast<std::size_t>(ErrorKind::invalid_argument)];
    EXPECT_EQ(token->reservation.remaining_bytes(), 0U) << "released: " << held.error().to_string();
    return;
  }
  if (!held && held.error().kind == ErrorKind::over_budget) {
    EXPECT_EQ(held.error().layer, Layer::request) << "a reservation meets no budget: " << held.error().to_string();
  }
  keep(std::move(held), token->origin);
}

void Worker::drop() {
  std::shared_ptr<SharedToken> token;
  const bool release_only = below(3) == 0;
  {
    const std::scoped_lock lock{world_.mutex};
    auto& place = world_.tokens[below(world_.tokens.size())];
    if (release_only) {
      token = place;
    } else {
      token = std::exchange(place, nullptr);
    }
  }
  if (token && release_only) token->reservation.release();
}

// An overlay that nobody else has, gone before what came through it; and the one that all use, once more.
void Worker::overlay() {
  const bool own = below(2) == 0;
  auto overlay = world_.manager(Origin::plain).with_runtime_overlay(own ? world_.other_runtime : world_.runtime);
  ASSERT_TRUE(overlay) << overlay.error().to_string();
  auto buffer = overlay->alloc<std::byte>(1 + below(64 * 1024), any_options(Origin::overlay));
  auto refused = world_.manager(Origin::routed).with_runtime_overlay(world_.second_runtime);
  EXPECT_FALSE(refused) << "of another device";
  overlay = tl::unexpected(Error{});
  // Its blocks are no block of `runtime`: a launch would refuse them, as it does those that came without one.
  keep(testing::held(std::move(buffer)), own ? Origin::plain : Origin::overlay);
}

void Worker::launch() {
  const Origin origin = below(4) == 0 ? Origin::forgetful : below(2) == 0 ? Origin::overlay : Origin::routed;
  DeviceRuntime const& runtime = *world_.runtime_of(origin);
  auto const& streams = world_.streams_of(origin);
  const StreamId stream = streams[below(streams.size())];
  auto launch = Launch::on(runtime, stream);
  int named = 0;
  for (auto const& holding : held_) {
    if (world_.runtime_of(holding.origin) != &runtime) continue;
    const bool writes = below(2) == 0;
    if (auto const* buffer = std::get_if<0>(&holding.held.owner)) {
      writes ? launch.writes(*buffer) : launch.reads(*buffer);
    } else if (auto const* raw = std::get_if<1>(&holding.held.owner)) {
      writes ? launch.writes(*raw) : launch.reads(*raw);
    }
    ++named;
  }
  if (named == 0) return;
  if (const auto ready = launch.prepare(); !ready) {
    ++tally_.failed_uses;
    EXPECT_EQ(ready.error().kind, ErrorKind::driver) << ready.error().to_string();
    return;
  }
  auto& host = origin == Origin::forgetful ? world_.second_host : world_.host;
  EXPECT_TRUE(host->enqueue_work(stream, std::chrono::microseconds{below(20)}));
  for (auto finished = launch.finish(); !finished; finished = launch.finish()) {
    ++tally_.failed_uses;
    ASSERT_EQ(finished.error().kind, ErrorKind::driver) << finished.error().to_string();
  }
}

void Worker::reap() {
  if (below(2) == 0) {
    EXPECT_TRUE(world_.manager(any_manager()).reap_pending_deallocations());
  } else {
    EXPECT_TRUE(world_.runtime.reap_pending(ReapMode::query));
  }
}

void Worker::budget_change() {
  const Origin origin = any_manager();
  const std::uint64_t most = World::kLargestBudget[static_cast<std::size_t>(origin)];
  world_.manager(origin).set_budget(MemoryBudget::with_limit(most - below(4) * (most / 8)));
}

void Worker::retry() {
  const Origin origin = any_manager();
  const std::uint64_t freed = world_.manager(origin).retry_failed_deallocations();
  tally_.retried += freed;
  if (origin == Origin::forgetful) {
    EXPECT_EQ(freed, 0U) << "what is gone cannot be freed again";
  }
}

// Only of blocks that the device has back already: others must stay charged to be found at the end.
void Worker::write_off() { tally_.written_off_bytes += world_.manager(Origin::forgetful).write_off_failed_deallocations(); }

void Worker::bad_request() {
  auto& manager = world_.manager(any_manager());
  const auto expect = [](auto const& refused, ErrorKind kind) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, kind) << refused.error().to_string();
  };
  switch (below(4)) {
    case 0: return expect(manager.alloc<std::uint64_t>(SIZE_MAX / 2), ErrorKind::overflow);
    case 1:
      return expect(manager.alloc<std::byte>(64, AllocOptions{.tag = {}, .stream = {}, .alignment = 3}),
                    ErrorKind::invalid_argument);
    case 2: return expect(manager.reserve_bytes(kLargestRequest + 1), ErrorKind::overflow);
    default: return expect(manager.alloc<std::byte>(64 * kOneMiB), ErrorKind::over_budget);
  }
}

void Worker::look() {
  const Origin origin = any_manager();
  auto& manager = world_.manager(origin);
  if (below(8) == 0) manager.reset_peak();
  static_cast<void>(manager.check_budget(below(kOneMiB)));
  const auto stats = manager.stats();
  EXPECT_LE(stats.allocated, stats.claimed);
  EXPECT_LE(stats.allocated, stats.peak);
  EXPECT_LE(stats.claimed, World::kLargestBudget[static_cast<std::size_t>(origin)]);
}

}  // namespace headroom::test
