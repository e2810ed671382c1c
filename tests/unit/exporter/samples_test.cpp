// The last minutes, reading by reading.
#include "samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Second = Samples::Second;

constexpr std::uint64_t kSecond = 1'000'000'000;

flight::LedgerSnapshot manager(std::uint32_t cell, std::uint64_t allocated, std::uint64_t peak = 0) {
  flight::LedgerSnapshot ledger;
  ledger.cell = cell;
  ledger.generation = 1;
  ledger.state = flight::LedgerState::open;
  ledger.allocated = ledger.claimed = allocated;
  ledger.peak = std::max(peak, allocated);
  ledger.limit = 1000;
  return ledger;
}

class LastMinutes : public testing::Test {
protected:
  void read(std::vector<flight::LedgerSnapshot> const& ledgers, double at) {
    samples_.add(ledgers, static_cast<std::uint64_t>(at * static_cast<double>(kSecond)));
  }
  [[nodiscard]] Samples::History history(std::uint32_t cell = 0, std::uint64_t since = 0, std::uint64_t generation = 1) const {
    const auto histories = samples_.since(since);
    const auto found = histories.find({cell, generation});
    return found == histories.end() ? Samples::History{} : found->second;
  }
  Samples samples_;
};

TEST_F(LastMinutes, a_second_keeps_the_least_and_the_most_of_its_readings) {
  read({manager(0, 500, 900)}, 10.00);
  read({manager(0, 300, 900)}, 10.25);
  read({manager(0, 700, 900)}, 10.75);
  read({manager(0, 600, 900)}, 11.00);
  EXPECT_THAT(history(), ElementsAre(Second{.number = 10, .low = 300, .high = 700, .limit = 1000, .failures = 0},
                                     Second{.number = 11, .low = 600, .high = 600, .limit = 1000, .failures = 0}));
}

TEST_F(LastMinutes, a_spike_between_two_readings_is_seen_by_its_peak) {
  read({manager(0, 100, 100)}, 5.0);
  read({manager(0, 100, 950)}, 6.0);
  read({manager(0, 100, 950)}, 7.0);
  EXPECT_THAT(history(), ElementsAre(Second{.number = 5, .low = 100, .high = 100, .limit = 1000, .failures = 0},
                                     Second{.number = 6, .low = 100, .high = 950, .limit = 1000, .failures = 0},
                                     Second{.number = 7, .low = 100, .high = 100, .limit = 1000, .failures = 0}));
}

TEST_F(LastMinutes, failures_are_counted_in_the_second_in_which_they_turn_up) {
  auto ledger = manager(0, 100);
  ledger.refusals[0][0] = 5;  // before anybody looked: nobody knows when
  read({ledger}, 1.0);
  ledger.refusals[0][0] = 6;
  ledger.refusals[1][2] = 2;
  read({ledger}, 2.0);
  read({ledger}, 2.5);
  ledger.refusals[0][0] = 7;
  read({ledger}, 2.75);
  const auto seconds = history();
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_EQ(seconds[0].failures, 0U);
  EXPECT_EQ(seconds[1].failures, 4U);
}

TEST_F(LastMinutes, whoever_appears_later_failed_since_the_last_reading) {
  read({manager(0, 1)}, 1.0);
  auto late = manager(1, 10, 400);
  late.refusals[0][0] = 3;
  read({manager(0, 1), late}, 2.0);
  EXPECT_THAT(history(1), ElementsAre(Second{.number = 2, .low = 10, .high = 400, .limit = 1000, .failures = 3}));
}

TEST_F(LastMinutes, ten_are_kept) {
  for (std::uint64_t second = 0; second < 700; ++second) samples_.add(std::vector{manager(0, second)}, second * kSecond);
  const auto seconds = history();
  ASSERT_EQ(seconds.size(), Samples::kSeconds);
  EXPECT_EQ(seconds.front().number, 100U);
  EXPECT_EQ(seconds.back().number, 699U);
  EXPECT_EQ(history(0, 698).size(), 2U);
  EXPECT_THAT(history(0, 700), IsEmpty());
}

TEST_F(LastMinutes, what_stood_still_for_longer_than_is_kept_leaves_nothing_old) {
  read({manager(0, 1)}, 1.0);
  read({manager(0, 2)}, 5000.0);
  const auto seconds = history();
  ASSERT_EQ(seconds.size(), 1U);
  EXPECT_EQ(seconds[0].number, 5000U);
}

TEST_F(LastMinutes, are_of_managers_that_are_there) {
  auto account = manager(1, 7);
  account.is_device_account = true;
  auto closed = manager(2, 0);
  closed.state = flight::LedgerState::closed;
  read({manager(0, 5), account, closed}, 1.0);
  EXPECT_EQ(history(0).size(), 1U);
  EXPECT_THAT(history(1), IsEmpty());
  EXPECT_THAT(history(2), IsEmpty());
  auto next_owner = manager(0, 9);
  next_owner.generation = 2;
  read({next_owner}, 2.0);
  EXPECT_THAT(history(0), IsEmpty());  // of the first one
  EXPECT_EQ(history(0, 0, 2).size(), 1U);
}

TEST_F(LastMinutes, of_more_managers_than_are_kept_are_the_first_ones_and_later_those_that_got_their_places) {
  std::vector<flight::LedgerSnapshot> many;
  for (std::uint32_t cell = 0; cell < 70; ++cell) many.push_back(manager(cell, cell));
  read(many, 1.0);
  EXPECT_EQ(samples_.since(0).size(), Samples::kMostManagers);
  EXPECT_THAT(history(69), IsEmpty());
  many.erase(many.begin(), many.begin() + 10);
  read(many, 2.0);
  EXPECT_EQ(samples_.since(0).size(), 60U);
  EXPECT_EQ(history(69).size(), 1U);
}

TEST_F(LastMinutes, a_repeated_reading_is_like_the_last_one) {
  read({manager(0, 500)}, 10.0);
  samples_.repeat(10 * kSecond + kSecond / 2);
  samples_.repeat(11 * kSecond);
  read({manager(0, 700)}, 11.5);
  samples_.repeat(12 * kSecond);
  EXPECT_THAT(history(), ElementsAre(Second{.number = 10, .low = 500, .high = 500, .limit = 1000, .failures = 0},
                                     Second{.number = 11, .low = 500, .high = 700, .limit = 1000, .failures = 0},
                                     Second{.number = 12, .low = 700, .high = 700, .limit = 1000, .failures = 0}));
}

TEST_F(LastMinutes, who_has_no_room_is_counted_and_gets_some_later) {
  samples_.allow(1);
  read({manager(0, 500), manager(1, 600)}, 10.0);
  EXPECT_EQ(samples_.managers(), 1U);
  EXPECT_EQ(samples_.left_out(), 1U);
  samples_.allow(2);
  read({manager(0, 500), manager(1, 600, 900)}, 11.0);
  EXPECT_EQ(samples_.managers(), 2U);
  EXPECT_EQ(samples_.left_out(), 0U);
  // Its peak is from a time that nobody knows.
  EXPECT_THAT(history(1), ElementsAre(Second{.number = 11, .low = 600, .high = 600, .limit = 1000, .failures = 0}));
}

}  // namespace
}  // namespace headroom::exporter
