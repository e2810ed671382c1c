// A device's budget that takes the device itself into account: memory kept free on it, and a context that counts.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/device_account.hpp>
#include <headroom/host_resource.hpp>

#include "device_budgets.hpp"
#include "scale.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct Limited {
  std::shared_ptr<HostResource> host;
  Device device;
  std::shared_ptr<GlobalDeviceBudget> stack;
};

Limited limited(HostOptions const& host_options, MemoryBudget budget, DeviceBudgetOptions const& options) {
  auto host = host_of(host_options);
  auto device = host_device_over(host).value();
  auto stack = GlobalDeviceBudget::create(device, budget, options).value();
  return {std::move(host), std::move(device), std::move(stack)};
}

// Allocates blocks of that size until one is refused; the refusal.
Error fill(DeviceResource& stack, std::uint64_t bytes, std::vector<Block>& blocks) {
  for (;;) {
    auto block = stack.allocate({.bytes = bytes});
    if (!block) return std::move(block.error());
    blocks.push_back(*block);
  }
}

void free_all(DeviceResource& stack, std::vector<Block>& blocks) {
  for (auto const& block : blocks) EXPECT_TRUE(stack.deallocate(block));
  blocks.clear();
}

const HostOptions kTenGiB{.total_bytes = 10 * kGiB, .context_overhead_bytes = 400 * kMiB};

// ── kept free ──

// 10 GiB − 400 MiB of context − 225 MiB to keep = 9615 MiB: 96 blocks of 100 MiB and 15 of 1 MiB.
TEST(KeptFree, a_raw_allocation_of_as_much_succeeds_at_a_full_budget) {
  auto it = limited(kTenGiB, MemoryBudget::with_limit(10 * kGiB), {.keep_free_bytes = 225 * kMiB});
  EXPECT_EQ(it.stack->account().remaining_bytes(), 9615 * kMiB);
  std::vector<Block> blocks;
  fill(*it.stack, 100 * kMiB, blocks);
  EXPECT_EQ(blocks.size(), 96U);
  fill(*it.stack, kMiB, blocks);
  EXPECT_EQ(blocks.size(), 111U);
  const Error refused = fill(*it.stack, 1, blocks);
  EXPECT_EQ(blocks.size(), 111U);
  EXPECT_EQ(refused.kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.layer, Layer::device_account);
  EXPECT_EQ(refused.requested, 1U);
  EXPECT_EQ(refused.current, 9615 * kMiB);
  EXPECT_EQ(refused.limit, 9615 * kMiB);
  EXPECT_EQ(refused.required, 9615 * kMiB + 1);
  EXPECT_EQ(refused.device_free, 225 * kMiB);
  EXPECT_EQ(refused.device_total, 10 * kGiB);
  EXPECT_EQ(refused.device_outside, 400 * kMiB);
  EXPECT_THAT(refused.message, HasSubstr("225 MiB kept free"));
  EXPECT_EQ(it.stack->account().remaining_bytes(), 0U);

  auto library = it.host->allocate({.bytes = 225 * kMiB});
  ASSERT_TRUE(library) << library.error().to_string();
  EXPECT_TRUE(it.host->deallocate(*library));
  free_all(*it.stack, blocks);
  expect_empty(it.stack->account());
}

// In granules of 2 MiB a block of 1 MiB takes 2: the ledger has room for 15 of them, the device for 7 until 226 MiB are left.
TEST(KeptFree, what_rounding_takes_does_not_cross_the_line_either) {
  HostOptions coarse = kTenGiB;
  coarse.granularity_bytes = 2 * kMiB;
  auto it = limited(coarse, MemoryBudget::with_limit(10 * kGiB), {.keep_free_bytes = 225 * kMiB});
  std::vector<Block> blocks;
  fill(*it.stack, 100 * kMiB, blocks);
  ASSERT_EQ(blocks.size(), 96U);
  const Error refused = fill(*it.stack, kMiB, blocks);
  EXPECT_EQ(blocks.size(), 103U);
  EXPECT_EQ(it.host->usage().free_on_device, 226 * kMiB);
  EXPECT_EQ(refused.kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.layer, Layer::device_account);
  EXPECT_EQ(refused.device_free, 226 * kMiB);
  EXPECT_EQ(refused.device_outside, 400 * kMiB) << "rounding is no use outside";
  EXPECT_EQ(refused.current, 9607 * kMiB);
  EXPECT_EQ(refused.limit, 9607 * kMiB) << "1 MiB above the line, less 1 MiB of rounding";
  EXPECT_GT(*refused.required, *refused.limit);
  EXPECT_EQ(it.stack->account().stats().refusals, 2U);
  EXPECT_EQ(it.stack->account().claimed_bytes(), 9607 * kMiB);
  EXPECT_TRUE(it.host->allocate({.bytes = 225 * kMiB}));
}

