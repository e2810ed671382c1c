// The raw door, used wrongly: every kind is told apart, counted and reported; the driver is not called, and the books stay as they were.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include "doors.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kAlign = kMinimumAlignment;

// Runs a free that must be refused as `kind`: nothing changes but one count and one event.
class RawDoorMisuse : public ::testing::Test {
protected:
  template <class Free>
  Error expect_refused(ErrorKind kind, Free&& free) {
    const Books before = books_of(door);
    const std::uint64_t asked = scripted.resource->frees();
    const std::uint64_t counted = free_failures(scripted.manager, kind);
    const std::uint64_t met = door.misuse_count();
    const std::size_t events = failed_frees(kind);
    Result<void> freed = free();
    EXPECT_FALSE(freed);
    EXPECT_EQ(books_of(door), before);
    EXPECT_EQ(scripted.resource->frees(), asked) << "the driver was asked";
    EXPECT_EQ(free_failures(scripted.manager, kind), counted + 1);
    EXPECT_EQ(door.misuse_count(), met + 1);
    EXPECT_EQ(failed_frees(kind), events + 1);
    EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
    if (freed) return {};
    EXPECT_EQ(freed.error().kind, kind);
    EXPECT_EQ(freed.error().layer, Layer::manager);
    return freed.error();
  }

  // Events of refused frees with this kind, of this manager; the newest is kept.
  std::size_t failed_frees(ErrorKind kind) {
    std::size_t count = 0;
    for (auto const& event : events_of(flight::EventKind::free_failed)) {
      if (event.error_kind() != kind || event.ledger() != scripted.manager.ledger_cell()) continue;
      ++count;
      newest = event;
    }
    return count;
  }

  static bool says(Error const& error, std::string const& text) { return error.message.find(text) != std::string::npos; }

  ScriptedManager scripted = scripted_manager();
  RawDoor door = door_on(scripted.manager);
  flight::Event newest;
};

TEST_F(RawDoorMisuse, a_double_free_names_who_freed_first) {
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  std::uint32_t first = 0;
  std::thread{[&] {
    first = static_cast<std::uint32_t>(gettid());
    EXPECT_TRUE(door.deallocate(pointer, 1000));
  }}.join();
  const Error error = expect_refused(ErrorKind::double_free, [&] { return door.deallocate(pointer, 1000); });
  EXPECT_TRUE(says(error, "freed first by thread " + std::to_string(first) + " at ")) << error.message;
  EXPECT_TRUE(says(error, "raw_door_misuse_test.cpp")) << error.message;
  EXPECT_TRUE(says(error, "1000 bytes")) << error.message;
  EXPECT_EQ(newest.words[2], std::bit_cast<std::uint64_t>(pointer));
  EXPECT_EQ(newest.bytes(), 1000U);
  EXPECT_EQ(newest.error_layer(), Layer::manager);
  expect_refused(ErrorKind::double_free, [&] { return door.deallocate(pointer, kUnknownBytes); });
}

TEST_F(RawDoorMisuse, a_pointer_that_never_came_from_here_is_unknown) {
  const TagScope scope{AllocTag{"raw-caller"}};
  auto* const stranger = std::bit_cast<void*>(std::uint64_t{0xabc00});
  const Error error = expect_refused(ErrorKind::unknown_pointer, [&] { return door.deallocate(stranger, 64); });
  EXPECT_TRUE(says(error, "0xabc00")) << error.message;
  EXPECT_EQ(newest.words[2], 0xabc00U);
  EXPECT_EQ(newest.bytes(), 64U);
  EXPECT_EQ(flight::FlightView::of_this_process()->label(newest.tag()), "raw-caller");
  EXPECT_EQ(newest.flags(), 0U);  // not "untracked": no slot was ever wanted
}

TEST_F(RawDoorMisuse, a_pointer_into_a_block_names_the_block) {
  scripted.resource->hand_out({0x500000});
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  const Error error = expect_refused(ErrorKind::unknown_pointer, [&] { return door.deallocate(offset_by(pointer, 10), 990); });
  EXPECT_TRUE(says(error, "0x50000a lies 10 bytes into the block of 1000 bytes at 0x500000")) << error.message;
  EXPECT_TRUE(door.deallocate(pointer, 1000));
}

