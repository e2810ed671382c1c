// A manager's label is the same for as long as it is there, whoever of its name comes and goes.
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "metrics.hpp"
#include "node_support.hpp"

namespace headroom::exporter {
namespace {

/// By the bytes that each has.
std::string label_of(FamilyList const& families, double allocated) {
  for (auto const& sample : samples_of(families, "allocated_bytes")) {
    if (sample.gauge.value != allocated) continue;
    for (auto const& label : sample.label) {
      if (label.name == "manager") return label.value;
    }
  }
  return "none";
}

TEST(ManagerNames, of_a_built_file_are_what_the_file_says_whoever_is_shown_beside) {
  flight::FlightBuilder file;
  file.open_ledger(0, 3, "x").alloc = 100;
  auto& second = file.open_ledger(1, 12, "x");
  second.alloc = 200;
  second.is_namesake = 1;
  EXPECT_EQ(label_of(collect(file.view()), 100), "x");
  EXPECT_EQ(label_of(collect(file.view()), 200), "#12 x");
  file.ledger(0).state = static_cast<std::uint64_t>(flight::LedgerState::closed);
  file.ledger(0).alloc = 0;
  EXPECT_EQ(label_of(collect(file.view()), 200), "#12 x") << "the other one has closed";
  file.open_ledger(2, 2, "x").alloc = 300;  // an id that was used again: smaller than the other's
  EXPECT_EQ(label_of(collect(file.view()), 200), "#12 x");
  EXPECT_EQ(label_of(collect(file.view()), 300), "x");
}

TEST(ManagerNames, of_a_program_do_not_change_when_others_of_the_name_open_and_close) {
  const auto device = host_device({.touch_memory = false}).value();
  const auto open = [&] {
    return std::make_unique<GpuMemoryManager>(GpuMemoryManager::create(device, MemoryBudget::unlimited(), "of one name").value());
  };
  const auto label = [](double bytes) { return label_of(collect(flight::FlightView::of_this_process().value()), bytes); };
  auto first = open();
  auto first_bytes = std::make_unique<TrackedBuffer<std::byte>>(first->alloc<std::byte>(10'001).value());
  auto second = open();
  const auto second_bytes = second->alloc<std::byte>(10'002).value();
  const auto second_label = label(10'002);
  EXPECT_EQ(label(10'001), "of one name");
  EXPECT_TRUE(second_label.starts_with("#") && second_label.ends_with(" of one name")) << second_label;
  first_bytes.reset();
  first.reset();
  EXPECT_EQ(label(10'002), second_label);
  const auto third = open();
  const auto third_bytes = third->alloc<std::byte>(10'003).value();
  EXPECT_EQ(label(10'002), second_label);
  EXPECT_EQ(label(10'003), "of one name");
}

TEST(ManagerNames, on_a_node_stay_when_the_other_one_closes) {
  FakeNode node;
  auto& process = node.start("rank");
  process.allocate(0, 1, 100);
  process.open(1, "pool");
  process.file().ledger(1).is_namesake = 1;
  process.allocate(1, 2, 100);
  EXPECT_EQ(label_of(node.scrape(), 100), "pool");
  EXPECT_EQ(label_of(node.scrape(), 200), "#11 pool");
  process.close(0);
  const auto after = node.scrape();
  EXPECT_EQ(label_of(after, 200), "#11 pool");
  EXPECT_EQ(node.whole_of(after, "allocations_total"), (FakeNode::Sums{{"rank", 3}}));
}

TEST(NodeLiveness, is_read_once_a_scrape) {
  FakeNode node;
  auto& process = node.start("rank");
  // The file itself would say otherwise: it has no lock, and no such process.
  const auto living = node.scrape();
  EXPECT_EQ(value_of(living, "process_up"), 1);
  EXPECT_EQ(samples_of(living, "allocated_bytes").size(), 1U);
  process.liveness = flight::Liveness::unknown;
  const auto uncertain = node.scrape();
  EXPECT_EQ(value_of(uncertain, "process_up"), std::nullopt);
  EXPECT_TRUE(samples_of(uncertain, "allocated_bytes").empty());
}

}  // namespace
}  // namespace headroom::exporter