TEST(KeptFree, what_a_library_took_must_be_free_again_before_the_next_allocation) {
  auto it = limited(kTenGiB, MemoryBudget::unlimited(), {.keep_free_bytes = 200 * kMiB});
  std::vector<Block> blocks;
  fill(*it.stack, 40 * kMiB, blocks);
  ASSERT_EQ(blocks.size(), 241U) << "9640 MiB ÷ 40 MiB";
  const auto library = it.host->allocate({.bytes = 200 * kMiB}).value();
  ASSERT_TRUE(it.stack->deallocate(blocks.back()));
  blocks.pop_back();
  EXPECT_FALSE(it.stack->allocate({.bytes = 40 * kMiB})) << "40 MiB are free, and 200 must stay so";
  EXPECT_EQ(it.stack->account().budget(), MemoryBudget::with_limit(9440 * kMiB)) << "10240 − 400 − 200 outside − 200 kept";
  EXPECT_EQ(snapshot_of(it.stack->account()).device_outside, 600 * kMiB);
  ASSERT_TRUE(it.host->deallocate(library));
  EXPECT_TRUE(it.stack->allocate({.bytes = 40 * kMiB})) << "the limit follows the device before a request is refused by it";
}

// No limit in the ledger at all: the line holds by itself.
TEST(KeptFree, holds_under_a_budget_that_only_observes) {
  auto it = limited(kTenGiB, MemoryBudget::observe(kGiB), {.keep_free_bytes = 200 * kMiB});
  EXPECT_EQ(it.stack->account().budget(), MemoryBudget::observe(kGiB));
  std::vector<Block> blocks;
  const Error refused = fill(*it.stack, 40 * kMiB, blocks);
  EXPECT_EQ(blocks.size(), 241U);
  EXPECT_EQ(refused.kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.limit, 9640 * kMiB) << "where the line stood";
  EXPECT_EQ(it.host->usage().free_on_device, 200 * kMiB);
  free_all(*it.stack, blocks);
  expect_empty(it.stack->account());
}

TEST(KeptFree, reservations_are_under_the_same_line) {
  auto it = limited(kTenGiB, MemoryBudget::unlimited(), {.keep_free_bytes = 225 * kMiB});
  EXPECT_FALSE(it.stack->reserve(9615 * kMiB + 1));
  ASSERT_TRUE(it.stack->reserve(9615 * kMiB));
  auto block = it.stack->allocate({.bytes = 9615 * kMiB, .reserved = true});
  ASSERT_TRUE(block) << block.error().to_string();
  EXPECT_EQ(it.host->usage().free_on_device, 225 * kMiB);
  it.stack->unreserve(0);
  ASSERT_TRUE(it.stack->deallocate(*block));
  expect_empty(it.stack->account());
}

