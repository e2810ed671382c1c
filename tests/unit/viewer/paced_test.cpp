// Work that is paced by what it costs.
#include "paced.hpp"

#include <gtest/gtest.h>

namespace headroom::viewer {
namespace {

struct HandClock {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<HandClock, duration>;
  static constexpr bool is_steady = true;
  static inline time_point at{};
  static time_point now() { return at; }
};

TEST(Paced, answers_a_choice_at_once_and_a_version_when_its_cost_allows) {
  Paced<int, int, int, HandClock> paced;
  auto const costly = [](int value) {
    return [value] {
      HandClock::at += std::chrono::milliseconds{10};
      return value;
    };
  };
  EXPECT_EQ(paced.get(1, 1, costly(11)), 11);
  EXPECT_EQ(paced.get(1, 1, costly(0)), 11) << "nothing changed";
  EXPECT_FALSE(paced.is_behind());
  EXPECT_EQ(paced.get(1, 2, costly(12)), 11) << "it took 10 ms a moment ago";
  EXPECT_TRUE(paced.is_behind());
  EXPECT_EQ(paced.get(2, 2, costly(22)), 22) << "another choice does not wait";
  EXPECT_FALSE(paced.is_behind());
  HandClock::at += std::chrono::milliseconds{79};
  EXPECT_EQ(paced.get(2, 3, costly(23)), 22);
  HandClock::at += std::chrono::milliseconds{1};
  EXPECT_EQ(paced.get(2, 3, costly(23)), 23) << "eight times as long has passed";
  EXPECT_EQ(paced.made(), 3U);
  paced.forget();
  EXPECT_EQ(paced.get(2, 3, costly(24)), 24);
}

}  // namespace
}  // namespace headroom::viewer
