// What a node exporter keeps of processes, with figures worked out by hand.
#include "node_books.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node_support.hpp"

namespace headroom::exporter {
namespace {

using Arrival = NodeBooks::Arrival;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(NodeBooks, serve_the_living_with_the_host_of_their_file) {
  FakeNode node;
  node.start("train", 7).allocate(0, 3, 100);
  const auto families = node.scrape();
  const Wanted labels{{"process", "train"}, {"pid", "7"}, {"run", "00000001"}, {"host", "pod"}};
  Wanted of_pool = labels;
  of_pool["manager"] = "pool";
  EXPECT_EQ(value_of(families, "allocations_total", of_pool), 3);
  EXPECT_EQ(value_of(families, "allocated_bytes", of_pool), 300);
  EXPECT_EQ(value_of(families, "exited_allocations_total", {{"process", "train"}}), 0) << "there from the start";
  EXPECT_EQ(value_of(families, "processes_died_total", {{"process", "train"}, {"state", "killed"}}), 0);
  EXPECT_THAT(samples_of(families, "died_live_bytes"), IsEmpty());
}

TEST(NodeBooks, two_processes_with_pid_1_are_served_as_themselves) {
  FakeNode node;
  node.start("train", 1).allocate(0, 3, 100);
  node.start("train", 1).allocate(0, 4, 100);
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total", {{"pid", "1"}, {"run", "00000001"}}), 3);
  EXPECT_EQ(value_of(families, "allocations_total", {{"pid", "1"}, {"run", "00000002"}}), 4);
}

TEST(NodeBooks, gauges_end_with_their_process_and_counters_after_keep_dead) {
  FakeNode node;
  auto& process = node.start("train");
  process.allocate(0, 3, 100);
  process.refuse(0, 2);
  static_cast<void>(node.scrape());
  process.allocate(0, 2, 50);  // after the last scrape, before the end
  process.kill();

  auto families = node.scrape();
  EXPECT_THAT(samples_of(families, "allocated_bytes"), IsEmpty());
  EXPECT_THAT(samples_of(families, "build_info"), IsEmpty());
  EXPECT_EQ(value_of(families, "process_up"), 0);
  EXPECT_EQ(value_of(families, "died_live_bytes", {{"state", "killed"}, {"run", "00000001"}}), 400);
  EXPECT_EQ(value_of(families, "allocations_total", {{"run", "00000001"}, {"host", "pod"}, {"manager", "pool"}}), 5);
  EXPECT_EQ(value_of(families, "allocation_failures_total", {{"reason", "over_budget"}, {"layer", "manager"}}), 2);
  EXPECT_THAT(samples_of(families, "frees_total"), IsEmpty()) << "a series that ends at 0 tells nothing";
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 0);
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "killed"}}), 1);

  node.pass(FakeNode::kKeepDead - seconds{1});
  EXPECT_EQ(value_of(node.scrape(), "allocations_total"), 5);

  node.pass(seconds{1});
  families = node.scrape();
  EXPECT_THAT(samples_of(families, "allocations_total"), IsEmpty());
  EXPECT_THAT(samples_of(families, "process_up"), IsEmpty());
  EXPECT_THAT(samples_of(families, "died_live_bytes"), IsEmpty());
  EXPECT_EQ(value_of(families, "exited_allocations_total", {{"process", "train"}}), 5);
  EXPECT_EQ(value_of(families, "exited_allocation_bytes_total"), 400);
  EXPECT_EQ(value_of(families, "exited_allocation_failures_total", {{"reason", "over_budget"}, {"layer", "manager"}}), 2);
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "killed"}}), 1);
}

TEST(NodeBooks, a_program_that_ends_well_closes_its_managers_and_still_counts) {
  FakeNode node;
  auto& process = node.start("job");
  process.allocate(0, 9, 10);
  process.close(0);
  process.exit();
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total", {{"manager", "pool"}}), 9);
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "exited"}}), 1);
  EXPECT_EQ(value_of(families, "died_live_bytes", {{"state", "exited"}}), 0);
  EXPECT_THAT(node.look(), IsEmpty()) << "nothing to write a post-mortem of";
}

TEST(NodeBooks, a_process_that_was_over_before_it_was_first_looked_at_counts) {
  FakeNode node;
  auto& job = node.add("job");
  job.open(0, "pool");
  job.allocate(0, 4, 10);
  job.close(0);
  job.exit();
  EXPECT_EQ(node.arrive(job), Arrival::taken);
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total"), 4);
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "exited"}}), 1);
}