// A reservation holds no device memory: what a library took meanwhile is missing, and the bytes go back to the reservation.
TEST(KeptFree, a_reserved_request_stopped_at_the_line_gives_its_bytes_back_to_its_reservation) {
  auto it = limited(kTenGiB, MemoryBudget::unlimited(), {.keep_free_bytes = 225 * kMiB});
  ASSERT_TRUE(it.stack->reserve(9615 * kMiB));
  const auto library = it.host->allocate({.bytes = kMiB}).value();
  const auto refused = it.stack->allocate({.bytes = 9615 * kMiB, .reserved = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(it.stack->account().stats().unspent, 9615 * kMiB);
  EXPECT_TRUE(it.stack->allocate({.bytes = 9614 * kMiB, .reserved = true}));
  ASSERT_TRUE(it.host->deallocate(library));
}

TEST(KeptFree, pending_frees_are_reaped_and_caches_trimmed_before_the_line_refuses) {
  HostOptions ordered{.total_bytes = kGiB, .stream_ordered = true};
  auto pending = limited(ordered, MemoryBudget::observe(kGiB), {.keep_free_bytes = 256 * kMiB});
  ASSERT_TRUE(pending.stack->deallocate(pending.stack->allocate({.bytes = 768 * kMiB}).value()));
  ASSERT_EQ(pending.host->usage().pending, 768 * kMiB);
  EXPECT_TRUE(pending.stack->allocate({.bytes = 768 * kMiB}));

  HostOptions cached{.total_bytes = kGiB, .release_threshold_bytes = kGiB};
  auto it = limited(cached, MemoryBudget::unlimited(), {.keep_free_bytes = 256 * kMiB});
  ASSERT_TRUE(it.stack->deallocate(it.stack->allocate({.bytes = 512 * kMiB}).value()));
  ASSERT_EQ(it.host->usage().cached, 512 * kMiB);
  EXPECT_TRUE(it.stack->allocate({.bytes = 768 * kMiB}));
  EXPECT_EQ(it.host->usage().free_on_device, 256 * kMiB);
}

// A request that stands between its look and the device's answer is the only one that sees its memory as free. The other one waits for
// it as long as it may, which here is in vain.
TEST(KeptFree, a_request_on_its_way_counts_before_the_device_has_answered_it) {
  auto host = host_of({.total_bytes = 3 * kMiB});
  auto watching = decorate<WatchingDecorator>(host).value();
  const auto device = host_device_over(host).value();
  auto stack = GlobalDeviceBudget::create(device, MemoryBudget::observe(kMiB), watching, {.keep_free_bytes = kMiB}).value();
  std::optional<Error> refused;
  bool inside = false;
  watching->in_allocate = [&] {
    if (std::exchange(inside, true)) return;
    auto second = stack->allocate({.bytes = kMiB + 256});
    if (!second) refused = std::move(second.error());
  };
  ASSERT_TRUE(stack->allocate({.bytes = kMiB}));
  EXPECT_EQ(host->usage().free_on_device, 2 * kMiB);
  ASSERT_TRUE(refused) << "both looked at 3 MiB, and 1 MiB − 256 bytes would have been left of 1 MiB";
  EXPECT_EQ(refused->kind, ErrorKind::over_budget);
  EXPECT_EQ(refused->layer, Layer::device_account);
  EXPECT_GT(*refused->required, *refused->limit);
  EXPECT_EQ(stack->account().stats().refusals, 1U);
}

// Whatever others do at the same instant: the free bytes of the device are read between any two of their steps.
TEST(KeptFree, threads_never_cross_the_line_together) {
  constexpr std::uint64_t kKept = kMiB;
  auto it = limited({.total_bytes = 4 * kMiB, .granularity_bytes = 4096}, MemoryBudget::unlimited(), {.keep_free_bytes = kKept});
  const std::uint64_t rounds = scaled(20'000);
  std::atomic<bool> done{false};  // written by this thread at the end, read by the watcher; relaxed, it only ends a loop
  std::atomic<std::uint64_t> below_line{0}, other_errors{0};  // counted by any thread, read after they ended
  std::thread watcher{[&] {
    while (!done.load(std::memory_order_relaxed)) {
      if (*it.host->memory_info().free < kKept) ++below_line;
    }
  }};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::minstd_rand random{i + 1};
      std::vector<Block> held;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto block = it.stack->allocate({.bytes = 1 + random() % (kMiB / 2)});
        if (*it.host->memory_info().free < kKept) ++below_line;
        if (block) held.push_back(*block);
        // The device itself may refuse too: what is free above the line can lie in holes.
        else if (block.error().kind != ErrorKind::over_budget && block.error().kind != ErrorKind::device_out_of_memory)
          ++other_errors;
        if (!held.empty() && (!block || random() % 2 == 0)) {
          if (!it.stack->deallocate(held.back())) ++other_errors;
          held.pop_back();
        }
      }
      for (auto const& block : held) {
        if (!it.stack->deallocate(block)) ++other_errors;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  done.store(true, std::memory_order_relaxed);
  watcher.join();
  EXPECT_EQ(below_line, 0U);
  EXPECT_EQ(other_errors, 0U);
  EXPECT_EQ(it.host->usage().free_on_device, 4 * kMiB);
  expect_empty(it.stack->account());
}

// Four threads with one block each of a quarter of what may be used: everyone fits at every instant, whoever is on the way.
TEST(KeptFree, nobody_who_fits_is_refused_because_of_others_on_their_way) {
  auto it = limited({.total_bytes = 5 * kMiB}, MemoryBudget::unlimited(), {.keep_free_bytes = kMiB});
  const std::uint64_t rounds = scaled(20'000);
  std::atomic<std::uint64_t> refused{0};  // counted by any thread, read after they ended
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto block = it.stack->allocate({.bytes = kMiB});
        if (!block || !it.stack->deallocate(*block)) ++refused;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused, 0U);
  EXPECT_EQ(it.stack->account().stats().refusals, 0U);
  expect_empty(it.stack->account());
}

// ── the context included ──

// 5 GiB − 400 MiB = 4720 MiB = 236 blocks of 20 MiB.
TEST(ContextIncluded, what_the_device_uses_outside_is_taken_from_the_budget_up_front) {
  auto it = limited(kTenGiB, MemoryBudget::with_limit(5 * kGiB), {.include_context = true});
  EXPECT_EQ(it.stack->account().budget(), MemoryBudget::with_limit(4720 * kMiB));
  std::vector<Block> blocks;
  const Error refused = fill(*it.stack, 20 * kMiB, blocks);
  EXPECT_EQ(blocks.size(), 236U);
  const auto memory = it.host->memory_info();
  EXPECT_EQ(*memory.total - *memory.free, 5 * kGiB) << "what a tool that looks at the whole device shows";
  EXPECT_EQ(refused.kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.limit, 4720 * kMiB);
  EXPECT_EQ(refused.device_outside, 400 * kMiB);
  EXPECT_THAT(refused.message, HasSubstr("the context included"));
}

TEST(ContextIncluded, neither_cache_nor_rounding_nor_the_ledgers_own_bytes_are_outside) {
  HostOptions options = kTenGiB;
  options.granularity_bytes = 2 * kMiB;
  options.release_threshold_bytes = kGiB;
  auto it = limited(options, MemoryBudget::with_limit(5 * kGiB), {.include_context = true});
  const auto small = it.stack->allocate({.bytes = 1}).value();
  ASSERT_TRUE(it.stack->deallocate(it.stack->allocate({.bytes = 512 * kMiB}).value()));
  ASSERT_EQ(it.host->usage().cached, 512 * kMiB);
  ASSERT_EQ(it.host->usage().rounding, 2 * kMiB - 1);
  it.stack->refresh();
  EXPECT_EQ(it.stack->account().budget(), MemoryBudget::with_limit(4720 * kMiB));
  EXPECT_EQ(snapshot_of(it.stack->account()).device_outside, 400 * kMiB);
  ASSERT_TRUE(it.stack->deallocate(small));
}

TEST(ContextIncluded, both_options_hold_the_smaller_limit) {
  auto it = limited(kTenGiB, MemoryBudget::with_limit(10 * kGiB), {.keep_free_bytes = kGiB, .include_context = true});
  EXPECT_EQ(it.stack->account().budget(), MemoryBudget::with_limit(8816 * kMiB)) << "10240 − 400 − 1024";
  auto other = limited(kTenGiB, MemoryBudget::with_limit(5 * kGiB), {.keep_free_bytes = kGiB, .include_context = true});
  EXPECT_EQ(other.stack->account().budget(), MemoryBudget::with_limit(4720 * kMiB));
}

TEST(ContextIncluded, a_budget_below_the_context_is_refused_with_the_smallest_that_works) {
  auto host = host_of({.total_bytes = kGiB, .context_overhead_bytes = 345 * kMiB});
  const auto device = host_device_over(host).value();
  for (const std::uint64_t budget : {100 * kMiB, 345 * kMiB}) {
    const auto refused = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(budget), {.include_context = true});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(refused.error().layer, Layer::device_account);
    EXPECT_EQ(refused.error().device_outside, 345 * kMiB);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr(MemoryBudget::with_limit(budget).to_string()), HasSubstr("expected a budget above 345 MiB")));
  }
  auto smallest = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(345 * kMiB + 1), {.include_context = true});
  ASSERT_TRUE(smallest) << "the refusals left nothing behind";
  EXPECT_EQ((*smallest)->account().remaining_bytes(), 1U);
}

