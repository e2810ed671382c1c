// check_flight(): nothing to say about sound files, and the byte of every kind of damage that reading only mends.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/flight_check.hpp>

#include "flight/failure_key.hpp"
#include "flight/hook_cells.hpp"
#include "flight_builder.hpp"
#include "managers.hpp"

namespace headroom::flight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A file with a ledger in cell 0 (name 1), a tag (name 2), a block of 100 bytes of it, and records.
class CheckFlight : public ::testing::Test {
protected:
  CheckFlight() {
    auto& ledger = file.open_ledger(0, 1, "pool");
    file.put_name(2, EntryKind::tag, 1, 5, "weights");
    ledger.claim = 100;
    ledger.alloc = 100;
    ledger.peak = 100;
    file.header().clock_source = static_cast<std::uint32_t>(ClockSource::monotonic);
    auto& slot = file.slot(3);
    slot.address = 0x1000;
    slot.bytes = 100;
    slot.tag_ledger = 2;
    slot.state = pack_slot(1, SlotState::live, false);
    for (std::uint64_t i = 0; i < 20; ++i) file.write(0, Ring::main, record(EventKind::allocate, i));
    file.write(0, Ring::journal, record(EventKind::mark, 1));
    file.header().lanes_used = 1;
  }

  [[nodiscard]] FlightCheck check(bool dead = true, std::size_t most = 20) {
    return check_flight(file.view(), {.most_findings = most, .dead = dead});
  }
  [[nodiscard]] std::uint64_t offset_of(void const* word) {
    return static_cast<std::uint64_t>(static_cast<std::byte const*>(word) - file.bytes().data());
  }
  /// Exactly one finding: at `word`, with these words.
  void expect_finding(void const* word, std::string const& text) {
    auto const result = check();
    ASSERT_EQ(result.found, 1U) << testing::PrintToString(texts(result));
    EXPECT_EQ(result.findings[0].text, text);
    EXPECT_EQ(result.findings[0].offset, offset_of(word));
  }
  [[nodiscard]] static std::vector<std::string> texts(FlightCheck const& result) {
    std::vector<std::string> found;
    for (auto const& finding : result.findings) found.push_back(finding.text);
    return found;
  }

  FlightBuilder file;
};

TEST_F(CheckFlight, says_what_it_looked_at_and_nothing_more_about_a_sound_file) {
  for (bool const dead : {false, true}) {
    auto const result = check(dead);
    EXPECT_THAT(texts(result), IsEmpty());
    EXPECT_EQ(result.found, 0U);
    EXPECT_EQ(result.quiet, dead);
    EXPECT_EQ(result.names, 2U);
    EXPECT_EQ(result.ledgers, 1U);
    EXPECT_EQ(result.live_allocations, 1U);
    // Rings of 8 and blocks of 2: of 20 records a living reader gets the newest 8 (nothing is announced beyond them), and of a dead
    // one 7, since the eighth place is the one that may be torn; and one of the journal.
    EXPECT_EQ(result.records, dead ? 8U : 9U);
  }
}

TEST_F(CheckFlight, an_empty_file_is_sound) {
  FlightBuilder empty;
  empty.header().clock_source = 2;
  EXPECT_EQ(check_flight(empty.view(), {.dead = true}).found, 0U);
}

TEST_F(CheckFlight, states_and_counts_of_the_header) {
  file.header().state = 5;
  expect_finding(&file.header().state, "the process state is 5; expected at most 4");
  file.header().state = 1;
  file.header().exporter_port = 65'536;
  expect_finding(&file.header().exporter_port, "the exporter's port is 65536; expected at most 65535");
  file.header().exporter_port = 0;
  file.header().clock_source = 0;
  expect_finding(&file.header().clock_source, "the clock is of kind 0; expected 1 to 3");
  file.header().clock_source = 1;
  file.header().ticks_per_second = 0;
  expect_finding(&file.header().ticks_per_second, "the clock has 0 ticks a second; expected its frequency");
}

