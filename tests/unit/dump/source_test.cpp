// A post-mortem as the source of a model: what it answers is what a model of the flight memory answers.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/follow.hpp>
#include <headroom/guard.hpp>

#include "guards.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using follow::Model;

/// A guard's life: two tags, blocks that come and go, a hook that helps once, and a failure in the end.
class Program {
public:
  Program() : made_{host_guard(1'000, OomPolicy::retry_after_free())} {
    keep(300, "weights");
    keep(200, "cache");
    keep(100, "weights");
    kept_.erase(kept_.begin());  // 300 go
    keep(400, "cache");
    EXPECT_TRUE(guard().register_hook({.name = "drop", .estimated_free_bytes = 150, .callback = [this](HookContext const&) {
                                         if (kept_.empty() || was_asked_++ != 0) return std::uint64_t{0};
                                         kept_.erase(kept_.begin());  // 200 go
                                         return std::uint64_t{200};
                                       }}));
    auto more = guard().safe_alloc_with_hooks<std::byte>(450, AllocTag{"weights"});  // 700 live: 150 are missing, 200 come
    EXPECT_TRUE(more);
    kept_.push_back(std::move(*more));
    EXPECT_FALSE(guard().safe_alloc_with_hooks<std::byte>(600, AllocTag{"too much"}));
  }
  [[nodiscard]] std::uint32_t cell() const { return guard().manager().ledger_cell().value(); }
  [[nodiscard]] MemoryGuard const& guard() const { return made_.guard; }

private:
  void keep(std::uint64_t bytes, char const* tag) {
    kept_.push_back(guard().safe_alloc<std::byte>(bytes, AllocTag{tag}).value());
  }
  std::vector<Bytes> kept_;
  int was_asked_ = 0;
  HostGuard made_;
};

flight::FlightView own_view() { return flight::FlightView::of_this_process().value(); }

Model model_of(std::string const& text) {
  auto dump = read_post_mortem(text, "dump");
  EXPECT_TRUE(dump) << dump.error().message;
  Model model{post_mortem_source(std::move(dump.value()), "a dump")};
  EXPECT_TRUE(model.catch_up());
  return model;
}

Model model_of_flight() {
  Model model{follow::flight_source(own_view())};
  EXPECT_TRUE(model.catch_up());
  return model;
}

void expect_equal(follow::LedgerState const& a, follow::LedgerState const& b) {
  EXPECT_EQ(std::tuple(a.name, a.known, a.as_of_ticks, a.limit, a.allocated, a.claimed, a.peak, a.live_allocations, a.pressure),
            std::tuple(b.name, b.known, b.as_of_ticks, b.limit, b.allocated, b.claimed, b.peak, b.live_allocations, b.pressure));
  ASSERT_EQ(a.tags.size(), b.tags.size());
  for (std::size_t i = 0; i < a.tags.size(); ++i) {
    EXPECT_EQ(std::tuple(a.tags[i].name, a.tags[i].bytes, a.tags[i].allocations),
              std::tuple(b.tags[i].name, b.tags[i].bytes, b.tags[i].allocations));
  }
}

std::vector<follow::FailureStory> failures_of(Model const& model, Program const& program) {
  auto failures = model.failures();
  std::erase_if(failures, [&](auto const& story) { return story.ledger != program.cell(); });
  return failures;
}

/// Each test is a process of its own: in one of many tests, a ledger's cell has the past of others.
class PostMortemSourceDeathTest : public ::testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void in_own_process(std::function<void()> const& body) {
  const auto run = [&] {
    body();
    // What was expected there is printed by nobody else.
    auto const& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int i = 0; i < result.total_part_count(); ++i)
      std::cerr << result.GetTestPartResult(i).line_number() << ": " << result.GetTestPartResult(i).message() << std::endl;
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST_F(PostMortemSourceDeathTest, answers_as_the_flight_memory_does) {
  in_own_process([] {
    const Program program;
    const auto flight = model_of_flight();
    const auto dump = model_of(post_mortem_text(own_view()));
    EXPECT_EQ(dump.source().kind(), follow::SourceKind::dump);
    EXPECT_EQ(dump.source().title(), "a dump");
    EXPECT_EQ(dump.source().process().run, flight.source().process().run);
    EXPECT_TRUE(dump.source().live_is_whole());
    EXPECT_TRUE(dump.ended());

    std::vector<std::uint64_t> instants;
    flight.for_each_operation(program.cell(), 0, ~std::uint64_t{0}, [&](follow::Operation const& operation) {
      instants.push_back(operation.ticks);
      return true;
    });
    EXPECT_EQ(instants.size(), 7U);  // 5 blocks came, 2 went
    instants.push_back(flight.last_ticks());
    for (const auto ticks : instants) {
      expect_equal(dump.state_at(program.cell(), ticks), flight.state_at(program.cell(), ticks));
      const auto a = dump.live_at(program.cell(), ticks);
      const auto b = flight.live_at(program.cell(), ticks);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(std::tuple(a[i].address, a[i].bytes, a[i].ticks, a[i].tag, a[i].site, a[i].thread),
                  std::tuple(b[i].address, b[i].bytes, b[i].ticks, b[i].tag, b[i].site, b[i].thread));
      }
    }
    const auto last = dump.state_at(program.cell(), dump.last_ticks());
    EXPECT_EQ(last.allocated, 950U);
    EXPECT_EQ(last.known, follow::Known::exact);
    const auto peak = dump.peak(program.cell());
    const auto other = flight.peak(program.cell());
    EXPECT_EQ(peak.bytes, 950U);
    EXPECT_EQ(std::tuple(peak.bytes, peak.ticks, peak.from_books), std::tuple(other.bytes, other.ticks, other.from_books));
    ASSERT_EQ(peak.tags.size(), 2U);
    EXPECT_EQ(peak.tags[0].name, "weights");
    EXPECT_EQ(peak.tags[0].bytes, 550U);
  });
}

TEST_F(PostMortemSourceDeathTest, has_the_failures_with_their_stories) {
  in_own_process([] {
    const Program program;
    const auto flight = failures_of(model_of_flight(), program);
    const auto dump = failures_of(model_of(post_mortem_text(own_view())), program);
    ASSERT_EQ(flight.size(), 2U);
    ASSERT_EQ(dump.size(), flight.size());
    for (std::size_t i = 0; i < dump.size(); ++i) {
      auto const& a = dump[i];
      auto const& b = flight[i];
      EXPECT_EQ(std::tuple(a.ticks, a.requested, a.kind, a.layer, a.tag, a.site, a.claimed, a.limit, a.end),
                std::tuple(b.ticks, b.requested, b.kind, b.layer, b.tag, b.site, b.claimed, b.limit, b.end));
      ASSERT_EQ(a.hooks.size(), b.hooks.size());
      for (std::size_t h = 0; h < a.hooks.size(); ++h) {
        EXPECT_EQ(std::tuple(a.hooks[h].name, a.hooks[h].result, a.hooks[h].freed, a.hooks[h].reported),
                  std::tuple(b.hooks[h].name, b.hooks[h].result, b.hooks[h].freed, b.hooks[h].reported));
      }
      EXPECT_EQ(a.policy.size(), b.policy.size());
    }
    EXPECT_EQ(dump[0].end, follow::FailureEnd::recovered);
    EXPECT_EQ(dump[0].hooks.at(0).freed, 200U);
    EXPECT_EQ(dump[1].end, follow::FailureEnd::gave_up);
  });
}

TEST_F(PostMortemSourceDeathTest, without_events_the_failure_is_still_there) {
  in_own_process([] {
    const Program program;
    const auto model = model_of(post_mortem_text(own_view(), {.options = {.events = false}}));
    const auto failures = failures_of(model, program);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(failures[0].requested, 600U);
    EXPECT_EQ(failures[0].tag, "too much");
    EXPECT_EQ(failures[0].end, follow::FailureEnd::gave_up);
    ASSERT_FALSE(failures[0].hooks.empty());
    EXPECT_EQ(failures[0].hooks[0].name, "drop");
    ASSERT_EQ(failures[0].policy.size(), 2U);
    EXPECT_EQ(failures[0].policy[0].step, flight::PolicyStep::retried);
    auto const* const ledger = model.ledger(program.cell());
    ASSERT_NE(ledger, nullptr);
    EXPECT_EQ(ledger->allocated, 950U);
    EXPECT_EQ(ledger->peak, 950U);
  });
}

TEST_F(PostMortemSourceDeathTest, takes_what_is_left_of_a_dump_that_was_cut) {
  in_own_process([] {
    const Program program;
    const auto text = post_mortem_text(own_view());
    const auto rows = text.find("\"rows\"", text.find("\"live\":"));
    ASSERT_NE(rows, std::string::npos);
    for (const std::size_t size :
         {std::size_t{10}, std::size_t{1'000}, text.find("\"hooks\""), rows, rows + 300, text.size() - 200}) {
      const auto model = model_of(text.substr(0, size));
      EXPECT_FALSE(model.source().live_is_whole()) << size;
      if (size < rows) continue;
      auto const* const ledger = model.ledger(program.cell());
      ASSERT_NE(ledger, nullptr);
      EXPECT_EQ(ledger->allocated, 950U);
      EXPECT_FALSE(failures_of(model, program).empty());
    }
  });
}

}  // namespace
}  // namespace headroom::test
