// What a view says about ledgers, tags and live allocations, with sums worked out by hand.
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight/book_readers.hpp"
#include "flight/failure_key.hpp"
#include "flight_builder.hpp"
#include "hooked_atomics.hpp"

namespace headroom::flight {
namespace {

constexpr std::uint64_t word_of(std::uint64_t number, std::uint64_t bytes) { return number * kNumberOne + bytes; }

TEST(FlightLedgers, only_open_ones_and_closed_ones_with_bytes) {
  FlightBuilder file;
  file.open_ledger(0, 1, "open");
  file.open_ledger(3, 2, "closed, empty").state = static_cast<std::uint64_t>(LedgerState::closed);
  file.ledger(3).claim = word_of(7, 0);
  file.open_ledger(4, 3, "closed, 5 bytes live").state = static_cast<std::uint64_t>(LedgerState::closed);
  file.ledger(4).claim = word_of(9, 5);
  file.ledger(5).state = 77;  // no state of ours
  auto const ledgers = file.view().ledgers();
  ASSERT_EQ(ledgers.size(), 2U);
  EXPECT_EQ(ledgers[0].name, "open");
  EXPECT_EQ(ledgers[1].name, "closed, 5 bytes live");
  EXPECT_EQ(ledgers[1].state, LedgerState::closed);
  EXPECT_EQ(ledgers[1].cell, 4U);
}

TEST(FlightLedgers, figures_are_unpacked) {
  FlightBuilder file;
  auto& cell = file.open_ledger(1, 5, "manager");
  file.put_name(6, EntryKind::device, 0, 3, "H200");
  cell.device_id = 6;
  cell.claim = word_of(20, 900);
  cell.alloc = word_of(11, 700);
  cell.peak = word_of(8, 800);
  cell.limit = 1000 | kLimitEnforcing;
  cell.unspent = 150;
  cell.unspent_reservations = 2;
  cell.pressure = (std::uint64_t{12} << 8) | 3;
  cell.device_total = 5001;  // + 1
  cell.device_outside = 1;   // 0 bytes, known
  cell.sentinel_bytes = 64;
  cell.generation = 4;
  cell.created_ticks = 1234;
  file.tallies(1).refusals[0][1] = 5;    // over_budget by manager
  file.tallies(1).refusals[14][6] = 2;   // parse by guard: the last of both
  file.tallies(1).refusals[15][7] = 99;  // no kind and no layer of ours
  file.tallies(1).free_failures[8] = 3;
  file.tallies(1).transitions[1][4] = 6;
  auto const ledgers = file.view().ledgers();
  ASSERT_EQ(ledgers.size(), 1U);
  auto const& ledger = ledgers[0];
  EXPECT_EQ(ledger.claimed, 900U);
  EXPECT_EQ(ledger.allocated, 700U);
  EXPECT_EQ(ledger.peak, 800U);
  EXPECT_EQ(ledger.limit, 1000U);
  EXPECT_TRUE(ledger.enforcing);
  EXPECT_EQ(ledger.remaining(), 100U);
  EXPECT_EQ(ledger.over_budget(), 0U);
  EXPECT_EQ(ledger.unspent, 150U);
  EXPECT_EQ(ledger.unspent_reservations, 2U);
  EXPECT_EQ(ledger.pressure, PressureLevel::high);
  EXPECT_EQ(ledger.pressure_sequence, 12U);
  EXPECT_EQ(ledger.device_total, 5000U);
  EXPECT_FALSE(ledger.device_free.has_value());
  EXPECT_EQ(ledger.device_outside, 0U);
  EXPECT_EQ(ledger.device_name, "H200");
  EXPECT_EQ(ledger.device_ordinal, 3);
  EXPECT_EQ(ledger.sentinel_bytes, 64U);
  EXPECT_EQ(ledger.generation, 4U);
  EXPECT_EQ(ledger.created_ticks, 1234U);
  EXPECT_EQ(ledger.operation_number, 11U);
  EXPECT_EQ(ledger.refusals[0][1], 5U);
  EXPECT_EQ(ledger.refusals[14][6], 2U);
  EXPECT_EQ(ledger.failures(), 7U);
  EXPECT_EQ(ledger.free_failures[8], 3U);
  EXPECT_EQ(ledger.transitions[1][4], 6U);
}

TEST(FlightLedgers, a_device_has_a_uuid_and_an_address_where_they_are_known) {
  FlightBuilder file;
  file.open_ledger(1, 5, "manager").device_id = 6;
  file.put_name(6, EntryKind::device, 0, 3, "H200\tGPU-1234");
  auto ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.device_name, "H200");
  EXPECT_EQ(ledger.device_uuid, "GPU-1234");
  EXPECT_EQ(ledger.device_pci_address, "") << "as in files of minor version 1";
  file.name(6).payload = DevicePayload::pack(1, 0xC0DE'AF0AU);  // domain c0de, bus af, device 1, function 2
  ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.device_pci_address, "c0de:af:01.2");
  file.name(6).payload = ~std::uint64_t{0};  // hostile: all bits
  EXPECT_EQ(file.view().ledgers().at(0).device_pci_address, "ffffffff:ff:1f.7");
}

TEST(FlightLedgers, limits_lowered_below_use_and_observing_ones) {
  FlightBuilder file;
  auto& cell = file.open_ledger(0, 1, "m");
  cell.claim = 900;
  cell.limit = 600;  // neither enforcing nor none: observed
  auto ledger = file.view().ledgers().at(0);
  EXPECT_FALSE(ledger.enforcing);
  EXPECT_EQ(ledger.remaining(), 0U);
  EXPECT_EQ(ledger.over_budget(), 300U);
  cell.limit = kLimitNone;
  ledger = file.view().ledgers().at(0);
  EXPECT_TRUE(ledger.enforcing);
  EXPECT_FALSE(ledger.limit.has_value());
  EXPECT_FALSE(ledger.remaining().has_value());
  EXPECT_EQ(ledger.over_budget(), 0U);
}

TEST(FlightLedgers, hostile_words_keep_allocated_below_claimed_and_peak) {
  FlightBuilder file;
  auto& cell = file.open_ledger(0, 1, "m");
  cell.claim = word_of(3, 10);
  cell.alloc = word_of(1, 50);
  cell.peak = word_of(1, 20);
  cell.pressure = 0xFF;
  cell.directory_id = ~std::uint64_t{0};
  cell.device_id = 9999;
  auto const ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.claimed, 50U);
  EXPECT_EQ(ledger.allocated, 50U);
  EXPECT_EQ(ledger.peak, 50U);
  EXPECT_EQ(ledger.pressure, PressureLevel::critical);
  EXPECT_EQ(ledger.name, "");
  EXPECT_EQ(ledger.device_ordinal, -1);
  EXPECT_EQ(file.view().words(64).claimed, 0U) << "no such cell";
}