TEST_F(RawDoorMisuse, a_wrong_size_leaves_the_block_allocated) {
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  for (const std::uint64_t wrong : {std::uint64_t{999}, std::uint64_t{1001}, std::uint64_t{0}, UINT64_MAX - 1}) {
    const Error error = expect_refused(ErrorKind::wrong_size, [&] { return door.deallocate(pointer, wrong); });
    EXPECT_TRUE(says(error, "has 1000 bytes, not " + std::to_string(wrong))) << error.message;
  }
  EXPECT_TRUE(door.deallocate(pointer, 1000));
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
}

TEST_F(RawDoorMisuse, a_wrong_size_may_be_freed_anyway_with_the_recorded_one) {
  auto lenient = door_on(scripted.manager, {.wrong_size = WrongSize::free_anyway});
  void* const pointer = lenient.allocate(1000, kAlign, {}).value();
  EXPECT_TRUE(lenient.deallocate(pointer, 512));
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(scripted.manager.stats().deallocation_bytes, 1000U);
  EXPECT_EQ(lenient.misuse_count(), 1U);
  EXPECT_EQ(free_failures(scripted.manager, ErrorKind::wrong_size), 1U);
  EXPECT_EQ(scripted.resource->frees(), 1U);
  EXPECT_EQ(lenient.live_blocks(), 0U);
}

TEST_F(RawDoorMisuse, another_doors_block_is_refused_and_stays_freeable_there) {
  auto other_manager = scripted_manager("raw \"other\"");
  other_manager.resource->hand_out({0x900000});
  auto other = door_on(other_manager.manager);
  void* const pointer = other.allocate(1000, kAlign, {}).value();
  const Books before = books_of(other);
  const Error error = expect_refused(ErrorKind::wrong_owner, [&] { return door.deallocate(pointer, 1000); });
  EXPECT_TRUE(says(error, "raw \"other\"")) << error.message;
  EXPECT_EQ(books_of(other), before);
  EXPECT_EQ(other_manager.resource->frees(), 0U);
  EXPECT_EQ(free_failures(other_manager.manager, ErrorKind::wrong_owner), 0U);
  const Error inside = expect_refused(ErrorKind::unknown_pointer, [&] { return door.deallocate(offset_by(pointer, 1), 1); });
  EXPECT_TRUE(says(inside, "1 byte into the block of 1000 bytes at 0x900000")) << inside.message;
  EXPECT_TRUE(other.deallocate(pointer, 1000));
  // Freed there, freed here: two frees of one block.
  const Error twice = expect_refused(ErrorKind::double_free, [&] { return door.deallocate(pointer, 1000); });
  EXPECT_TRUE(says(twice, "another door")) << twice.message;
}

TEST_F(RawDoorMisuse, a_buffers_memory_is_not_the_doors) {
  auto buffer = scripted.manager.alloc<std::byte>(1000).value();
  const Error error = expect_refused(ErrorKind::wrong_owner, [&] { return door.deallocate(buffer.data(), 1000); });
  EXPECT_TRUE(says(error, "a buffer of manager")) << error.message;
  EXPECT_TRUE(says(error, scripted.manager.name())) << error.message;
  EXPECT_TRUE(buffer.release());
}

TEST_F(RawDoorMisuse, a_stale_block_is_told_from_the_one_that_lives_there_now) {
  scripted.resource->hand_out({0x500000, 0x500000});
  const RawBlock first = door.allocate_block(1000, kAlign, {}).value();
  ASSERT_TRUE(door.deallocate(first));
  const RawBlock second = door.allocate_block(1000, kAlign, {}).value();
  ASSERT_EQ(second.pointer, first.pointer);
  ASSERT_NE(second.generation, first.generation);
  const Error error = expect_refused(ErrorKind::use_after_free, [&] { return door.deallocate(first); });
  EXPECT_TRUE(says(error, "generation 1 of 0x500000 is over: generation 2 lives there")) << error.message;
  EXPECT_TRUE(door.deallocate(second));
  expect_refused(ErrorKind::double_free, [&] { return door.deallocate(second); });
  expect_refused(ErrorKind::double_free, [&] { return door.deallocate(first); });
}