TEST(NodeBooks, who_was_dead_before_the_exporter_began_is_in_no_sum) {
  FakeNode node;
  auto& old = node.add("train");
  old.file().header().start_realtime_ns = 999;
  old.open(0, "pool");
  old.allocate(0, 4, 10);
  old.kill();
  EXPECT_EQ(node.arrive(old), Arrival::found_dead);
  EXPECT_EQ(node.read().found_dead, 1U);
  EXPECT_THAT(node.scrape(), IsEmpty());
  EXPECT_THAT(node.look(), SizeIs(1)) << "its post-mortem is written all the same";
  EXPECT_EQ(node.arrive(old), Arrival::is_known) << "once";
  EXPECT_EQ(node.read().found_dead, 1U);
}

TEST(NodeBooks, who_began_before_the_exporter_and_lives_is_in_the_sums) {
  FakeNode node;
  auto& old = node.add("train");
  old.file().header().start_realtime_ns = 999;
  old.open(0, "pool");
  old.allocate(0, 4, 10);
  EXPECT_EQ(node.arrive(old), Arrival::taken);
  EXPECT_EQ(value_of(node.scrape(), "allocations_total"), 4);
}

TEST(NodeBooks, a_run_that_comes_again_counts_once) {
  FakeNode node;
  auto& process = node.start("train");
  process.allocate(0, 4, 10);
  EXPECT_EQ(node.arrive(process), Arrival::is_known) << "living";
  EXPECT_EQ(node.read().duplicates, 0U) << "the same file is no duplicate";
  process.kill();
  static_cast<void>(node.scrape());
  EXPECT_EQ(node.arrive(process), Arrival::is_known) << "kept";
  node.pass(FakeNode::kKeepDead);
  static_cast<void>(node.scrape());
  EXPECT_EQ(node.arrive(process), Arrival::is_known) << "in the sums";
  const auto families = node.scrape();
  EXPECT_EQ(FakeNode::whole_of(families, "allocations_total"), (FakeNode::Sums{{"train", 4}}));
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "killed"}}), 1);
}

TEST(NodeBooks, a_copy_of_a_file_is_a_duplicate_and_gives_way_to_the_process_itself) {
  FakeNode node;
  auto& copy = node.add("train");
  copy.open(0, "pool");
  copy.allocate(0, 4, 10);
  copy.kill();
  EXPECT_EQ(node.arrive(copy), Arrival::taken);
  auto& process = node.add("train");
  process.file().header().run = copy.file().header().run;
  process.open(0, "pool");
  process.allocate(0, 6, 10);
  EXPECT_EQ(node.arrive(process), Arrival::taken);
  EXPECT_EQ(value_of(node.scrape(), "allocations_total"), 6);
  EXPECT_EQ(node.arrive(copy), Arrival::is_known);
  EXPECT_EQ(node.read().duplicates, 1U);
}

TEST(NodeBooks, a_copy_that_is_found_dead_hides_no_process_and_is_nobodys_corpse) {
  FakeNode node;
  auto& copy = node.add("train");
  copy.file().header().start_realtime_ns = 999;
  copy.open(0, "pool");
  copy.allocate(0, 4, 10);
  copy.kill();
  copy.set_path("/flights/a-copy.flight");
  EXPECT_EQ(node.arrive(copy), Arrival::found_dead);
  EXPECT_THAT(node.look(), IsEmpty()) << "it is somebody's, under the name that they gave it";
  auto& process = node.add("train");
  process.file().header().run = copy.file().header().run;
  process.file().header().start_realtime_ns = 999;
  process.open(0, "pool");
  process.allocate(0, 6, 10);
  EXPECT_EQ(node.arrive(process), Arrival::taken);
  EXPECT_EQ(value_of(node.scrape(), "allocations_total"), 6);
  EXPECT_EQ(node.arrive(copy), Arrival::is_known);
  process.kill();
  EXPECT_THAT(node.look(), SizeIs(1));
  node.pass(FakeNode::kKeepDead);
  static_cast<void>(node.scrape());
  process.liveness = flight::Liveness::living;
  EXPECT_EQ(node.arrive(process), Arrival::is_known) << "in the sums by now: nothing makes it count twice";
}

