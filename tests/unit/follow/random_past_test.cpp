// A long random past, read in pieces with records out of order and stretches lost, against a plain recount at random instants.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.hpp"
#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

constexpr std::uint32_t kTags = 4;

struct Instant {
  std::uint64_t ticks = 0;
  std::uint64_t allocated = 0;
  std::uint64_t peak = 0;
  std::size_t live = 0;
  std::array<std::uint64_t, kTags> tags{};
};

struct Held {
  std::uint64_t address = 0, bytes = 0;
  std::uint32_t tag = 0;
};

/// Plays a random program, and writes down what is the case after each operation.
class Program {
public:
  Program(std::shared_ptr<Script> script, std::uint64_t seed) : script_{std::move(script)}, random_{seed} {
    for (std::uint32_t tag = 0; tag < kTags; ++tag) script_->name(1 + tag, "tag " + std::to_string(tag));
  }

  flight::Event step() {
    ticks_ += 1 + random_() % 50;
    auto now = instants_.empty() ? Instant{} : instants_.back();
    now.ticks = ticks_;
    flight::Event event;
    if (held_.empty() || (held_.size() < 600 && random_() % 100 < 52)) {
      Held const block{.address = 0x1000 + (next_++) * 4096,
                       .bytes = 1 + random_() % 5000,
                       .tag = static_cast<std::uint32_t>(random_() % kTags)};
      event = script_->make_allocate(ticks_, block.address, block.bytes, 1 + block.tag);
      held_.push_back(block);
      now.allocated += block.bytes;
      now.tags[block.tag] += block.bytes;
    } else {
      auto const at = random_() % held_.size();
      auto const block = held_[at];
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
      event = script_->make_free(ticks_, block.address, block.bytes, 1 + block.tag);
      now.allocated -= block.bytes;
      now.tags[block.tag] -= block.bytes;
    }
    now.peak = std::max(now.peak, now.allocated);
    now.live = held_.size();
    instants_.push_back(now);
    return event;
  }

  [[nodiscard]] std::vector<Instant> const& instants() const { return instants_; }
  [[nodiscard]] std::uint64_t ticks() const { return ticks_; }

private:
  std::shared_ptr<Script> script_;
  std::mt19937_64 random_;
  std::uint64_t ticks_ = 1000;
  std::uint64_t next_ = 0;
  std::vector<Held> held_;
  std::vector<Instant> instants_;
};

void expect_instant(Model const& model, Instant const& expected) {
  SCOPED_TRACE("ticks " + std::to_string(expected.ticks));
  auto const state = model.state_at(0, expected.ticks);
  ASSERT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, expected.allocated);
  EXPECT_EQ(state.live_allocations, expected.live);
  std::array<std::uint64_t, kTags> tags{};
  for (auto const& tag : state.tags) tags.at(static_cast<std::size_t>(tag.name.back() - '0')) = tag.bytes;
  EXPECT_EQ(tags, expected.tags);
  if (state.peak) {
    EXPECT_EQ(*state.peak, expected.peak);
  }
}

TEST(FollowRandomPast, every_instant_equals_a_recount_whatever_the_order_of_the_records) {
  auto const script = std::make_shared<Script>();
  Program program{script, 1};
  std::mt19937_64 random{2};
  auto model = model_of(script);
  std::vector<flight::Event> waiting;
  for (int i = 0; i < 70'000; ++i) {
    waiting.push_back(program.step());
    if (random() % 300 != 0) continue;
    // A few stay behind: their threads sleep between operation and record.
    std::ranges::shuffle(waiting, random);
    auto const behind = std::min<std::size_t>(waiting.size(), random() % 4);
    for (std::size_t k = behind; k < waiting.size(); ++k) script->put(waiting[k]);
    waiting.resize(behind);
    ASSERT_TRUE(model.poll());
  }
  for (auto const& event : waiting) script->put(event);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  for (int i = 0; i < 500; ++i) expect_instant(model, program.instants()[random() % program.instants().size()]);
  for (int i = 0; i < 20; ++i) {
    auto const& instant = program.instants()[random() % program.instants().size()];
    std::uint64_t bytes = 0;
    auto const live = model.live_at(0, instant.ticks);
    for (auto const& block : live) bytes += block.bytes;
    EXPECT_EQ(live.size(), instant.live);
    EXPECT_EQ(bytes, instant.allocated);
  }
}