TEST_F(CheckFlight, texts_are_whole_utf8_that_ends) {
  std::memset(file.header().program, 'x', sizeof file.header().program);
  auto const result = check();
  ASSERT_EQ(result.found, 1U);
  EXPECT_THAT(result.findings[0].text, HasSubstr("the program's name is 'xxx"));
  EXPECT_THAT(result.findings[0].text, HasSubstr("without an end; expected a zero at its end"));
  std::memset(file.header().program, 0, sizeof file.header().program);
  file.header().host[0] = '\xFF';
  expect_finding(file.header().host, "the host's name is '\\xff'; expected valid UTF-8");
}

TEST_F(CheckFlight, a_sites_label_may_be_in_any_encoding_and_must_end) {
  file.put_name(3, EntryKind::site, 0, 12,
                "src/gr\xFC\xDF"
                "e.cpp:12 main");  // Latin-1
  EXPECT_EQ(check().found, 0U);
  file.put_name(4, EntryKind::tag, 1, 6,
                "gr\xFC\xDF"
                "e");
  expect_finding(file.name(4).label, "name 4: the label is 'gr\\xfc\\xdfe'; expected valid UTF-8");
  file.put_name(4, EntryKind::tag, 1, 6, "weights");
  file.put_name(3, EntryKind::site, 0, 12, std::string(kLabelBytes, 'x'));
  auto const result = check();
  ASSERT_EQ(result.found, 1U);
  EXPECT_THAT(result.findings[0].text, HasSubstr("without an end; expected a zero at its end"));
}

TEST_F(CheckFlight, names_lead_somewhere) {
  file.name(2).parent = 9;
  expect_finding(&file.name(2).parent, "name 2: the parent is 9; expected a name below 3");
  file.name(2).parent = 1;
  file.name(2).number = kTagCells;
  expect_finding(&file.name(2).number, "name 2: the cell is 256; expected one below 256");
  file.name(2).number = 5;
  file.name(2).state = pack_entry(1, static_cast<EntryKind>(200), EntryState::open);
  expect_finding(&file.name(2).state, "name 2: the kind is 200; expected 1 to 7");
}

TEST_F(CheckFlight, a_name_that_was_being_written_is_no_finding) {
  file.name(2).state = pack_entry(1, static_cast<EntryKind>(200), EntryState::writing);
  EXPECT_EQ(check().found, 0U);
}

TEST_F(CheckFlight, the_books_of_the_dead_balance) {
  file.ledger(0).claim = 90;
  auto const result = check();
  EXPECT_THAT(texts(result),
              ElementsAre("ledger 0: claimed 90 bytes; expected at least the 100 allocated",
                          "ledger 0: claimed 90 bytes; expected 100 (100 live, 0 reserved) and at most 0 in flight "
                          "beside"));
  EXPECT_EQ(result.findings[0].offset, offset_of(&file.ledger(0).claim));
  EXPECT_EQ(check(false).found, 0U) << "of the living the words are seen at different instants";
  file.ledger(0).claim = 107;
  expect_finding(&file.ledger(0).claim,
                 "ledger 0: claimed 107 bytes; expected 100 (100 live, 0 reserved) and at most 0 in flight beside");
  file.ledger(0).unspent = 7;
  EXPECT_EQ(check().found, 0U) << "reserved";
  file.ledger(0).unspent = 0;
  file.lane(0).header.in_flight = pack_in_flight(InFlight::allocating, 0, 7);
  EXPECT_EQ(check().found, 0U) << "claimed by the operation in flight";
  file.lane(0).header.in_flight = pack_in_flight(InFlight::allocating, 1, 7);
  EXPECT_EQ(check().found, 1U) << "that one is of another ledger";
}

TEST_F(CheckFlight, peak_and_allocated_are_large_enough) {
  file.ledger(0).peak = 99;
  expect_finding(&file.ledger(0).peak, "ledger 0: a peak of 99 bytes; expected at least the 100 allocated");
  file.ledger(0).peak = 100;
  file.slot(3).bytes = 101;
  file.ledger(0).claim = 101;
  expect_finding(&file.ledger(0).alloc, "ledger 0: allocated 100 bytes; expected at least the 101 of its live allocations");
}