TEST(NodeBooks, of_this_boot_who_was_dead_before_is_told_by_the_clock_that_nobody_sets) {
  FakeNode node;
  const auto job = [&](std::uint64_t pid, std::uint64_t monotonic_ns, std::uint64_t realtime_ns, char const* boot) {
    auto& process = node.add("job", pid);
    std::strcpy(process.file().header().boot_id, boot);
    process.file().header().start_monotonic_ns = monotonic_ns;
    process.file().header().start_realtime_ns = realtime_ns;
    process.open(0, "pool");
    process.exit();
    return node.arrive(process);
  };
  EXPECT_EQ(job(1, 50, 10, "this-boot"), Arrival::taken) << "the clock was set back when it began";
  EXPECT_EQ(job(2, 49, 5'000, "this-boot"), Arrival::found_dead) << "it was set back after that";
  EXPECT_EQ(job(3, 50, 999, "another"), Arrival::found_dead) << "the other clock of another boot says nothing here";
  EXPECT_EQ(job(4, 49, 1'000, "another"), Arrival::taken);
}

TEST(NodeBooks, a_closed_managers_counters_stay_without_its_gauges) {
  FakeNode node;
  auto& process = node.start("train");
  process.allocate(0, 4, 10);
  process.open(1, "second");
  process.allocate(1, 2, 10);
  process.close(0);
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total", {{"manager", "pool"}}), 4);
  EXPECT_THAT(samples_of(families, "allocated_bytes", {{"manager", "pool"}}), IsEmpty());
  EXPECT_EQ(value_of(families, "allocated_bytes", {{"manager", "second"}}), 20);
}

TEST(NodeBooks, a_manager_of_the_same_name_puts_the_closed_ones_counters_into_the_sums) {
  FakeNode node;
  auto& process = node.start("train");
  process.allocate(0, 4, 10);
  process.refuse(0, 3);
  process.close(0);
  static_cast<void>(node.scrape());
  process.open(1, "pool");
  process.allocate(1, 2, 10);
  auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total"), 2);
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 4);
  EXPECT_EQ(value_of(families, "exited_allocation_failures_total"), 3);
  process.close(1);
  process.exit();
  families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total"), 2) << "what was in the sums stays there";
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 4);
}

TEST(NodeBooks, a_managers_place_that_is_used_again_loses_nothing) {
  FakeNode node;
  auto& process = node.start("train");
  process.refuse(0, 1);
  static_cast<void>(node.scrape());
  // Three managers in one place between two scrapes: their counters are in the base, and their refusals in the sum over earlier ones.
  for (std::uint64_t i = 1; i <= 3; ++i) {
    process.allocate(0, 5, 10);
    process.close(0);
    process.open(0, "pool");
    process.refuse(0, i);
  }
  process.allocate(0, 1, 10);
  auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total"), 1);
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 15);
  EXPECT_EQ(value_of(families, "allocation_failures_total", {{"reason", "over_budget"}, {"layer", "manager"}}), 3);
  EXPECT_EQ(value_of(families, "exited_allocation_failures_total"), 1 + 1 + 2);
  process.kill();
  static_cast<void>(node.scrape());
  node.pass(FakeNode::kKeepDead);
  families = node.scrape();
  EXPECT_EQ(value_of(families, "exited_allocation_failures_total"), 7) << "of all four";
}

TEST(NodeBooks, tallies_that_a_program_of_an_earlier_version_lets_go_are_those_that_were_read) {
  FakeNode node;
  auto& process = node.start("train");
  process.is_of_minor_2 = true;
  process.refuse(0, 5);
  static_cast<void>(node.scrape());
  process.refuse(0, 1);  // never read
  process.close(0);
  process.open(0, "pool");
  process.refuse(0, 2);
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocation_failures_total", {{"reason", "over_budget"}, {"layer", "manager"}}), 2);
  EXPECT_EQ(value_of(families, "exited_allocation_failures_total"), 5);
}

TEST(NodeBooks, tallies_that_change_hands_while_they_are_read_make_no_sum_fall) {
  FakeNode node;
  auto& process = node.start("train");
  process.refuse(0, 5);
  EXPECT_EQ(FakeNode::whole_of(node.scrape(), "allocation_failures_total"), (FakeNode::Sums{{"train", 5}}));
  // Taken out of its cell, and not yet in the sum.
  auto& place = process.file().tallies(0).refusals[static_cast<std::size_t>(ErrorKind::over_budget)];
  place[static_cast<std::size_t>(Layer::manager)] = 0;
  EXPECT_EQ(FakeNode::whole_of(node.scrape(), "allocation_failures_total"), (FakeNode::Sums{{"train", 5}}));
}

TEST(NodeBooks, a_process_of_which_nobody_can_tell_has_counters_only_until_its_file_is_gone) {
  FakeNode node;
  auto& process = node.add("train");
  process.file().header().alive_by = static_cast<std::uint32_t>(flight::AliveBy::pid_and_boot);
  process.open(0, "pool");
  process.allocate(0, 4, 10);
  process.liveness = flight::Liveness::dead;  // of another pid namespace, perhaps
  EXPECT_EQ(node.arrive(process), Arrival::taken);
  auto families = node.scrape();
  EXPECT_EQ(value_of(families, "allocations_total"), 4);
  EXPECT_THAT(samples_of(families, "allocated_bytes"), IsEmpty());
  EXPECT_THAT(samples_of(families, "process_up"), IsEmpty());
  process.is_there = false;
  families = node.scrape();
  EXPECT_EQ(value_of(families, "processes_died_total", {{"state", "unknown"}}), 1);
  EXPECT_EQ(value_of(families, "process_up"), 0);
  EXPECT_THAT(node.look(), IsEmpty());
}

TEST(NodeBooks, a_lock_of_another_machine_is_not_believed) {
  FakeNode node;
  auto& process = node.add("train");
  std::strcpy(process.file().header().host, "elsewhere");
  std::strcpy(process.file().header().boot_id, "another");
  process.open(0, "pool");
  process.liveness = flight::Liveness::dead;
  EXPECT_EQ(node.arrive(process), Arrival::taken);
  EXPECT_THAT(samples_of(node.scrape(), "processes_died_total", {{"state", "killed"}}), SizeIs(1));
  EXPECT_EQ(value_of(node.scrape(), "processes_died_total", {{"state", "killed"}}), 0);
  EXPECT_THAT(node.look(), IsEmpty());
}

TEST(NodeBooks, a_truncated_file_leaves_what_was_read_of_it_in_the_sums) {
  FakeNode node;
  auto& process = node.start("train");
  node.start("serve").allocate(0, 1, 10);
  process.allocate(0, 4, 10);
  static_cast<void>(node.scrape());
  process.is_whole = false;
  std::memset(static_cast<void*>(&process.file().lane(0)), 0, sizeof(flight::LaneBooks));
  const auto families = node.scrape();
  EXPECT_EQ(FakeNode::whole_of(families, "allocations_total"), (FakeNode::Sums{{"serve", 1}, {"train", 4}}));
  EXPECT_THAT(samples_of(families, "allocations_total", {{"process", "train"}}), IsEmpty());
  EXPECT_EQ(node.read().truncated, 1U);
  static_cast<void>(node.look());
  ASSERT_THAT(node.notices(), SizeIs(1));
  EXPECT_THAT(node.notices().front(), HasSubstr(process.path()));
  EXPECT_EQ(node.arrive(process), Arrival::is_known);
}

TEST(NodeBooks, a_file_that_is_damaged_between_reading_and_showing_costs_no_sum) {
  FakeNode node;
  node.start("train").allocate(0, 4, 10);
  auto reading = node.read();
  Families families;
  ASSERT_THAT(reading.living, SizeIs(1));
  add_living(families, reading, reading.living.front(), [](flight::FlightView const&) { return false; });
  add_sums(families, reading);
  EXPECT_EQ(FakeNode::whole_of(families.take(), "allocations_total"), (FakeNode::Sums{{"train", 4}}));
}

TEST(NodeBooks, whoever_ends_while_a_scrape_is_in_progress_is_counted_once) {
  FakeNode node;
  for (std::uint64_t pid = 1; pid <= 6; ++pid) node.start("rank", pid).allocate(0, pid, 10);
  std::vector<FakeProcess*> processes;
  for (auto& process : node.processes()) processes.push_back(&process);
  static_cast<void>(node.scrape());  // of a damaged file only what was read before is known
  const auto families = node.scrape([&](std::size_t count) {
    if (count != 1) return;
    processes[0]->kill();  // seen by the scrape itself
    processes[1]->kill();
    static_cast<void>(node.look());  // seen by another, and still kept
    processes[2]->is_whole = false;  // damaged before it is read
    processes[3]->is_whole = false;
    static_cast<void>(node.look());
  });
  EXPECT_EQ(FakeNode::whole_of(families, "allocations_total"), (FakeNode::Sums{{"rank", 21}}));
  const auto folded = node.scrape([&](std::size_t count) {
    if (count != 1) return;
    processes[4]->kill();
    static_cast<void>(node.look());
    node.pass(FakeNode::kKeepDead);
    static_cast<void>(node.look());  // in the sums, before the scrape came to it
  });
  EXPECT_EQ(FakeNode::whole_of(folded, "allocations_total"), (FakeNode::Sums{{"rank", 21}}));
  EXPECT_EQ(FakeNode::whole_of(node.scrape(), "allocations_total"), (FakeNode::Sums{{"rank", 21}}));
}

TEST(NodeBooks, processes_beyond_the_bound_are_in_the_sums_and_counted) {
  FakeNode node{{.series = 2}};
  for (std::uint64_t pid = 1; pid <= 3; ++pid) node.start("rank", pid).allocate(0, pid, 10);
  auto families = node.scrape();
  EXPECT_THAT(samples_of(families, "allocations_total"), SizeIs(2));
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 3);
  EXPECT_EQ(node.read().folded, 1U);
  EXPECT_EQ(node.read().folded_allocated_bytes, 30U);
  // It stays in the sums even when there is room, or they would fall; the next newcomer has series again.
  node.processes().front().kill();
  node.start("rank", 4);
  families = node.scrape();
  EXPECT_THAT(samples_of(families, "allocations_total", {{"pid", "3"}}), IsEmpty());
  EXPECT_THAT(samples_of(families, "allocations_total", {{"pid", "4"}}), SizeIs(1));
  EXPECT_EQ(FakeNode::whole_of(families, "allocations_total"), (FakeNode::Sums{{"rank", 6}}));
}

