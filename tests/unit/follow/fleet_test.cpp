// Many files at once.
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/follow.hpp>

#include "flight_builder.hpp"

namespace headroom::follow {
namespace {

namespace fs = std::filesystem;

class FollowFleet : public testing::Test {
protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path_of(std::uint64_t pid) const {
    return folder_ + "/train." + std::to_string(pid) + ".00000000000000" + std::to_string(pid) + ".flight";
  }
  void save(std::uint64_t pid, std::uint64_t bytes) const {
    flight::FlightBuilder file;
    file.header().pid = pid;
    auto& ledger = file.open_ledger(0, 3, "main");
    ledger.alloc = (std::uint64_t{1} << flight::kBytesBits) | bytes;
    ledger.claim = bytes;
    ledger.peak = ledger.alloc.load();
    file.lane(0).counters[0].allocations = 1;
    auto values = flight::record(flight::EventKind::allocate, 100);
    values[2] = 0x1000;
    values[3] = bytes;
    values[4] = ledger.alloc.load();
    file.write(0, flight::Ring::main, values);
    file.save(path_of(pid));
  }

  std::string folder_ = testing::TempDir() + "follow-fleet-" + std::to_string(::getpid());
};

TEST_F(FollowFleet, follows_each_file_and_lets_go_of_those_that_are_gone) {
  save(11, 100);
  save(22, 200);
  Fleet fleet{{folder_}, {.patience = std::chrono::milliseconds{0}}};
  ASSERT_TRUE(fleet.poll());
  ASSERT_TRUE(fleet.poll());
  ASSERT_EQ(fleet.members().size(), 2U);
  std::uint64_t sum = 0;
  for (auto& member : fleet.members()) sum += member.model.state_at(0, 100).allocated;
  EXPECT_EQ(sum, 300U);

  auto const* const kept = &fleet.members()[0].model.source();
  auto const kept_path = fleet.members()[0].path;
  fs::remove(fleet.members()[1].path);
  save(33, 400);
  ASSERT_TRUE(fleet.poll());
  ASSERT_EQ(fleet.members().size(), 2U);
  bool is_same_model = false;
  for (auto& member : fleet.members()) is_same_model |= member.path == kept_path && &member.model.source() == kept;
  EXPECT_TRUE(is_same_model) << "a file that is followed keeps its past";
  EXPECT_TRUE(fleet.problems().empty());
}

TEST_F(FollowFleet, leaves_out_what_cannot_be_read_and_names_it) {
  save(11, 100);
  flight::FlightBuilder broken;
  broken.header().abi_major = 99;
  broken.save(path_of(44));
  Fleet fleet{{folder_}};
  ASSERT_TRUE(fleet.poll());
  EXPECT_EQ(fleet.members().size(), 1U);
  ASSERT_EQ(fleet.problems().size(), 1U);
  EXPECT_THAT(fleet.problems()[0], testing::HasSubstr("99"));
}

TEST_F(FollowFleet, a_file_that_nobody_may_read_is_named) {
  save(11, 100);
  save(22, 200);
  fs::permissions(path_of(22), fs::perms::none);
  // The superuser may read everything: for a moment, be somebody else.
  auto const is_root = ::geteuid() == 0;
  if (is_root) {
    constexpr auto kRead = fs::perms::owner_all | fs::perms::group_read | fs::perms::others_read;
    fs::permissions(folder_, kRead | fs::perms::group_exec | fs::perms::others_exec);
    fs::permissions(path_of(11), kRead);
    ASSERT_EQ(::seteuid(65'534), 0);
    if (::eaccess(folder_.c_str(), R_OK | X_OK) != 0) {
      ASSERT_EQ(::seteuid(0), 0);
      GTEST_SKIP() << "nobody else can look into " << folder_;
    }
  }
  Fleet fleet{{folder_}};
  auto const polled = fleet.poll();
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_TRUE(polled);
  ASSERT_EQ(fleet.members().size(), 1U);
  EXPECT_EQ(fleet.members()[0].path, path_of(11));
  ASSERT_EQ(fleet.problems().size(), 1U);
  EXPECT_THAT(fleet.problems()[0], testing::HasSubstr(path_of(22)));
}

TEST_F(FollowFleet, a_folder_that_does_not_exist_holds_none) {
  Fleet fleet{{folder_ + "/nowhere"}};
  ASSERT_TRUE(fleet.poll());
  EXPECT_TRUE(fleet.members().empty());
}

}  // namespace
}  // namespace headroom::follow
