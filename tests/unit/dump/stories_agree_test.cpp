// Random programs whose hooks, listeners, checkpoint and device fail in the middle of a request that fails: the story that is told of
// each request is the one that its error tells, and the one that a model of the same flight memory finds.
#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/follow.hpp>
#include <headroom/guard.hpp>

#include "flight/directory.hpp"
#include "flight/thread_state.hpp"
#include "guard/callback_scope.hpp"
#include "guards.hpp"
#include "manager/failure_observer.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

/// Keeps a post-mortem of every failure that a program would write one of, without a limit on how many.
class Collector final : public manager::FailureObserver {
public:
  void failed(manager::FinalFailure const& failure) noexcept override {
    if (!wants.load(std::memory_order_relaxed) || guard::inside_callback()) return;
    const dump::KnownFailure known{.error = failure.error,
                                   .ledger_cell = failure.ledger.record_id(),
                                   .tag = failure.ledger.tag_place(failure.tag).entry,
                                   .site = flight::intern_site(failure.site),
                                   .thread = flight::this_thread().thread_id};
    const auto view = flight::FlightView::of_this_process().value();
    auto dump = read_post_mortem(
        post_mortem_text(view, {.options = {.events = false, .most_live = 0}, .reason = "a failure", .failure = &known}), "dump");
    dumps.push_back(std::move(dump.value()));
  }
  void passed_over() noexcept override {}

  std::atomic<bool> wants{false};  // set and read by the test's thread; other tests of this process run without
  std::vector<PostMortem> dumps;   // used by the one thread of the test
};

Collector& collector() {
  static Collector one;
  return one;
}

class RandomProgram {
public:
  explicit RandomProgram(std::uint64_t seed) : random_{seed}, made_{host_guard(kBudget)} {
    for (auto const* const name : {"first", "second"}) {
      EXPECT_TRUE(guard().register_hook({.name = name, .estimated_free_bytes = 100, .callback = [this](HookContext const&) {
                                           interfere();
                                           return give_one_back();
                                         }}));
    }
    EXPECT_TRUE(guard().add_pressure_listener([this](PressureChange const&) { interfere(); }));
    EXPECT_TRUE(guard().on_oom([this] { interfere(); }));
  }

  ~RandomProgram() {
    depth_ = kDeepest;  // from here on nobody interferes
    held_.clear();
  }
  RandomProgram(RandomProgram const&) = delete;
  RandomProgram& operator=(RandomProgram const&) = delete;

  void step() {
    // A wait of one try: how often the device is asked depends on no clock.
    constexpr std::array kPolicies{OomPolicy::fail(), OomPolicy::retry_after_free(),
                                   OomPolicy::wait_and_retry(std::chrono::nanoseconds{1}), OomPolicy::checkpoint_and_fail()};
    guard().set_oom_policy(kPolicies[below(kPolicies.size())]);
    if (below(4) == 0) break_the_device();
    ask();
    made_.resource->faults().clear();
    if (below(3) == 0) static_cast<void>(give_one_back());
  }

private:
  static constexpr std::uint64_t kBudget = 1'000;
  static constexpr int kDeepest = 2;
  [[nodiscard]] MemoryGuard const& guard() const { return made_.guard; }
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % end; }

  // Few sizes and few tags. Those that lie within each other differ by a byte: alike in everything, they can be told apart by time only,
  // which story_test.cpp looks at.
  void ask() {
    const std::uint64_t bytes = 200 + 100 * below(3) + static_cast<std::uint64_t>(depth_);
    const AllocTag tag = below(2) == 0 ? AllocTag{"a"} : AllocTag{"b"};
    auto got = below(4) == 0   ? guard().manager().alloc<std::byte>(bytes, tag)
               : below(3) == 0 ? guard().safe_alloc<std::byte>(bytes, tag)
                               : guard().safe_alloc_with_hooks<std::byte>(bytes, tag);
    if (got) held_.push_back(std::move(*got));
  }
  void interfere() {
    if (depth_ == kDeepest || below(2) == 0) return;
    ++depth_;
    if (below(5) == 0) break_the_device();
    for (std::uint64_t i = below(2); i > 0; --i) ask();
    --depth_;
  }
  void break_the_device() {
    made_.resource->faults().add(
        {.nth = 1 + below(2), .kind = below(2) == 0 ? ErrorKind::driver : ErrorKind::device_out_of_memory});
  }
  std::uint64_t give_one_back() {
    if (held_.empty()) return 0;
    const std::uint64_t bytes = held_.front().size_bytes();
    Bytes oldest = std::move(held_.front());
    held_.pop_front();
    EXPECT_TRUE(guard().free(std::move(oldest)));
    return bytes;
  }

  std::mt19937_64 random_;
  std::deque<Bytes> held_;
  HostGuard made_;
  int depth_ = 0;
};