TEST_F(CheckFlight, ledgers_and_slots_hold_what_can_be) {
  file.ledger(0).pressure = 5;
  expect_finding(&file.ledger(0).pressure, "ledger 0: the pressure level is 5; expected at most 4");
  file.ledger(0).pressure = 0;
  file.ledger(0).directory_id = 40;
  expect_finding(&file.ledger(0).directory_id, "ledger 0: its own name is name 40; expected one below 3, or 0");
  file.ledger(0).directory_id = 1;
  file.ledger(1).state = 7;
  expect_finding(&file.ledger(1).state, "ledger 1: the state is 7; expected at most 2");
  file.ledger(1).state = 0;
  file.slot(3).site_thread = std::uint64_t{77} << 32;
  expect_finding(&file.slot(3).site_thread, "live slot 3: the site is name 77; expected one below 3, or 0");
  file.slot(3).site_thread = 0;
  file.slot(4).bytes = 1;
  file.slot(4).tag_ledger = std::uint64_t{2} << 16;
  file.slot(4).state = pack_slot(1, SlotState::live, false);
  expect_finding(&file.slot(4).tag_ledger, "live slot 4: the ledger is 2, which is free; expected one that is open or closed");
  file.slot(4).state = pack_slot(1, SlotState::live, true);
  EXPECT_EQ(check().found, 0U) << "being written";
}

TEST_F(CheckFlight, records_are_where_they_must_be) {
  file.ring(0, Ring::main)[3 * 8] += 1;  // slot 3 holds record 19
  expect_finding(&file.ring(0, Ring::main)[3 * 8],
                 "lane 0, main ring: record 19 carries the number 20 and kind 1; expected its own number, and a kind above 0");
  file.ring(0, Ring::main)[3 * 8] -= 1;
  file.ring(0, Ring::main)[3 * 8] += std::uint64_t{16} << 56;  // kind 17 belongs in the journal
  expect_finding(&file.ring(0, Ring::main)[3 * 8],
                 "lane 0, main ring: record 19 is of kind 17; expected one that the format knows in this ring");
  file.ring(0, Ring::main)[3 * 8] -= std::uint64_t{16} << 56;
  file.ring_words(0, Ring::journal).reserve = 0;
  expect_finding(&file.ring_words(0, Ring::journal).reserve,
                 "lane 0, journal ring: announced up to record 0; expected at least the 1 that were written");
}

TEST_F(CheckFlight, kinds_of_a_later_minor_version_are_believed) {
  file.write(0, Ring::journal, record(static_cast<EventKind>(90), 1));
  EXPECT_EQ(check().found, 1U);
  file.header().abi_minor = kAbiMinor + 1;
  EXPECT_EQ(check().found, 0U);
}

TEST_F(CheckFlight, hooks_failures_and_clock) {
  file.hook(1).directory_id = 2;
  expect_finding(&file.hook(1).directory_id, "hook 1: the name is 2; expected that of a hook");
  file.hook(1).directory_id = 0;
  file.failure(0).ready = 1;
  file.failure(0).key = pack_failure_key(0, static_cast<ErrorKind>(99), Layer::manager);
  expect_finding(&file.failure(0).key,
                 "first failure 0: the kind of error is 99; expected at most " + std::to_string(kErrorKindCount - 1));
  file.failure(0).ready = 0;
  file.sync(2).number = 2;
  expect_finding(&file.sync(2).number, "clock sync 2 has the number 1; expected one that is 2 modulo " +
                                           std::to_string(file.region(Region::clock_syncs).count));
}

TEST_F(CheckFlight, keeps_the_first_findings_and_counts_all) {
  for (std::uint32_t i = 10; i < 15; ++i) {
    file.ledger(i).state = 9;
    file.ledger(i).claim = 0;
  }
  auto const result = check(true, 2);
  EXPECT_GE(result.found, 5U);
  EXPECT_EQ(result.findings.size(), 2U);
}