TEST(NodeBooks, more_dead_than_are_kept_go_into_the_sums_early_oldest_first) {
  FakeNode node{{.kept = 2}};
  for (std::uint64_t pid = 1; pid <= 3; ++pid) {
    auto& process = node.start("job", pid);
    process.allocate(0, pid, 10);
    process.exit();
    static_cast<void>(node.scrape());
    node.pass(seconds{1});
  }
  const auto families = node.scrape();
  EXPECT_THAT(samples_of(families, "allocations_total", {{"pid", "1"}}), IsEmpty());
  EXPECT_EQ(value_of(families, "allocations_total", {{"pid", "3"}}), 3);
  EXPECT_EQ(value_of(families, "exited_allocations_total"), 1);
  EXPECT_EQ(node.read().folded_early, 1U);
}

TEST(NodeBooks, names_beyond_the_bound_are_other) {
  FakeNode node{{.names = 2}};
  for (const char* name : {"a", "b", "c", "d"}) node.start(name).allocate(0, 1, 10);
  for (auto& process : node.processes()) process.kill();
  static_cast<void>(node.scrape());
  node.pass(FakeNode::kKeepDead);
  EXPECT_EQ(FakeNode::sums_of(node.scrape(), "exited_allocations_total"), (FakeNode::Sums{{"a", 1}, {"b", 1}, {"other", 2}}));
}

