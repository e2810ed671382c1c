#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "header_data.hpp"
#include "null_frames.hpp"
#include "scripted_source.hpp"
#include "shell.hpp"
#include "timeline_data.hpp"
#include "travel.hpp"

namespace headroom::viewer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

follow::Model recorded(std::string const& name) {
  auto model = follow::Model::open_history(std::string{HEADROOM_TEST_DATA "/"} + name).value();
  EXPECT_TRUE(model.catch_up());
  return model;
}

TEST(Timeline, layers_stack_up_to_the_total_and_the_rest_is_what_no_layer_has) {
  auto const script = std::make_shared<follow::Script>();
  script->name(5, "weights");
  script->name(6, "cache");
  script->book();
  script->allocate(100, 0x1000, 640, 5);
  script->allocate(200, 0x2000, 64, 6);
  script->free(300, 0x1000, 640, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const data = timeline_data(model, 0, {.begin = 100, .end = 400}, 3, 1);
  ASSERT_EQ(data.total.size(), 3U);
  EXPECT_EQ(data.highest, 704U);
  ASSERT_EQ(data.layers.size(), 1U);
  EXPECT_EQ(data.layers[0].tag, "weights");
  EXPECT_THAT(data.layers[0].bytes, ElementsAre(640, 640, 0));
  EXPECT_THAT(data.rest, ElementsAre(0, 64, 64));
  EXPECT_TRUE(data.has_rest);
}

/// The two records of a refusal, as a program writes them.
void refuse(follow::Script& script, std::uint64_t ticks, std::uint32_t ledger) {
  script.ledger = ledger;
  auto head = script.event(flight::EventKind::refusal, ticks);
  auto tail = head;
  head.words[3] = 640;
  tail.words[0] |= flight::kFlagContinues;
  tail.words[5] = 0;  // what the device had free is not known; no ledger is named here
  script.put(head);
  tail.number = script.records;
  script.put(tail);
}

TEST(Timeline, a_refusal_is_one_flag_on_its_own_ledger) {
  auto const script = std::make_shared<follow::Script>();
  for (std::uint32_t const cell : {0U, 3U}) {
    script->ledger = cell;
    script->book(cell);
    script->allocate(100 + cell, 0x1000, 64);
  }
  refuse(*script, 200, 3);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_TRUE(model.catch_up());  // the journal of a living process comes a read late
  EXPECT_TRUE(timeline_data(model, 0, {.begin = 100, .end = 400}, 3, 1).failures.empty());
  auto const data = timeline_data(model, 3, {.begin = 100, .end = 400}, 3, 1);
  ASSERT_EQ(data.failures.size(), 1U);
  EXPECT_EQ(data.failures[0].count, 1U);
}

TEST(Timeline, a_recorded_history_is_as_high_as_its_peak_at_any_width) {
  auto const model = recorded("resnet.csv.xz");
  auto const range = TickRange{.begin = model.first_ticks(), .end = model.last_ticks() + 1};
  for (std::size_t const columns : {1U, 7U, 1'600U}) {
    auto const data = timeline_data(model, 0, range, columns, 10);
    EXPECT_EQ(data.highest, model.peak(0).bytes);
    EXPECT_EQ(data.peak_ticks, model.peak(0).ticks);
  }
}

/// What a timeline shows of a past, worked out from each of its operations.
class Walked {
public:
  Walked(follow::Model const& model, TickRange range, std::size_t columns) : range_{range}, total_(columns) {
    std::map<std::string, std::uint64_t> held;
    std::uint64_t allocated = 0;
    std::uint64_t since = 0;
    auto const add_all = [&](std::uint64_t to) {
      add(total_, since, to, allocated);
      for (auto const& [tag, bytes] : held) add(tags_.try_emplace(tag, columns).first->second, since, to, bytes);
    };
    model.for_each_operation(0, 0, ~std::uint64_t{0}, [&](follow::Operation const& operation) {
      add_all(operation.ticks > since ? operation.ticks - 1 : since);
      auto& bytes = held[std::string{operation.tag}];
      bytes = operation.kind == flight::EventKind::allocate ? bytes + operation.bytes : bytes - operation.bytes;
      allocated = operation.allocated_after;
      since = operation.ticks;
      return true;
    });
    add_all(range.end - 1);
  }

  void expect(TimelineData const& data) const {
    ASSERT_EQ(data.total.size(), total_.size());
    for (std::size_t i = 0; i < total_.size(); ++i) {
      SCOPED_TRACE("column " + std::to_string(i) + " of " + std::to_string(total_.size()));
      ASSERT_EQ(data.total[i].low, total_[i].low);
      ASSERT_EQ(data.total[i].high, total_[i].high);
      std::uint64_t sum = 0;
      for (auto const& layer : data.layers) sum += high_of(layer.tag, i);
      for (auto const& layer : data.layers) {
        auto const high = high_of(layer.tag, i);
        ASSERT_EQ(layer.bytes[i], sum > total_[i].high ? high * total_[i].high / sum : high) << layer.tag;
      }
      ASSERT_EQ(data.rest[i], sum > total_[i].high ? 0 : total_[i].high - sum);
    }
  }

private:
  [[nodiscard]] std::uint64_t high_of(std::string const& tag, std::size_t column) const {
    auto const found = tags_.find(tag);
    return found == tags_.end() ? 0 : found->second[column].high;
  }
  void add(std::vector<follow::SeriesColumn>& into, std::uint64_t from, std::uint64_t to, std::uint64_t value) const {
    if (to < range_.begin || from >= range_.end) return;
    auto const column_of = [&](std::uint64_t ticks) { return (ticks - range_.begin) * into.size() / range_.length(); };
    for (auto i = column_of(std::max(from, range_.begin)); i <= column_of(std::min(to, range_.end - 1)); ++i) {
      auto& column = into[i];
      column.low = column.has_value ? std::min(column.low, value) : value;
      column.high = std::max(column.high, value);
      column.has_value = true;
    }
  }

  TickRange range_;
  std::vector<follow::SeriesColumn> total_;
  std::map<std::string, std::vector<follow::SeriesColumn>> tags_;
};

/// Allocates and frees in 512 places, sometimes several times in one tick and sometimes after a long pause.
class Churn {
public:
  explicit Churn(std::shared_ptr<follow::Script> script) : script_{std::move(script)} {
    for (std::uint32_t tag = 1; tag <= kTags; ++tag) script_->name(tag, "tag " + std::to_string(tag));
    script_->book();
  }
  void go_on(int operations) {
    for (auto i = 0; i < operations; ++i) {
      auto const place = random_() % kPlaces;
      ticks_ += random_() % 1'000 == 0 ? 5'000 : random_() % 4;
      auto const tag = static_cast<std::uint32_t>(1 + place % kTags);
      if (bytes_[place] == 0) {
        bytes_[place] = 1 + random_() % 4'096;
        script_->allocate(ticks_, address(place), bytes_[place], tag);
      } else {
        script_->free(ticks_, address(place), std::exchange(bytes_[place], 0), tag);
      }
    }
  }
  /// There for one operation alone.
  void spike(std::uint64_t bytes) {
    script_->allocate(++ticks_, address(kPlaces), bytes, 1);
    script_->free(++ticks_, address(kPlaces), bytes, 1);
  }
  [[nodiscard]] std::uint64_t ticks() const noexcept { return ticks_; }

private:
  static constexpr std::size_t kPlaces = 512;
  static constexpr std::uint32_t kTags = 7;
  static std::uint64_t address(std::size_t place) { return 0x1000 + place * 4'096; }

  std::shared_ptr<follow::Script> script_;
  std::mt19937_64 random_{11};
  std::array<std::uint64_t, kPlaces> bytes_{};
  std::uint64_t ticks_ = 100;
};

TEST(Timeline, is_what_a_walk_over_all_operations_finds_at_any_width_and_place) {
  auto const script = std::make_shared<follow::Script>();
  Churn churn{script};
  auto model = follow::model_of(script);
  for (auto turn = 0; turn < 4; ++turn) {  // what is new comes at the end
    churn.go_on(5'000);
    ASSERT_TRUE(model.catch_up());
    auto const end = churn.ticks() + 1;
    for (auto const& range :
         {TickRange{0, end}, TickRange{end / 3, end / 2}, TickRange{end - 700, end}, TickRange{end / 2, end / 2 + 3}}) {
      for (std::size_t const columns : {1U, 13U, 800U}) {
        Walked{model, range, columns}.expect(timeline_data(model, 0, range, columns, 4));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Timeline, of_real_training_is_what_a_walk_over_all_operations_finds) {
  auto const model = recorded("resnet.csv.xz");
  auto const whole = TickRange{.begin = model.first_ticks(), .end = model.last_ticks() + 1};
  for (auto const& range : {whole, TickRange{whole.begin + whole.length() / 5, whole.begin + whole.length() / 4}}) {
    for (std::size_t const columns : {7U, 1'600U}) {
      Walked{model, range, columns}.expect(timeline_data(model, 0, range, columns, 10));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Timeline, shows_a_peak_of_one_operation_among_many) {
  auto const script = std::make_shared<follow::Script>();
  Churn churn{script};
  churn.go_on(9'999);
  churn.spike(std::uint64_t{1} << 30U);
  auto const spike = churn.ticks() - 1;
  churn.go_on(10'000);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  for (std::size_t const columns : {1U, 2U, 3U, 50U, 1'600U}) {
    auto const data = timeline_data(model, 0, {.begin = 0, .end = churn.ticks() + 1}, columns, 2);
    EXPECT_EQ(data.highest, model.peak(0).bytes);
    EXPECT_EQ(data.total[data.column_of(spike)].high, model.peak(0).bytes);
    EXPECT_EQ(data.peak_ticks, spike);
  }
}

TEST(Timeline, grid_lines_stand_on_powers_of_two_and_on_times_people_use) {
  EXPECT_EQ(byte_step(3'200'000'000, 6), std::uint64_t{1} << 29U);  // 512 MiB … 2.98 GiB ÷ 6 = 509 MiB
  EXPECT_EQ(byte_step(1, 8), 1U);
  EXPECT_EQ(byte_step(~std::uint64_t{0}, 1), std::uint64_t{1} << 63U);
  EXPECT_EQ(time_step(1'490'000'000, 12), 200'000'000U);  // 124 ms → 200 ms
  EXPECT_EQ(time_step(600'000'000'000, 10), 60'000'000'000U);
  EXPECT_EQ(time_step(3, 12), 1U);
}

TEST(Header, the_present_is_what_the_books_say_and_the_past_what_the_model_says) {
  auto model = recorded("resnet.csv.xz");
  ViewState state;
  state.show(&model);
  EXPECT_EQ(header_figures(state).allocated, model.ledger(0)->allocated);
  EXPECT_EQ(header_figures(state).life, Life::recorded);
  state.travel_to(model.peak(0).ticks.value());
  EXPECT_EQ(header_figures(state).allocated, model.peak(0).bytes);
  EXPECT_TRUE(header_figures(state).is_past);
}

TEST(Header, a_rate_is_told_once_half_a_second_was_seen) {
  EventRate rate;
  rate.note(0, 0);
  rate.note(400'000'000, 100);
  EXPECT_EQ(rate.per_second(), std::nullopt);
  rate.note(1'000'000'000, 500);
  EXPECT_DOUBLE_EQ(rate.per_second().value(), 500.0);
}

TEST(State, zooming_keeps_the_instant_under_the_pointer_and_never_loses_the_past) {
  auto model = recorded("resnet.csv.xz");
  ViewState state;
  state.show(&model);
  auto const whole = state.visible;
  auto const around = whole.begin + whole.length() / 4;
  state.zoom(0.5, around);
  EXPECT_NEAR(static_cast<double>(around - state.visible.begin), static_cast<double>(state.visible.length()) / 4, 2);
  for (auto i = 0; i < 200; ++i) state.zoom(0.5, around);
  EXPECT_GE(state.visible.length(), 8U);
  EXPECT_TRUE(state.visible.contains(around));
  for (auto i = 0; i < 200; ++i) state.zoom(2, around);
  EXPECT_LE(state.visible.length(), 2 * whole.length());
  for (auto i = 0; i < 200; ++i) state.pan(0.9);
  EXPECT_LT(state.visible.begin, whole.end);
}

TEST(Travel, from_event_to_event_and_back_again) {
  auto model = recorded("resnet.csv.xz");
  ViewState state;
  state.show(&model);
  state.travel_to(model.first_ticks());
  go_to_event(state, true);
  auto const second = state.cursor.value();
  EXPECT_GT(second, model.first_ticks());
  go_to_event(state, true);
  go_to_event(state, false);
  EXPECT_EQ(state.cursor.value(), second);
}

TEST(Travel, to_failures_of_any_ledger_as_far_as_the_display_has_come) {
  auto const script = std::make_shared<follow::Script>();
  for (std::uint32_t const cell : {0U, 3U}) {
    script->ledger = cell;
    script->book(cell);
    script->allocate(100 + cell, 0x1000, cell == 0 ? 6'400 : 64);
  }
  refuse(*script, 200, 3);
  refuse(*script, 300, 3);
  script->ledger = 0;
  script->allocate(500, 0x2000, 64);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_TRUE(model.catch_up());
  ASSERT_EQ(model.failures().size(), 2U);
  ViewState state;
  state.show(&model);
  ASSERT_EQ(state.ledger, 0U);
  go_to_failure(state, true);
  EXPECT_EQ(state.cursor, 200U);
  EXPECT_EQ(state.ledger, 3U);
  go_to_failure(state, true);
  EXPECT_EQ(state.cursor, 300U);
  state.show(&model);
  state.is_paused = true;
  state.clock = 250;
  go_to_failure(state, false);
  EXPECT_EQ(state.cursor, 200U);
  go_to_failure(state, true);
  EXPECT_EQ(state.cursor, 200U) << "the next one has not happened yet";
}

TEST(Header, of_the_past_shows_no_figure_of_now) {
  auto const script = std::make_shared<follow::Script>();
  script->book();
  script->allocate(100, 0x1000, 64);
  script->allocate(200, 0x2000, 64);
  auto& book = script->book();
  book.unspent = 640;
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  EXPECT_EQ(header_figures(state).unspent, 640U);
  EXPECT_TRUE(header_figures(state).failures.has_value());
  state.travel_to(100);
  EXPECT_FALSE(header_figures(state).unspent.has_value());
  EXPECT_FALSE(header_figures(state).failures.has_value());
}

TEST(Shell, escape_clears_text_and_kinds_and_the_filters_key_finds_its_panel) {
  auto model = recorded("resnet.csv.xz");
  NullFrames frames{1'280, 800};
  ViewState state;
  state.show(&model);
  Shell shell;
  auto const draw = [&] { frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); }); };
  state.filter = {.text = "tag:x", .kinds = 0};
  frames.commands.give(Command::clear);
  draw();
  EXPECT_FALSE(state.filter.is_on());
  state.ask_for_panel("live");
  for (auto i = 0; i < 3; ++i) draw();
  EXPECT_THAT(frames.text(), testing::Not(HasSubstr("[event-log]")));
  frames.commands.give(Command::filter);
  for (auto i = 0; i < 8; ++i) draw();  // newer versions of ImGui take some frames more until letters go there
  EXPECT_THAT(frames.text(), HasSubstr("[event-log]"));
  EXPECT_FALSE(state.wants_filter);
  EXPECT_TRUE(ImGui::GetIO().WantTextInput);
}

TEST(Shell, everything_is_drawn_at_any_size_with_and_without_a_model) {
  auto model = recorded("gpt2.csv.xz");
  for (auto const& [width, height] : {std::pair{1'280.0F, 800.0F}, std::pair{300.0F, 200.0F}, std::pair{7'680.0F, 4'320.0F}}) {
    NullFrames frames{width, height};
    ViewState state;
    Shell shell;
    frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); });
    EXPECT_THAT(frames.text(), HasSubstr("Nothing is open"));
    state.show(&model);
    for (auto i = 0; i < NullFrames::kFrames; ++i) {
      NullFrames::point_at(static_cast<float>(i) / NullFrames::kFrames * width, height / 2);
      frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); });
    }
    EXPECT_GT(NullFrames::vertices(), 100);
    EXPECT_THAT(frames.text(), HasSubstr("gpt2.csv.xz"));
  }
}

}  // namespace
}  // namespace headroom::viewer