TEST_F(CheckFlight, this_process_is_sound_while_it_works) {
  auto manager = test::null_manager(MemoryBudget::with_limit(1 << 20));
  auto const block = manager.alloc<std::byte>(1000);
  ASSERT_TRUE(block.has_value());
  auto const view = FlightView::of_this_process();
  ASSERT_TRUE(view.has_value());
  auto const result = check_flight(*view, {});
  EXPECT_THAT(texts(result), IsEmpty());
  EXPECT_FALSE(result.quiet);
  EXPECT_GE(result.ledgers, 1U);
}

TEST_F(CheckFlight, a_manager_that_went_after_its_last_block_is_no_finding) {
  file.slot(4).bytes = 100;
  file.slot(4).tag_ledger = std::uint64_t{1} << 16;
  std::atomic<bool> done{false};  // written by the checker, read by the other thread; relaxed: nothing hangs on it
  std::thread changing{[&] {
    // Everything stands for a while, each time another one.
    auto const rest = [&](std::uint64_t loads) {
      for (; loads != 0; --loads) static_cast<void>(file.slot(4).state.load());
    };
    for (std::uint64_t generation = 1; !done.load(std::memory_order_relaxed); ++generation) {
      file.ledger(1).state = static_cast<std::uint64_t>(LedgerState::open);
      file.slot(4).state = pack_slot(generation, SlotState::live, false);
      rest(generation * 7 % 509);
      file.slot(4).state = pack_slot(generation, SlotState::free, false);
      file.ledger(1).state = static_cast<std::uint64_t>(LedgerState::free);
      rest(generation * 11 % 509);
    }
  }};
  std::vector<std::string> found;
  auto const view = file.view();
  for (int i = 0; i < 5000; ++i) {
    for (auto const& finding : check_flight(view, {.most_findings = 3, .dead = false}).findings) found.push_back(finding.text);
  }
  done.store(true, std::memory_order_relaxed);
  changing.join();
  EXPECT_THAT(found, IsEmpty());
}

// Names, managers, their blocks and hooks come and go while the file is read: none of it is damage.
TEST(CheckFlightOfTheLiving, has_no_findings_while_everything_changes) {
  auto keep = test::null_manager(MemoryBudget::unlimited());
  std::vector<TrackedBuffer<std::byte>> kept;  // so that younger blocks lie further behind in the table, and are looked at later
  for (int i = 0; i < 20'000; ++i) kept.push_back(keep.alloc<std::byte>(1).value());
  auto const view = FlightView::of_this_process().value();
  constexpr int kThreads = 3;
  constexpr int kManagers = 700;  // more names than the directory has entries: it is used up, and used again
  constexpr int kPerCheck =
      20;  // that many at most while one check goes on: checks see names being made until there is no more room
  std::atomic<int> working{kThreads};  // written by every worker at its end, release; read by the checker, acquire
  std::atomic<int> checks{0};          // written by the checker, read by the workers; relaxed: only a count
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kManagers; ++i) {
        while (i > kPerCheck * (checks.load(std::memory_order_relaxed) + 1)) std::this_thread::yield();
        auto manager = test::null_manager(MemoryBudget::unlimited());
        auto const tag = AllocTag{"check-" + std::to_string(t) + "-" + std::to_string(i % 150)};
        auto const hook = take_hook_cell(0, "check-hook-" + std::to_string(t), 0);
        auto const first = manager.alloc<std::byte>(100, tag);
        auto const second = manager.alloc<std::byte>(200);
        EXPECT_TRUE(first && second);
        give_hook_cell_back(hook);
      }
      working.fetch_sub(1, std::memory_order_release);
    });
  }
  std::vector<std::string> found;
  do {
    for (auto const& finding : check_flight(view, {.most_findings = 3, .dead = std::nullopt}).findings) {
      if (found.size() < 20) found.push_back(finding.text);
    }
    checks.fetch_add(1, std::memory_order_relaxed);
  } while (working.load(std::memory_order_acquire) != 0);
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(found, IsEmpty()) << "in " << checks << " checks";
  EXPECT_EQ(check_flight(view, {}).found, 0U);
}

}  // namespace
}  // namespace headroom::flight