// A library that loads late leaves nothing of the budget: nothing is taken away, nothing granted, every query answers.
TEST(ContextIncluded, a_context_that_grows_past_the_budget_leaves_nothing_and_every_query_answers) {
  auto it = limited(kTenGiB, MemoryBudget::with_limit(kGiB), {.include_context = true});
  const auto held = it.stack->allocate({.bytes = 600 * kMiB}).value();
  const auto library = it.host->allocate({.bytes = 2 * kGiB}).value();
  it.stack->refresh();
  auto const& account = it.stack->account();
  EXPECT_EQ(account.budget(), MemoryBudget::with_limit(0));
  EXPECT_EQ(account.remaining_bytes(), 0U);
  EXPECT_EQ(account.claimed_bytes(), 600 * kMiB);
  EXPECT_EQ(account.stats().limit, 0U);
  EXPECT_EQ(it.stack->budget_snapshot()->limit_bytes, 0U);
  EXPECT_EQ(snapshot_of(account).over_budget(), 600 * kMiB);
  const auto refused = it.stack->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  auto second = GlobalDeviceBudget::create(it.device, MemoryBudget::with_limit(kGiB), {.include_context = true});
  EXPECT_TRUE(second) << "only the first user is told that nothing is left";
  ASSERT_TRUE(it.host->deallocate(library));
  EXPECT_TRUE(it.stack->allocate({.bytes = 24 * kMiB})) << "1024 − 400 − 600";
  ASSERT_TRUE(it.stack->deallocate(held));
}