TEST(FollowRandomPast, with_records_lost_every_instant_is_right_or_said_to_be_unknown) {
  auto const script = std::make_shared<Script>();
  Program program{script, 3};
  std::mt19937_64 random{4};
  auto model = model_of(script, {.patience = std::chrono::milliseconds{0}});
  std::uint64_t lost = 0;
  for (int i = 0; i < 60'000; ++i) {
    auto const event = program.step();
    // Now and then a stretch is overwritten before it is read.
    if (i % 5000 > 4800) {
      ++lost;
    } else {
      script->put(event);
    }
    if (random() % 200 == 0) {
      ASSERT_TRUE(model.poll());
    }
  }
  ASSERT_TRUE(model.catch_up());
  EXPECT_GE(model.losses().operations_missing, lost - 199) << "those at the very end are missed by nobody yet";
  std::size_t exact = 0;
  for (std::size_t i = 0; i < program.instants().size(); i += 37) {
    auto const& instant = program.instants()[i];
    auto const state = model.state_at(0, instant.ticks);
    std::uint64_t sum = state.unattributed_bytes;
    for (auto const& tag : state.tags) sum += tag.bytes;
    EXPECT_EQ(sum, state.allocated);
    if (state.known == Known::gap) continue;
    EXPECT_EQ(state.allocated, instant.allocated) << "exact outside gaps, even where blocks are not known";
    if (state.known != Known::exact) continue;
    ++exact;
    expect_instant(model, instant);
  }
  EXPECT_GT(exact, 1000U);
}

TEST(FollowRandomPast, a_series_has_the_range_of_each_column) {
  auto const script = std::make_shared<Script>();
  Program program{script, 5};
  for (int i = 0; i < 20'000; ++i) script->put(program.step());
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const& instants = program.instants();
  auto const begin = instants[1234].ticks + 1;
  auto const end = instants.back().ticks + 1;
  static std::array<std::string, 3> const kAsked{"tag 1", "no such tag", "tag 2"};
  for (std::size_t const columns : {1U, 7U, 200U, 3000U}) {
    auto const total = model.series(0, std::nullopt, begin, end, columns);
    auto const tags = model.series_of_tags(0, kAsked, begin, end, columns);
    ASSERT_EQ(total.size(), columns);
    ASSERT_EQ(tags.size(), kAsked.size());
    auto const& tag = tags[2];
    std::vector<SeriesColumn> expected(columns);
    std::vector<SeriesColumn> expected_tag(columns);
    auto const add = [&](std::vector<SeriesColumn>& into, std::uint64_t from, std::uint64_t to, std::uint64_t value) {
      auto const column_of = [&](std::uint64_t ticks) {
        return static_cast<std::size_t>(uint128{ticks - begin} * columns / (end - begin));
      };
      for (auto i = column_of(std::max(from, begin)); i <= column_of(to); ++i) {
        auto& column = into[i];
        column.low = column.has_value ? std::min(column.low, value) : value;
        column.high = std::max(column.high, value);
        column.has_value = true;
      }
    };
    for (std::size_t i = 1234; i < instants.size(); ++i) {
      auto const to = i + 1 < instants.size() ? instants[i + 1].ticks - 1 : end - 1;
      if (to < begin) continue;
      add(expected, instants[i].ticks, to, instants[i].allocated);
      add(expected_tag, instants[i].ticks, to, instants[i].tags[2]);
    }
    for (std::size_t i = 0; i < columns; ++i) {
      SCOPED_TRACE(std::to_string(columns) + " columns, column " + std::to_string(i));
      EXPECT_EQ(total[i].low, expected[i].low);
      EXPECT_EQ(total[i].high, expected[i].high);
      EXPECT_EQ(total[i].known, Known::exact);
      EXPECT_EQ(tag[i].low, expected_tag[i].low);
      EXPECT_EQ(tag[i].high, expected_tag[i].high);
      EXPECT_EQ(tags[1][i].high, 0U);
    }
  }
}

}  // namespace
}  // namespace headroom::follow
