// What a cell counted for the ledgers that had it before, and what is mapped of a file.
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "flight_builder.hpp"
#include "managers.hpp"

namespace headroom::flight {
namespace {

TEST(FlightLedgers, say_what_their_cell_counted_before_them) {
  FlightBuilder file;
  file.header().lanes_used = 1;
  file.open_ledger(2, 5, "pool");
  file.lane(0).counters[2].allocations = 100;
  file.lane(0).counters[2].frees = 90;
  file.lane(0).counters[2].allocation_bytes = 5'000;
  file.lane(0).counters[2].deallocation_bytes = 4'000;
  file.ledger_base(2).allocations = 60;
  file.ledger_base(2).frees = 55;
  file.ledger_base(2).allocation_bytes = 3'000;
  file.ledger_base(2).deallocation_bytes = 2'500;
  auto const ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.earlier.allocations, 60U);
  EXPECT_EQ(ledger.earlier.frees, 55U);
  EXPECT_EQ(ledger.earlier.allocation_bytes, 3'000U);
  EXPECT_EQ(ledger.earlier.deallocation_bytes, 2'500U);
  EXPECT_EQ(ledger.counters.allocations + ledger.earlier.allocations, 100U);
}

TEST(FlightLedgers, of_a_program_lose_no_count_when_a_manager_takes_the_place_of_another) {
  auto const count = [] {
    std::uint64_t sum = 0;
    auto const view = FlightView::of_this_process();
    for (auto const& ledger : view ? view->all_ledgers() : std::vector<LedgerSnapshot>{}) {
      sum += ledger.counters.allocations + ledger.earlier.allocations;
    }
    return sum;
  };
  auto const before = count();
  for (int i = 0; i < 5; ++i) {
    auto manager = test::null_manager(MemoryBudget::unlimited(), "short");
    for (int j = 0; j < 3; ++j) EXPECT_TRUE(manager.alloc<std::byte>(100).has_value());
  }
  EXPECT_EQ(count() - before, 15U);
}

TEST(FlightLedgers, have_the_tallies_of_those_before_them_as_one_sum) {
  FlightBuilder file;
  auto& words = file.header().earlier_tallies;
  LedgerTallies const place{};
  auto const index_of = [&place](Word const& word) {
    return static_cast<std::size_t>(&word - reinterpret_cast<Word const*>(&place));
  };
  words[index_of(place.refusals[static_cast<std::size_t>(ErrorKind::over_budget)][static_cast<std::size_t>(Layer::manager)])] = 3;
  words[index_of(place.free_failures[static_cast<std::size_t>(ErrorKind::double_free)])] = 4;
  words[index_of(place.transitions[1][2])] = 5;
  words[index_of(place.gave_up)] = 6;
  auto const earlier = file.view().earlier_tallies();
  EXPECT_EQ(earlier.refusals[static_cast<std::size_t>(ErrorKind::over_budget)][static_cast<std::size_t>(Layer::manager)], 3U);
  EXPECT_EQ(earlier.failures(), 3U);
  EXPECT_EQ(earlier.free_failures[static_cast<std::size_t>(ErrorKind::double_free)], 4U);
  EXPECT_EQ(earlier.transitions[1][2], 5U);
  EXPECT_EQ(earlier.guard.gave_up, 6U);
}

TEST(FlightLedgers, of_a_program_lose_no_refusal_when_a_manager_takes_the_place_of_another) {
  auto const count = [] {
    auto const view = FlightView::of_this_process();
    std::uint64_t sum = view ? view->earlier_tallies().failures() : 0;
    for (auto const& ledger : view ? view->all_ledgers() : std::vector<LedgerSnapshot>{}) {
      if (!ledger.is_device_account) sum += ledger.failures();
    }
    return sum;
  };
  auto const before = count();
  for (int i = 0; i < 5; ++i) {
    auto manager = test::null_manager(MemoryBudget::with_limit(50), "tight");
    for (int j = 0; j < 3; ++j) EXPECT_FALSE(manager.alloc<std::byte>(100).has_value());
  }
  EXPECT_EQ(count() - before, 15U);
}

TEST(FlightViews, show_all_that_is_mapped) {
  FlightBuilder const file;
  auto const view = file.view();
  EXPECT_EQ(view.memory().data(), file.bytes().data());
  EXPECT_EQ(view.memory().size(), file.bytes().size());
}

}  // namespace
}  // namespace headroom::flight