/// "… 3 hook runs …" is 3.
std::uint64_t number_before(std::string const& message, std::string const& words) {
  const auto found = message.find(words);
  if (found == std::string::npos) return 0;
  const auto begin = message.find_last_not_of("0123456789", found - 1);
  return std::stoull(message.substr(begin == std::string::npos ? 0 : begin + 1));
}

bool has_step(PostMortemFailure const& failure, std::string_view step) {
  return std::ranges::find(failure.policy_steps, step, &PostMortemPolicyStep::step) != failure.policy_steps.end();
}

/// What was tried, as the error has it.
void expect_as_the_error_says(PostMortemFailure const& failure) {
  auto const& message = failure.message;
  const auto says = [&](std::string_view words) { return message.find(words) != std::string::npos; };
  const auto ran = std::ranges::count_if(failure.hooks, [](auto const& turn) { return !turn.result.starts_with("skipped"); });
  EXPECT_EQ(static_cast<std::uint64_t>(ran), number_before(message, " hook run")) << message;
  EXPECT_EQ(failure.hooks.size() - static_cast<std::size_t>(ran), number_before(message, " passed over") != 0 ? 1U : 0U)
      << message;
  EXPECT_EQ(has_step(failure, "waited"), says("a wait of ")) << message;
  EXPECT_EQ(has_step(failure, "retried"), says("one more try after")) << message;
  EXPECT_EQ(has_step(failure, "checkpoint"), says("the checkpoint callback ran")) << message;
  EXPECT_EQ(has_step(failure, "gave_up"), says("tried: ")) << message;
  std::uint64_t freed = 0;
  for (auto const& turn : failure.hooks) freed += turn.freed_bytes.value_or(0);
  if (ran != 0) {
    EXPECT_NE(message.find("that freed " + std::to_string(freed) + " B"), std::string::npos) << message << ", found " << freed;
  }
  EXPECT_EQ(failure.outcome, "failed");
}

class RandomFailures : public ::testing::TestWithParam<std::uint64_t> {
protected:
  void SetUp() override {
    manager::observe_failures(collector());
    collector().dumps.clear();
    collector().wants = true;
    RandomProgram program{GetParam()};
    for (int i = 0; i < kSteps; ++i) program.step();
    collector().wants = false;
  }
  // So few that their journal, and that of all that they lead to, is in the ring to the end.
  static constexpr int kSteps = 6;
};

TEST_P(RandomFailures, are_told_as_their_errors_tell_them) {
  std::vector<std::uint64_t> told;
  for (auto const& dump : collector().dumps) {
    ASSERT_TRUE(dump.failure && dump.failure->ticks);
    told.push_back(*dump.failure->ticks);
    expect_as_the_error_says(*dump.failure);
  }
  // Each has a refusal of its own.
  std::ranges::sort(told);
  EXPECT_EQ(std::ranges::adjacent_find(told), told.end());
}

TEST_P(RandomFailures, are_told_as_a_model_tells_them) {
  follow::Model model{follow::flight_source(flight::FlightView::of_this_process().value())};
  ASSERT_TRUE(model.catch_up());
  const auto stories = model.failures();
  if (collector().dumps.empty()) return;  // nothing failed for good
  for (auto const& dump : collector().dumps) {
    ASSERT_TRUE(dump.failure && dump.failure->ticks);
    auto const& failure = *dump.failure;
    const auto story = std::ranges::find_if(stories, [&](follow::FailureStory const& one) {
      return one.ticks == *failure.ticks && one.thread == failure.thread && one.requested == *failure.requested_bytes;
    });
    ASSERT_NE(story, stories.end());
    EXPECT_EQ(story->kind, failure.kind);
    EXPECT_EQ(story->tag, failure.tag);
    EXPECT_EQ(story->site, failure.site);
    EXPECT_EQ(story->claimed, failure.claimed_bytes) << failure.message;
    std::vector<std::uint64_t> told;
    std::vector<std::uint64_t> found;
    for (auto const& turn : failure.hooks) told.push_back(turn.freed_bytes.value_or(0));
    for (auto const& turn : story->hooks) found.push_back(turn.freed);
    for (auto const& step : failure.policy_steps) told.push_back(step.duration_ns);
    for (auto const& step : story->policy) found.push_back(step.duration_ns);
    EXPECT_EQ(told, found) << failure.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFailures, ::testing::Range(std::uint64_t{1}, std::uint64_t{101}));

}  // namespace
}  // namespace headroom::test