TEST(FlightLedgers, counters_are_lanes_and_overflow_less_the_base) {
  FlightBuilder file;
  file.open_ledger(2, 1, "m");
  file.header().lanes_used = 3;
  file.lane(0).counters[2].allocations = 100;
  file.lane(2).counters[2].allocations = 20;
  file.lane(3).counters[2].allocations = 5000;  // beyond lanes_used
  file.overflow().counters[2].allocations = 3;
  file.ledger_base(2).allocations = 13;  // 123 − 13 = 110
  file.lane(1).counters[2].frees = 90;
  file.ledger_base(2).frees = 10;  // 80
  file.lane(1).counters[2].size_histogram[47] = 7;
  file.overflow().counters[2].size_histogram[47] = 5;
  file.ledger_base(2).size_histogram[47] = 2;
  file.ledger_base(2).use_histogram[63] = 1;  // more than there is: shown as 0, not as 2^64 − 1
  auto const ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.counters.allocations, 110U);
  EXPECT_EQ(ledger.counters.frees, 80U);
  EXPECT_EQ(ledger.live_allocations, 30U);
  EXPECT_EQ(ledger.counters.size_histogram[47], 10U);
  EXPECT_EQ(ledger.counters.use_histogram[63], 0U);
}

TEST(FlightLedgers, from_the_ninth_on_only_the_overflow_block_counts) {
  FlightBuilder file;
  file.open_ledger(8, 1, "ninth");
  file.header().lanes_used = ~std::uint64_t{0};  // hostile: clamped to the lanes there are
  file.overflow().counters[8].allocations = 40;
  file.overflow().counters[8].frees = 41;
  auto const ledger = file.view().ledgers().at(0);
  EXPECT_EQ(ledger.counters.allocations, 40U);
  EXPECT_EQ(ledger.live_allocations, 0U) << "more frees than allocations is no count";
}