TEST_F(RawDoorMisuse, a_double_free_is_told_even_when_the_address_lives_elsewhere) {
  scripted.resource->hand_out({0x500000});
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  ASSERT_TRUE(door.deallocate(pointer, 1000));
  auto other_manager = scripted_manager();
  other_manager.resource->hand_out({0x500000});
  auto other = door_on(other_manager.manager);
  ASSERT_EQ(other.allocate(64, kAlign, {}), pointer);
  expect_refused(ErrorKind::double_free, [&] { return door.deallocate(pointer, 1000); });
  EXPECT_TRUE(other.deallocate(pointer, 64));
}

TEST_F(RawDoorMisuse, a_million_misuses_cost_no_memory_and_no_books) {
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  const std::uint64_t before = misuse_count();
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(door.deallocate(pointer, 1));
  EXPECT_EQ(misuse_count(), before + 1000);
  EXPECT_LE(misuse_reports().size(), 10U);
  EXPECT_EQ(free_failures(scripted.manager, ErrorKind::wrong_size), 1000U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 1000U);
  EXPECT_TRUE(door.deallocate(pointer, 1000));
}

// What a fresh process reports; exits 0 when all is as it should be.
void misuse_twelve_times_and_exit() {
  auto manager = null_manager(MemoryBudget::unlimited(), "reporting");
  auto door = door_on(manager);
  bool good = misuse_reports().empty() && misuse_count() == 0;
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  good = good && !door.deallocate(pointer, 7);
  good = good && door.deallocate(pointer, 1000);
  for (int i = 0; i < 11; ++i) good = good && !door.deallocate(pointer, kUnknownBytes);
  const auto reports = misuse_reports();
  good = good && reports.size() == 10 && misuse_count() == 12;
  const auto me = static_cast<std::uint32_t>(gettid());
  const auto here = [](std::string const& site) { return site.find("raw_door_misuse_test.cpp") != std::string::npos; };
  MisuseReport const& size = reports.at(0);
  good = good && size.kind == ErrorKind::wrong_size && size.pointer == pointer && size.bytes_given == 7U &&
         size.bytes_recorded == 1000U && size.manager == "reporting" && size.thread == me && size.allocation_thread == me &&
         here(size.site) && here(size.allocation_site) && !size.first_free_thread;
  MisuseReport const& twice = reports.at(1);
  good = good && twice.kind == ErrorKind::double_free && twice.pointer == pointer && !twice.bytes_given &&
         twice.bytes_recorded == 1000U && twice.first_free_thread == me && here(twice.first_free_site) &&
         here(twice.allocation_site) && twice.sentence.find("freed first by") != std::string::npos;
  _exit(good ? 0 : 1);
}

class MisuseReports : public ::testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, from the start
    unsetenv("HEADROOM_QUIET");
    setenv("HEADROOM_FLIGHT", "off", 1);  // it ends without goodbye, and would leave a file that looks like a killed program's
  }
  void TearDown() override {
    unsetenv("HEADROOM_QUIET");
    unsetenv("HEADROOM_FLIGHT");
  }
};

TEST_F(MisuseReports, the_first_ten_are_kept_in_full_and_told_on_stderr) {
  const auto ten_lines = ::testing::ResultOf(
      [](std::string const& text) {
        std::size_t lines = 0;
        for (auto at = text.find("headroom: "); at != std::string::npos; at = text.find("headroom: ", at + 1)) ++lines;
        return lines;
      },
      10U);
  EXPECT_EXIT(misuse_twelve_times_and_exit(), ::testing::ExitedWithCode(0),
              ::testing::AllOf(::testing::HasSubstr("headroom: wrong_size: the block at 0x"),
                               ::testing::HasSubstr("headroom: double_free: 0x"), ten_lines));
}

TEST_F(MisuseReports, can_be_silenced) {
  setenv("HEADROOM_QUIET", "1", 1);
  EXPECT_EXIT(misuse_twelve_times_and_exit(), ::testing::ExitedWithCode(0), ::testing::Not(::testing::HasSubstr("headroom:")));
}

}  // namespace
}  // namespace headroom::test
