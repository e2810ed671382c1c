// What threads are doing: in words, with how long.
#include "thread_rows.hpp"

#include <memory>
#include <utility>

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_threads_panel();

namespace {

using follow::Script;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

/// A script whose threads are at something.
class BusySource final : public follow::Source {
public:
  explicit BusySource(std::shared_ptr<Script> script) : inner_{std::move(script)} {}
  [[nodiscard]] follow::SourceKind kind() const override { return inner_.kind(); }
  [[nodiscard]] std::string title() const override { return inner_.title(); }
  [[nodiscard]] Result<void> read(follow::News& news) override { return inner_.read(news); }
  [[nodiscard]] flight::ProcessInfo process() const override { return inner_.process(); }
  [[nodiscard]] flight::Liveness liveness() const override { return inner_.liveness(); }
  [[nodiscard]] flight::ClockMap clock() const override { return inner_.clock(); }
  [[nodiscard]] std::uint64_t now_ticks() const override { return inner_.now_ticks(); }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override { return inner_.ledgers(); }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    inner_.for_each_live(visit);
  }
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override { return inner_.name(id); }
  [[nodiscard]] std::uint64_t accepted() const override { return inner_.accepted(); }
  [[nodiscard]] std::vector<flight::LaneInfo> lanes() const override {
    return {{.lane = 0, .owned = true, .thread = 11, .thread_name = "loader", .main_head = 70, .journal_head = 3},
            {.lane = 1, .owned = true, .thread = 12, .thread_name = "trainer"},
            {.lane = 2, .owned = false, .thread = 13, .thread_name = "gone"}};
  }
  [[nodiscard]] std::vector<flight::InFlightOperation> in_flight() const override {
    return {{.lane = 1,
             .thread = 12,
             .thread_name = "trainer",
             .operation = flight::InFlight::allocating,
             .ledger = 0,
             .bytes = 512 * kMiB,
             .since_ticks = 800'000'000}};
  }
  [[nodiscard]] std::vector<flight::HookSnapshot> hooks() const override {
    flight::HookSnapshot hook;
    hook.name = "evict";
    hook.running_since_ticks = 4'000'000'000;
    hook.running_thread = 21;
    hook.limit_ns = 500'000'000;
    return {hook};
  }

private:
  follow::ScriptedSource inner_;
};

follow::Model busy_model() {
  auto const script = std::make_shared<Script>();
  script->book().device_name = "cuda:0";
  script->allocate(100, 0x1000, 10);
  script->now = 5'000'000'000;
  return follow::Model{std::make_unique<BusySource>(script)};
}

TEST(ThreadRows, tell_the_operation_and_how_long_it_takes) {
  auto model = busy_model();
  ASSERT_TRUE(model.catch_up());
  auto const rows = thread_rows(model);
  ASSERT_EQ(rows.size(), 3U) << "two lanes that are held, and a hook's thread without one";
  EXPECT_EQ(rows[0].doing, "idle");
  EXPECT_TRUE(rows[0].is_idle);
  EXPECT_EQ(rows[0].events, 70U);
  EXPECT_EQ(rows[1].doing, "asking cuda:0 for 512 MiB");
  EXPECT_EQ(rows[1].since_ns, 4'200'000'000U);
  EXPECT_TRUE(rows[1].is_slow);
  EXPECT_EQ(rows[1].manager, "ledger 0");
  EXPECT_EQ(rows[2].thread, 21U);
  EXPECT_EQ(rows[2].doing, "running hook 'evict' (limit 500 ms)");
  EXPECT_TRUE(rows[2].is_slow) << "it runs for a second";
}

TEST(ThreadsPanel, shows_them_and_what_was_read) {
  auto model = busy_model();
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'400, 700};
  ViewState state;
  state.show(&model);
  auto const text = frames.draw(state, *make_threads_panel());
  EXPECT_THAT(text, HasSubstr("4.20 s\tasking cuda:0 for 512 MiB\tledger 0"));
  EXPECT_THAT(text, HasSubstr("events\t1"));
  EXPECT_THAT(text, HasSubstr("lost\t0"));
}

TEST(ThreadsPanel, of_a_history_says_why_there_are_none) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/vit_threads.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'400, 700};
  ViewState state;
  state.show(&model);
  EXPECT_THAT(frames.draw(state, *make_threads_panel()), HasSubstr("A recorded history knows no threads at work"));
}

TEST(OwnMemory, is_more_than_nothing) { EXPECT_GT(own_memory_bytes(), kMiB); }

}  // namespace
}  // namespace headroom::viewer
