// Processes that come, allocate, change managers, die and come again at random: at every scrape the sums hold, and none of them falls.
#include <array>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "node_support.hpp"

namespace headroom::exporter {
namespace {

constexpr std::uint32_t kCells = 3;  // few, so that they are used again

/// A process and what a perfect observer has seen of it.
struct Known {
  FakeProcess* process = nullptr;
  std::string name;
  double allocations = 0, bytes = 0, refusals = 0;
  std::array<bool, kCells> open{};
  bool is_over = false;
};

class World {
public:
  explicit World(std::uint64_t seed) : random_{seed}, node_{{.series = 6, .mapped = 4'096, .kept = 3, .names = 3}} {}

  void step() {
    switch (below(10)) {
      case 0:
      case 1: start(); break;
      case 2: end(); break;
      case 3: truncate(); break;
      case 4: come_again(); break;
      case 5: node_.pass(std::chrono::seconds{below(200)}); break;
      case 6: static_cast<void>(node_.look()); break;
      default: work(); break;
    }
    check();
  }

private:
  std::uint64_t below(std::uint64_t bound) { return std::uniform_int_distribution<std::uint64_t>{0, bound - 1}(random_); }

  void start() {
    if (living().size() >= 12) return;
    static constexpr std::array<char const*, 4> kNames{"train", "serve", "job", "eval"};
    auto& process = node_.add(kNames[below(kNames.size())], below(3) + 1);
    Known known{.process = &process, .name = process.view()->process().program};
    // One name more than there is room for.
    if (!names_.contains(known.name) && names_.size() >= 3) known.name = "other";
    names_.insert(known.name);
    known_.push_back(known);
    // Once: the refusals of a manager whose place is used again before anybody looked are nowhere.
    change(known_.back());
    if (below(4) == 0) finish(known_.back());  // over before it is first looked at
    EXPECT_EQ(node_.arrive(process), NodeBooks::Arrival::taken);
  }

  /// Managers opened and closed, memory taken, requests refused.
  void change(Known& known) {
    const auto cell = static_cast<std::uint32_t>(below(kCells));
    auto& process = *known.process;
    if (!known.open[cell]) {
      process.open(cell, below(2) == 0 ? "pool" : "cache");
      known.open[cell] = true;
    }
    const auto count = below(5);
    const auto size = below(1'000);
    process.allocate(cell, count, size);
    known.allocations += static_cast<double>(count);
    known.bytes += static_cast<double>(count * size);
    const auto refused = below(3);
    process.refuse(cell, refused);
    known.refusals += static_cast<double>(refused);
    if (below(3) == 0) {
      process.close(cell);
      known.open[cell] = false;
    }
  }

  void work() {
    for (Known* known : living()) change(*known);
  }

  void finish(Known& known) {
    known.is_over = true;
    if (below(2) == 0) return known.process->kill();
    for (std::uint32_t cell = 0; cell < kCells; ++cell) {
      if (known.open[cell]) known.process->close(cell);
    }
    known.process->exit();
  }

  void end() {
    if (auto all = living(); !all.empty()) {
      auto& known = *all[below(all.size())];
      change(known);  // between the last scrape and the end
      finish(known);
    }
  }

  void truncate() {
    auto all = living();
    if (all.empty() || below(4) != 0) return;
    auto& known = *all[below(all.size())];
    known.process->is_whole = false;
    known.is_over = true;
    std::memset(static_cast<void*>(&known.process->file().lane(0)), 0, sizeof(flight::LaneBooks));
  }

  void come_again() {
    if (known_.empty()) return;
    auto const& known = known_[below(known_.size())];
    if (!known.process->is_whole) return;
    EXPECT_EQ(node_.arrive(*known.process), NodeBooks::Arrival::is_known);
  }

  void check() {
    const auto families = node_.scrape();
    FakeNode::Sums allocations;
    FakeNode::Sums bytes;
    FakeNode::Sums refusals;
    for (auto const& known : known_) {
      allocations[known.name] += known.allocations;
      bytes[known.name] += known.bytes;
      refusals[known.name] += known.refusals;
    }
    EXPECT_EQ(
        by_sum_name(FakeNode::sums_of(families, "allocations_total"), FakeNode::sums_of(families, "exited_allocations_total")),
        allocations);
    EXPECT_EQ(by_sum_name(FakeNode::sums_of(families, "allocation_bytes_total"),
                          FakeNode::sums_of(families, "exited_allocation_bytes_total")),
              bytes);
    auto seen = by_sum_name(FakeNode::sums_of(families, "allocation_failures_total"),
                            FakeNode::sums_of(families, "exited_allocation_failures_total"));
    for (auto const& [name, value] : refusals) EXPECT_EQ(seen[name], value) << name;
    const auto exited = FakeNode::sums_of(families, "exited_allocations_total");
    for (auto const& [name, value] : exited) {
      EXPECT_GE(value, exited_[name]) << name << " fell";
      exited_[name] = value;
    }
  }

  /// Series have their process's own name, sums "other" for those beyond the bound.
  FakeNode::Sums by_sum_name(FakeNode::Sums const& series, FakeNode::Sums sums) {
    for (auto const& [name, value] : series) sums[names_.contains(name) ? name : "other"] += value;
    return sums;
  }

  std::vector<Known*> living() {
    std::vector<Known*> found;
    for (auto& known : known_) {
      if (!known.is_over) found.push_back(&known);
    }
    return found;
  }

  std::mt19937_64 random_;
  FakeNode node_;
  std::deque<Known> known_;
  std::set<std::string> names_;
  FakeNode::Sums exited_;
};

class NodeSums : public testing::TestWithParam<std::uint64_t> {};

TEST_P(NodeSums, hold_at_every_scrape) {
  World world{GetParam()};
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    world.step();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, NodeSums, testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace headroom::exporter