TEST(NodeBooks, more_than_can_be_mapped_are_refused) {
  FakeNode node{{.mapped = 1}};
  node.start("train");
  EXPECT_EQ(node.arrive(node.add("train", 2)), Arrival::too_many);
}

TEST(NodeBooks, a_killed_process_is_a_corpse_once_and_after_its_counters_were_taken) {
  FakeNode node;
  auto& process = node.start("train");
  process.allocate(0, 4, 10);
  process.kill();
  const auto corpses = node.look();
  ASSERT_THAT(corpses, SizeIs(1));
  EXPECT_EQ(corpses.front().path, process.path());
  EXPECT_EQ(corpses.front().view->process().pid, 1U);
  EXPECT_EQ(value_of(node.scrape(), "allocations_total"), 4);
  EXPECT_THAT(node.look(), IsEmpty());
}

TEST(NodeBooks, a_hostile_file_cannot_make_a_sum_wrap) {
  FakeNode node;
  for (std::uint64_t pid = 1; pid <= 2; ++pid) {
    auto& process = node.start("train", pid);
    process.refuse(0, ~std::uint64_t{0});
    process.kill();
  }
  static_cast<void>(node.scrape());
  node.pass(FakeNode::kKeepDead);
  EXPECT_EQ(value_of(node.scrape(), "exited_allocation_failures_total"), static_cast<double>(~std::uint64_t{0}));
}

}  // namespace
}  // namespace headroom::exporter
