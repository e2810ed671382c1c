// A reader between the counters of a ledger and what its cell had counted before it, while another manager takes the cell.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_point.hpp"
#include "managers.hpp"

namespace headroom::flight {
namespace {

std::uint64_t allocations_of_all() {
  std::uint64_t sum = 0;
  for (auto const& ledger : FlightView::of_this_process().value().all_ledgers()) {
    sum += ledger.counters.allocations + ledger.earlier.allocations;
  }
  return sum;
}

/// At the reader's nth pass of its point another thread begins to open a manager, and stands where its base is stored and nothing else.
class Handover {
public:
  explicit Handover(int nth) {
    countdown = nth;
    stage = kBefore;
    test_point_handler.store(handle, std::memory_order_release);
  }
  ~Handover() {
    stage = kOver;
    stage.notify_all();
    if (opener.joinable()) opener.join();
    test_point_handler.store(nullptr, std::memory_order_release);
  }
  Handover(Handover const&) = delete;
  Handover& operator=(Handover const&) = delete;
  /// False: the reader has fewer ledgers to read.
  [[nodiscard]] static bool took_place() { return stage != kBefore; }
  static inline std::optional<GpuMemoryManager> manager;

private:
  static constexpr int kBefore = 0, kOpening = 1, kStored = 2, kOver = 3;
  static void handle(TestPoint at) noexcept {
    if (at == TestPoint::open_before_generation && stage == kOpening) {
      stage = kStored;
      stage.notify_all();
      stage.wait(kStored);
    }
    if (at != TestPoint::read_before_earlier || stage != kBefore || countdown-- != 0) return;
    stage = kOpening;
    opener = std::thread{[] { manager = test::null_manager(MemoryBudget::unlimited(), "in the same cell"); }};
    stage.wait(kOpening);
  }
  static inline int countdown = 0;  // of the reader's thread
  static inline std::atomic<int> stage{kBefore};
  static inline std::thread opener;
};

TEST(LedgersThatChangeHands, are_counted_at_most_once) {
  if constexpr (!kTestPoints) GTEST_SKIP() << "built without test points";
  // Cells of closed managers are used again; with all of them taken, the one that closes last is the only one to be had.
  std::vector<GpuMemoryManager> others;
  for (bool was_used_before = true; was_used_before;) {
    const auto cells =
        FlightView::of_this_process() ? FlightView::of_this_process()->all_ledgers() : std::vector<LedgerSnapshot>{};
    others.push_back(test::null_manager(MemoryBudget::unlimited(), "fills a cell"));
    was_used_before = std::ranges::any_of(cells, [&](auto const& ledger) { return ledger.cell == others.back().ledger_cell(); });
  }
  const auto use = [](GpuMemoryManager& manager) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(manager.alloc<std::byte>(100).has_value());
  };
  std::optional<std::uint32_t> cell;
  {
    auto first = test::null_manager(MemoryBudget::unlimited(), "first in the cell");
    cell = first.ledger_cell();
    use(first);
  }
  auto total = allocations_of_all();
  int handovers = 0;
  for (bool goes_on = true; goes_on; ++handovers) {
    std::uint64_t counted = 0;
    {
      const Handover handover{handovers};
      counted = allocations_of_all();
      goes_on = Handover::took_place();
    }
    EXPECT_LE(counted, total) << "at ledger " << handovers;
    if (!goes_on) break;
    ASSERT_EQ(Handover::manager->ledger_cell(), cell);
    use(*Handover::manager);
    Handover::manager.reset();
    total += 3;
    EXPECT_EQ(allocations_of_all(), total);
  }
  EXPECT_GE(handovers, static_cast<int>(others.size()));
}

}  // namespace
}  // namespace headroom::flight