TEST(FlightTags, are_one_for_each_tag_cell_whatever_the_directory_says) {
  FlightBuilder file;
  file.open_ledger(0, 1, "m");
  file.put_name(2, EntryKind::tag, 1, 10, "weights", EntryState::closed);
  file.put_name(3, EntryKind::tag, 1, 10, "weights again");
  file.put_name(4, EntryKind::tag, 1, 10, "and again");
  file.put_name(5, EntryKind::tag, 1, 11, "cache");
  file.overflow().tags[10].bytes = 70;
  auto const tags = file.view().ledgers().at(0).tags;
  ASSERT_EQ(tags.size(), 2U);
  EXPECT_EQ(tags[0].name, "weights again") << "an open one before a closed one, and of two the first";
  EXPECT_EQ(tags[0].bytes, 70U);
  EXPECT_EQ(tags[1].name, "cache");
}

TEST(FlightTags, sums_over_lanes_largest_first) {
  FlightBuilder file;
  auto& cell = file.open_ledger(0, 1, "m");
  file.open_ledger(1, 2, "another manager");
  file.put_name(3, EntryKind::tag, 1, 10, "weights");
  file.put_name(4, EntryKind::tag, 1, 11, "kv-cache");
  file.put_name(5, EntryKind::tag, 2, 12, "not ours");
  file.put_name(6, EntryKind::tag, 1, 256, "no such cell");
  file.put_name(7, EntryKind::tag, 1, 13, "of a former owner", EntryState::closed);
  file.put_name(8, EntryKind::tag, 1, 14, "negative");
  cell.peak = word_of(5, 1000);
  file.header().lanes_used = 2;
  auto const put = [&](std::uint32_t lane, std::uint32_t tag, std::uint64_t bytes, std::uint64_t at_peak, std::uint64_t seen) {
    auto& into = file.lane(lane).tags[tag];
    into.bytes = bytes;
    into.at_peak = at_peak;
    into.peak_seen = seen;
    into.allocations = 4;
  };
  // weights: 300 on lane 0 since the peak (500 then), −100 on lane 1, unchanged since the peak: 200 now, 400 at the peak.
  put(0, 10, 300, 500, word_of(5, 1000));
  put(1, 10, std::uint64_t{0} - 100, 77, word_of(4, 900));
  // kv-cache: 250 in overflow only, unchanged since the peak.
  file.overflow().tags[11].bytes = 257;
  file.tag_base(11).bytes = 7;  // left by the tag that had the cell before
  file.overflow().tags[11].allocations = 9;
  file.overflow().tags[11].peak_seen = word_of(1, 1);
  put(0, 14, std::uint64_t{0} - 8, 0, 1);
  file.tag_base(10).allocations = 3;
  auto const tags = file.view().ledgers().at(0).tags;
  ASSERT_EQ(tags.size(), 3U);
  EXPECT_EQ(tags[0].name, "kv-cache");
  EXPECT_EQ(tags[0].bytes, 250U);
  EXPECT_EQ(tags[0].at_peak_bytes, 250U);
  EXPECT_EQ(tags[0].allocations, 9U);
  EXPECT_EQ(tags[1].name, "weights");
  EXPECT_EQ(tags[1].id, 3U);
  EXPECT_EQ(tags[1].bytes, 200U);
  EXPECT_EQ(tags[1].at_peak_bytes, 400U);
  EXPECT_EQ(tags[1].allocations, 5U);
  EXPECT_EQ(tags[2].bytes, 0U);
}

