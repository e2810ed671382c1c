// When a ledger tells its observer: taken down in the middle of the operation, delivered when the outermost one is over.
#include <map>
#include <utility>
#include <vector>

#include "ledger/observer.hpp"
#include "ledgers.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

struct Noted {
  std::uint64_t sequence;
  PressureLevel from, to;
  bool in_operation;
};

class TestObserver final : public ledger::PressureObserver {
public:
  void note(std::uint64_t sequence, PressureLevel from, PressureLevel to) noexcept override {
    noted.push_back({sequence, from, to, flight::this_thread().in_flight_depth != 0});
  }
  bool deliver() noexcept override {
    auto& thread = flight::this_thread();
    ++deliveries;
    outside = outside && thread.in_flight_depth == 0 && !thread.writing.load();
    return std::exchange(want_again, false);
  }
  std::vector<Noted> noted;
  int deliveries = 0;
  bool outside = true;
  bool want_again = false;
};

// Observers live as long as the process, and this one stays with its ledger through all its lives.
TestObserver& observer_of(ledger::Ledger& ledger) {
  if (ledger.observer() == nullptr) {
    auto& fresh = *new TestObserver;
    ledger.observe(fresh);
    ledger::add_observer(fresh);
  }
  auto& observer = static_cast<TestObserver&>(*ledger.observer());
  observer.noted.clear();
  observer.deliveries = 0;
  return observer;
}

TEST(Observer, is_told_in_the_operation_and_delivers_after_it) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto& observer = observer_of(ledger_of(manager));
  auto small = manager.alloc<std::byte>(1).value();
  EXPECT_EQ(observer.deliveries, 0);  // nothing changed: nobody is asked
  auto large = manager.alloc<std::byte>(999).value();
  ASSERT_TRUE(large.release());
  ASSERT_EQ(observer.noted.size(), 2U);
  EXPECT_EQ(observer.noted[0].from, PressureLevel::none);
  EXPECT_EQ(observer.noted[0].to, PressureLevel::critical);
  EXPECT_EQ(observer.noted[1].to, PressureLevel::none);
  EXPECT_EQ(observer.noted[1].sequence, observer.noted[0].sequence + 1);
  for (auto const& noted : observer.noted) EXPECT_TRUE(noted.in_operation);
  EXPECT_EQ(observer.deliveries, 2);
  EXPECT_TRUE(observer.outside);
}

TEST(Observer, hears_of_a_budget_and_of_a_margin) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto& ledger = ledger_of(manager);
  auto& observer = observer_of(ledger);
  const auto held = manager.alloc<std::byte>(600).value();
  manager.set_budget(MemoryBudget::with_limit(857));  // 600 is 70.01 %
  EXPECT_EQ(observer.deliveries, 1);
  manager.set_budget(MemoryBudget::with_limit(858));  // 69.93 %: within the margin
  EXPECT_EQ(observer.deliveries, 1);
  ledger.set_pressure_margin(0);
  EXPECT_EQ(observer.deliveries, 2);
  EXPECT_TRUE(observer.outside);
}

TEST(Observer, that_is_not_done_is_asked_again_after_the_next_operation) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto& observer = observer_of(ledger_of(manager));
  observer.want_again = true;
  auto held = manager.alloc<std::byte>(1000).value();
  EXPECT_EQ(observer.deliveries, 1);
  auto other = null_manager(MemoryBudget::unlimited());
  auto any = other.alloc<std::byte>(1).value();
  EXPECT_EQ(observer.deliveries, 2);
  ASSERT_TRUE(any.release());
  EXPECT_EQ(observer.deliveries, 2);
}

TEST(Observer, numbers_go_on_over_the_lives_of_a_ledger) {
  std::map<ledger::Ledger*, std::uint64_t> last;
  for (int life = 0; life < 16; ++life) {
    auto manager = null_manager(MemoryBudget::with_limit(1000));
    auto& ledger = ledger_of(manager);
    auto& observer = observer_of(ledger);
    {
      const auto held = manager.alloc<std::byte>(1000).value();
    }
    ASSERT_EQ(observer.noted.size(), 2U);
    EXPECT_GT(observer.noted[0].sequence, last[&ledger]);
    EXPECT_EQ(observer.noted[1].sequence - ledger.notice_base(), 2U);  // the word's own numbers begin anew
    EXPECT_EQ(ledger.notice_number(), observer.noted[1].sequence);
    last[&ledger] = observer.noted[1].sequence;
  }
  EXPECT_LT(last.size(), 16U);  // ledgers were used again
}

// A reservation's drop and a write-off give bytes back as a free does; a rollback does not.
TEST(FreedHere, counts_what_this_thread_gives_back_to_the_watched_ledger) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto& ledger = ledger_of(host.manager);
  auto other = null_manager(MemoryBudget::unlimited());
  auto& thread = flight::this_thread();
  auto block = host.manager.alloc<std::byte>(100).value();
  auto reserved = host.manager.reserve_bytes(30).value();
  auto foreign = other.alloc<std::byte>(7).value();
  thread.watched_freed_bytes = 0;
  thread.watched_ledger = &ledger.cell();
  ASSERT_TRUE(foreign.release());
  EXPECT_EQ(thread.watched_freed_bytes, 0U);
  ASSERT_TRUE(block.release());
  EXPECT_EQ(thread.watched_freed_bytes, 100U);
  reserved.release();
  EXPECT_EQ(thread.watched_freed_bytes, 130U);
  host.resource->faults().inject_on_this_thread(FaultOperation::allocate, 0, 1);
  EXPECT_FALSE(host.manager.alloc<std::byte>(10));
  EXPECT_EQ(thread.watched_freed_bytes, 130U);
  thread.watched_ledger = nullptr;
  {
    const auto more = host.manager.alloc<std::byte>(10).value();
  }
  EXPECT_EQ(thread.watched_freed_bytes, 130U);
}

}  // namespace
}  // namespace headroom::test
