// Tags at the ends of their tables: what finds no place is counted as `other`, and no manager hears of another one's tags. The tables
// belong to the process, so each test that fills one has a process of its own.
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <headroom/flight_publish.hpp>

#include "managers.hpp"

namespace headroom::test {
namespace {

using Buffer = TrackedBuffer<std::byte>;

void expect_clean(GpuMemoryManager const& manager) {
  EXPECT_TRUE(manager.audit().clean()) << manager.name() << ": " << manager.audit().to_string();
}

std::uint64_t folded() { return flight::FlightView::of_this_process()->process().tags_folded; }

TEST(Tags, a_tag_named_untagged_is_what_has_no_name_and_counts_once) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto nameless = manager.alloc<std::byte>(100).value();
  auto named = manager.alloc<std::byte>(150, AllocTag{"untagged"}).value();
  auto other = manager.alloc<std::byte>(20, AllocTag{"other"}).value();
  expect_clean(manager);
  EXPECT_EQ(manager.audit().tag_bytes, 270U);
  const auto refused = manager.alloc<std::byte>(900);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().holders[0].bytes, 250U);
  EXPECT_EQ(refused.error().holders[1].bytes, 20U);
  EXPECT_EQ(refused.error().holders[2].bytes, 0U);
}

// 256 cells, one kept for the `other` of each of 64 ledgers: 192 for names.
[[noreturn]] void use_up_the_tag_cells_and_exit() {
  {
    auto first = null_manager(MemoryBudget::unlimited(), "first");
    std::vector<Buffer> held;
    const auto allocate_all = [&] {
      for (int i = 0; i < 300; ++i) held.push_back(first.alloc<std::byte>(10, AllocTag{"t" + std::to_string(i)}).value());
    };
    allocate_all();
    EXPECT_EQ(folded(), 108U);
    allocate_all();
    EXPECT_EQ(folded(), 108U) << "names are counted, not allocations";
    EXPECT_EQ(tag_bytes(snapshot_of(first), "t191"), 20U);
    EXPECT_EQ(tag_bytes(snapshot_of(first), "t192"), 0U);
    EXPECT_EQ(tag_bytes(snapshot_of(first), "other"), 2160U);
    expect_clean(first);

    auto second = null_manager(MemoryBudget::with_limit(2000), "second");
    auto buffer = second.alloc<std::byte>(1000, AllocTag{"t1"}).value();
    expect_clean(second);
    EXPECT_EQ(tag_bytes(snapshot_of(second), "other"), 1000U);
    const auto refused = second.alloc<std::byte>(1500);
    EXPECT_EQ(refused.error().holders[0].bytes, 1000U);
    EXPECT_EQ(refused.error().holders[0].tag, std::string{"other"});
    EXPECT_EQ(folded(), 110U) << "its t1, and what has no name";
  }
  // Cells come back with the next use of a ledger.
  auto third = null_manager(MemoryBudget::unlimited(), "third");
  auto fourth = null_manager(MemoryBudget::unlimited(), "fourth");
  auto buffer = third.alloc<std::byte>(10, AllocTag{"t250"}).value();
  EXPECT_EQ(tag_bytes(snapshot_of(third), "t250"), 10U);
  expect_clean(third);
  expect_clean(fourth);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// 4,096 names of marks and no room for those of managers.
[[noreturn]] void use_up_the_directory_and_exit() {
  std::optional first = null_manager(MemoryBudget::unlimited(), "first");
  {
    auto one = first->alloc<std::byte>(1, AllocTag{"one"}).value();
    auto two = first->alloc<std::byte>(1, AllocTag{"two"}).value();
  }
  for (int i = 0; i < 5000; ++i) flight::mark("step " + std::to_string(i), 0);
  auto second = null_manager(MemoryBudget::unlimited(), "second");
  auto third = null_manager(MemoryBudget::unlimited(), "third");
  auto nameless = second.alloc<std::byte>(5).value();
  expect_clean(second);
  first.reset();
  auto fourth = null_manager(MemoryBudget::unlimited(), "fourth");  // the first one's core: its names become free
  const AllocTag tag{"shared"};
  auto seconds = second.alloc<std::byte>(100, tag).value();
  auto thirds = third.alloc<std::byte>(1000, tag).value();
  auto fourths = fourth.alloc<std::byte>(10'000, tag).value();
  for (auto const* manager : {&second, &third, &fourth}) expect_clean(*manager);
  const auto before = folded();
  auto again = second.alloc<std::byte>(100, tag).value();
  EXPECT_EQ(folded(), before) << "looked up once, though it has no place";
  EXPECT_EQ(second.allocated_bytes(), 205U);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// A process of its own, from the start. It ends without goodbye, and would leave a file that looks like a killed program's.
class TagTableDeathTest : public ::testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv("HEADROOM_FLIGHT", "off", 1);
  }
  void TearDown() override { unsetenv("HEADROOM_FLIGHT"); }
};

TEST_F(TagTableDeathTest, names_beyond_its_cells_are_other_in_every_ledger) {
  EXPECT_EXIT(use_up_the_tag_cells_and_exit(), ::testing::ExitedWithCode(0), "");
}

TEST_F(TagTableDeathTest, managers_without_a_name_in_the_directory_share_no_tags) {
  EXPECT_EXIT(use_up_the_directory_and_exit(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::test