class BookReaders : public ::testing::Test {
protected:
  ~BookReaders() override { Hooked::before_load = nullptr; }
  Word claim{word_of(1, 100)}, alloc{word_of(1, 100)}, peak{word_of(1, 100)};
};

TEST_F(BookReaders, an_allocation_between_the_two_loads_is_read_again) {
  // Claim was loaded as 100; then a whole allocation of 50 happens. Two plain loads would show 150 allocated of 100 claimed.
  bool done = false;
  Hooked::before_load = [&](Word const* word) {
    if (word != &alloc || std::exchange(done, true)) return;
    claim += kNumberOne + 50;
    alloc += kNumberOne + 50;
    peak = word_of(2, 150);
  };
  auto const bytes = read_ledger_bytes<Hooked>(claim, alloc, peak);
  EXPECT_EQ(bytes.claimed, 150U);
  EXPECT_EQ(bytes.allocated, 150U);
  EXPECT_EQ(bytes.peak, 150U);
}

TEST_F(BookReaders, a_claim_that_returns_to_its_bytes_still_has_another_version) {
  int loads = 0;
  Hooked::before_load = [&](Word const* word) {
    if (word != &alloc) return;
    if (++loads == 1) claim += kNumberOne;  // claimed and rolled back meanwhile
  };
  EXPECT_EQ(read_ledger_bytes<Hooked>(claim, alloc, peak).claimed, 100U);
  EXPECT_EQ(loads, 2);
}

TEST_F(BookReaders, gives_up_after_64_tries_and_shows_the_larger) {
  int loads = 0;
  Hooked::before_load = [&](Word const* word) {
    if (word != &alloc) return;
    ++loads;
    claim += kNumberOne;
    alloc = word_of(9, 130);
  };
  auto const bytes = read_ledger_bytes<Hooked>(claim, alloc, peak);
  EXPECT_EQ(loads, 64);
  EXPECT_EQ(bytes.allocated, 130U);
  EXPECT_EQ(bytes.claimed, 130U);
  EXPECT_EQ(bytes.peak, 130U) << "peak was not raised yet";
}

TEST_F(BookReaders, at_peak_is_right_wherever_the_first_change_after_a_peak_falls) {
  // The cell held 70 when the peak was set; its writer then goes to 90. Every interleaving of that must show 70 at the peak.
  for (int when = 0; when <= 3; ++when) {
    for (int stores = 0; stores <= 3; ++stores) {
      TagCell cell{};
      cell.bytes = 70;
      cell.at_peak = 11;
      cell.peak_seen = word_of(1, 1);
      auto const act = [&] {
        if (stores > 0) cell.at_peak = 70;
        if (stores > 1) cell.peak_seen = peak.load();
        if (stores > 2) cell.bytes = 90;
      };
      int loads = 0;
      Hooked::before_load = [&](Word const*) {
        if (loads++ == when) act();
      };
      EXPECT_EQ(read_tag_bytes<Hooked>(cell, peak.load()).at_peak, 70U) << stores << " stores before load " << when;
    }
  }
}