// ── making one ──

TEST(DeviceOptions, all_stacks_of_a_device_have_the_same_until_the_last_one_left) {
  auto host = host_of(kTenGiB);
  const auto device = host_device_over(host).value();
  const auto budget = MemoryBudget::with_limit(5 * kGiB);
  {
    auto first = GlobalDeviceBudget::create(device, budget, {.keep_free_bytes = kGiB}).value();
    EXPECT_EQ(first->options().keep_free_bytes, kGiB);
    for (const DeviceBudgetOptions other : {DeviceBudgetOptions{}, {.keep_free_bytes = 2 * kGiB}, {.include_context = true}}) {
      const auto refused = GlobalDeviceBudget::create(device, budget, other);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
      EXPECT_THAT(refused.error().message, AllOf(HasSubstr("1 GiB kept free"), HasSubstr("expected the same")));
    }
    auto same = GlobalDeviceBudget::create(device, budget, {.keep_free_bytes = kGiB}).value();
    EXPECT_EQ(same->account(), first->account());
  }
  auto anew = GlobalDeviceBudget::create(device, budget, {.include_context = true});
  ASSERT_TRUE(anew) << anew.error().to_string();
  EXPECT_EQ((*anew)->account().budget(), MemoryBudget::with_limit(4720 * kMiB));
}

TEST(DeviceOptions, what_leaves_nothing_is_refused_by_name) {
  auto host = host_of(kTenGiB);
  const auto device = host_device_over(host).value();
  const auto above = GlobalDeviceBudget::create(device, MemoryBudget::unlimited(), {.keep_free_bytes = 10 * kGiB});
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(above.error().message, HasSubstr("keep_free_bytes is 10 GiB, expected less than the device has, 10 GiB"));
  const auto all = GlobalDeviceBudget::create(device, MemoryBudget::unlimited(), {.keep_free_bytes = 9840 * kMiB});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(all.error().message, HasSubstr("to be kept free"));
  EXPECT_TRUE(GlobalDeviceBudget::create(device, MemoryBudget::unlimited(), {.keep_free_bytes = 9839 * kMiB}));
}

TEST(DeviceOptions, a_device_that_does_not_tell_its_memory_is_refused_loudly) {
  const auto device = Device::custom("scripted", std::make_shared<ScriptedResource>()).value();
  for (const DeviceBudgetOptions options : {DeviceBudgetOptions{.keep_free_bytes = 1}, {.include_context = true}}) {
    const auto refused = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kGiB), options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  }
  EXPECT_TRUE(GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kGiB)));
}

}  // namespace
}  // namespace headroom::test