TEST_F(BookReaders, a_guard_that_changed_throws_the_copy_away) {
  Word guard{10}, first{1}, second{1};
  bool done = false;
  std::uint64_t copied_first = 0, copied_second = 0;
  Hooked::before_load = [&](Word const* word) {
    if (word != &second || std::exchange(done, true)) return;
    guard = 12;  // a whole write between the copies of the two fields
    first = 2;
    second = 2;
  };
  auto const judge = [](std::uint64_t state) { return (state & 1U) != 0 ? GuardSays::writing : GuardSays::readable; };
  auto const copy = [&](std::uint64_t) {
    copied_first = Hooked::load_acquire(first);
    copied_second = Hooked::load_acquire(second);
  };
  EXPECT_EQ(read_guarded<Hooked>(guard, judge, copy), GuardedRead::whole);
  EXPECT_EQ(copied_first, 2U) << "1 and 2 would be a mixture";
  EXPECT_EQ(copied_second, 2U);
  guard = 13;
  EXPECT_EQ(read_guarded<Hooked>(guard, judge, copy), GuardedRead::busy);
}

TEST(FlightLive, shows_live_freeing_and_failed_and_skips_what_is_being_written) {
  FlightBuilder file;
  file.slot(0).state = pack_slot(3, SlotState::live, false);
  file.slot(0).address = 0xABC0;
  file.slot(0).bytes = 4096;
  file.slot(0).tag_ledger = 7 | (std::uint64_t{2} << 16) | (std::uint64_t{8} << 28);
  file.slot(0).site_thread = (std::uint64_t{21} << 32) | 1234;
  file.slot(0).operation = word_of(5, 4096);
  file.slot(1).state = pack_slot(1, SlotState::live, true);
  file.slot(2).state = pack_slot(1, SlotState::freeing, false);
  file.slot(3).state = pack_slot(1, SlotState::failed, false);
  file.slot(4).state = pack_slot(1, SlotState::free, false);
  file.slot(5).state = pack_slot(1, static_cast<SlotState>(7), false);
  std::vector<LiveAllocation> live;
  EXPECT_EQ(file.view().for_each_live([&](LiveAllocation const& allocation) { live.push_back(allocation); }), 1U);
  ASSERT_EQ(live.size(), 3U);
  EXPECT_EQ(live[0].generation, 3U);
  EXPECT_EQ(live[0].address, 0xABC0U);
  EXPECT_EQ(live[0].bytes, 4096U);
  EXPECT_EQ(live[0].tag, 7U);
  EXPECT_EQ(live[0].ledger, 2U);
  EXPECT_EQ(live[0].alignment, 256U);
  EXPECT_EQ(live[0].site, 21U);
  EXPECT_EQ(live[0].thread, 1234U);
  EXPECT_EQ(live[1].state, SlotState::freeing);
  EXPECT_EQ(live[2].state, SlotState::failed);
}

TEST(FlightInFlight, names_the_thread_and_counts_for_the_device_account_too) {
  FlightBuilder file;
  file.open_ledger(0, 1, "m").parent_cell = 2;  // 1 + cell 1
  file.open_ledger(1, 2, "account");
  file.header().lanes_used = 3;
  auto& lane = file.lane(1).header;
  lane.owner = 778;
  lane.thread_name[0] = 0x72656b726f77;  // "worker"
  lane.in_flight_ticks = 55;
  lane.in_flight = pack_in_flight(InFlight::freeing, 0, 640);
  file.lane(2).header.in_flight = std::uint64_t{15} << 60;  // no operation of ours
  file.ledger(0).in_flight_shared = 8;
  auto const operations = file.view().in_flight();
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].lane, 1U);
  EXPECT_EQ(operations[0].thread, 777U);
  EXPECT_EQ(operations[0].thread_name, "worker");
  EXPECT_EQ(operations[0].operation, InFlight::freeing);
  EXPECT_EQ(operations[0].bytes, 640U);
  EXPECT_EQ(operations[0].since_ticks, 55U);
  auto const ledgers = file.view().ledgers();
  EXPECT_EQ(ledgers.at(0).in_flight_bytes, 648U);
  EXPECT_EQ(ledgers.at(1).in_flight_bytes, 648U);
}

TEST(FlightDeviceAccount, is_told_from_its_managers_and_shows_pending_frees) {
  FlightBuilder file;
  file.open_ledger(0, 1, "m").parent_cell = 2;  // 1 + cell 1
  file.open_ledger(1, 2, "account");
  auto& account = file.ledger(1);
  account.kind = 1;
  account.claim = 900;
  account.alloc = 800;
  account.pending_free_bytes = 300;
  file.ledger(0).pending_free_bytes = 5;  // a manager has none
  auto ledgers = file.view().ledgers();
  EXPECT_FALSE(ledgers.at(0).is_device_account);
  EXPECT_EQ(ledgers.at(0).parent_cell, 1U);
  EXPECT_EQ(ledgers.at(0).pending_free_bytes, 0U);
  EXPECT_TRUE(ledgers.at(1).is_device_account);
  EXPECT_EQ(ledgers.at(1).parent_cell, std::nullopt);
  EXPECT_EQ(ledgers.at(1).pending_free_bytes, 300U);
  // Never more than what is allocated, whatever the word says; and a parent is a cell or none.
  account.pending_free_bytes = ~std::uint64_t{0};
  file.ledger(0).parent_cell = 65;
  ledgers = file.view().ledgers();
  EXPECT_EQ(ledgers.at(1).pending_free_bytes, 800U);
  EXPECT_EQ(ledgers.at(0).parent_cell, std::nullopt);
}

TEST(FlightDeviceAccount, counts_its_own_operations_and_those_of_its_managers_once_each) {
  FlightBuilder file;
  file.open_ledger(0, 1, "m").parent_cell = 3;  // 1 + cell 2
  file.open_ledger(1, 2, "n").parent_cell = 3;
  file.open_ledger(2, 3, "account").kind = 1;
  file.open_ledger(3, 4, "stranger");
  file.header().lanes_used = 4;
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    file.lane(lane).header.owner = 100 + lane;
    file.lane(lane).header.in_flight = pack_in_flight(InFlight::allocating, lane, 1ULL << (8 * lane));
  }
  file.ledger(2).in_flight_shared = 7;
  auto const ledgers = file.view().ledgers();
  EXPECT_EQ(ledgers.at(0).in_flight_bytes, 1U);
  EXPECT_EQ(ledgers.at(1).in_flight_bytes, 256U);
  EXPECT_EQ(ledgers.at(2).in_flight_bytes, 1U + 256U + 65536U + 7U);
  EXPECT_EQ(ledgers.at(3).in_flight_bytes, 1U << 24);
}

TEST(FlightFirstFailures, are_decoded_once_they_are_whole) {
  FlightBuilder file;
  auto const put = [&](std::uint32_t index, std::uint64_t key, std::uint64_t ready) {
    file.failure(index).key = key;
    file.failure(index).ready = ready;
  };
  put(0, pack_failure_key(9, ErrorKind::device_out_of_memory, Layer::driver), 1);
  file.failure(0).count = 12;
  file.failure(0).requested = 512;
  file.failure(0).limit = 1000 | kLimitEnforcing;
  put(1, pack_failure_key(9, ErrorKind::over_budget, Layer::manager), 0);       // being written
  put(2, pack_failure_key(1, static_cast<ErrorKind>(200), Layer::manager), 1);  // hostile
  put(3, pack_failure_key(0xFFFF, ErrorKind::over_budget, Layer::request), 1);
  file.failure(3).limit = kLimitNone;
  file.failure(3).device_free = 1;
  auto const failures = file.view().first_failures();
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(failures[0].layer, Layer::driver);
  EXPECT_EQ(failures[0].tag, 9U);
  EXPECT_EQ(failures[0].count, 12U);
  EXPECT_EQ(failures[0].limit, 1000U);
  EXPECT_FALSE(failures[0].device_free.has_value());
  EXPECT_EQ(failures[1].tag, 0xFFFFU);
  EXPECT_FALSE(failures[1].limit.has_value());
  EXPECT_EQ(failures[1].device_free, 0U);
}

}  // namespace
}  // namespace headroom::flight
