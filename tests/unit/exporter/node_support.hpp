// Processes that are nothing but a flight file in memory, and the books of a node exporter that looks at them with a clock of the test's.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "node_books.hpp"
#include "node_metrics.hpp"

namespace headroom::exporter {

/// What a test makes happen to a process; the file says what the books may know of it.
class FakeProcess {
public:
  FakeProcess(std::uint64_t number, std::string_view program, std::uint64_t pid) : number_{number} {
    auto& header = file_.header();
    header.pid = pid;
    header.run = number << 32;
    header.start_realtime_ns = 2'000;
    header.lanes_used = 1;
    std::memcpy(header.program, program.data(), program.size());
    std::strcpy(header.host, "pod");
  }

  /// As Ledger::open does it: what the cell has counted becomes its base, and its tallies part of the sum over earlier ones.
  void open(std::uint32_t cell, std::string_view name) {
    auto const& counters = file_.lane(0).counters[cell];
    auto& base = file_.ledger_base(cell);
    base.allocations = counters.allocations.load();
    base.frees = counters.frees.load();
    base.allocation_bytes = counters.allocation_bytes.load();
    base.deallocation_bytes = counters.deallocation_bytes.load();
    auto* const tallies = reinterpret_cast<flight::Word*>(&file_.tallies(cell));
    for (std::size_t i = 0; i < flight::kTallyWords; ++i) {
      const auto counted = tallies[i].exchange(0);
      if (!is_of_minor_2) file_.header().earlier_tallies[i] += counted;
    }
    auto& ledger = file_.open_ledger(cell, 10 + cell, name);
    ledger.generation = ledger.generation.load() + 1;
    ledger.created_ticks = ++ticks_;
    ledger.alloc = 0;
    ledger.claim = 0;
  }
  void close(std::uint32_t cell) {
    auto& ledger = file_.ledger(cell);
    ledger.alloc = 0;
    ledger.claim = 0;
    ledger.state = static_cast<std::uint64_t>(flight::LedgerState::closed);
  }
  void allocate(std::uint32_t cell, std::uint64_t count, std::uint64_t bytes_each) {
    auto& counters = file_.lane(0).counters[cell];
    counters.allocations += count;
    counters.allocation_bytes += count * bytes_each;
    auto& ledger = file_.ledger(cell);
    ledger.alloc = ledger.alloc.load() + count * bytes_each;
    ledger.claim = ledger.claim.load() + count * bytes_each;
  }
  void refuse(std::uint32_t cell, std::uint64_t count) {
    file_.tallies(cell).refusals[static_cast<std::size_t>(ErrorKind::over_budget)][static_cast<std::size_t>(Layer::manager)] +=
        count;
  }

  void exit() {
    file_.header().state = static_cast<std::uint64_t>(flight::ProcessState::closed);
    liveness = flight::Liveness::dead;
    is_there = false;
  }
  void kill() { liveness = flight::Liveness::dead; }

  [[nodiscard]] flight::FlightBuilder& file() { return file_; }
  [[nodiscard]] std::shared_ptr<flight::FlightView const> view() const {
    return std::make_shared<flight::FlightView const>(file_.view());
  }
  /// As the process itself names it, unless a test does.
  [[nodiscard]] std::string path() const {
    if (!path_.empty()) return path_;
    const auto process = file_.view().process();
    std::array<char, 64> end{};
    std::snprintf(end.data(), end.size(), ".%" PRIu64 ".%016" PRIx64 ".flight", process.pid, process.run);
    return "/flights/" + process.program + end.data();
  }
  void set_path(std::string path) { path_ = std::move(path); }
  [[nodiscard]] FileId id() const { return {1, number_}; }
  [[nodiscard]] std::byte const* first() const { return file_.bytes().data(); }

  flight::Liveness liveness = flight::Liveness::living;
  bool is_there = true;
  bool is_whole = true;
  bool is_of_minor_2 = false;  ///< a program that lets the tallies of earlier managers go

private:
  flight::FlightBuilder file_;
  std::uint64_t number_;
  std::uint64_t ticks_ = 0;
  std::string path_;
};

class FakeNode {
public:
  static constexpr std::chrono::seconds kKeepDead{300};
  using Sums = std::map<std::string, double>;  // by process name

  explicit FakeNode(NodeLimits limits = {}) {
    NodeBooks::Options options;
    options.limits = limits;
    options.keep_dead = kKeepDead;
    options.began_monotonic_ns = 50;
    options.began_realtime_ns = 1'000;
    options.boot_id = "this-boot";
    options.host = "pod";
    options.liveness = [this](flight::FlightView const& view) { return process_of(view).liveness; };
    options.is_whole = [this](flight::FlightView const& view) { return process_of(view).is_whole; };
    options.is_there = [this](std::string const& path, FileId id) {
      return std::ranges::any_of(processes_,
                                 [&](auto const& one) { return one.is_there && one.path() == path && one.id() == id; });
    };
    books_ = std::make_unique<NodeBooks>(std::move(options));
  }

  /// A process that the books have not seen yet.
  FakeProcess& add(std::string_view program, std::uint64_t pid = 1) { return processes_.emplace_back(++number_, program, pid); }
  NodeBooks::Arrival arrive(FakeProcess const& process) {
    return books_->arrive(process.view(), process.path(), process.id(), now_);
  }
  FakeProcess& start(std::string_view program, std::uint64_t pid = 1) {
    auto& process = add(program, pid);
    process.open(0, "pool");
    EXPECT_EQ(arrive(process), NodeBooks::Arrival::taken);
    return process;
  }

  void pass(std::chrono::seconds time) { now_ += time; }
  [[nodiscard]] std::vector<NodeBooks::Corpse> look() {
    std::vector<std::string> notices;
    auto corpses = books_->look(now_, notices);
    notices_.insert(notices_.end(), notices.begin(), notices.end());
    return corpses;
  }
  [[nodiscard]] NodeBooks::Reading read() { return books_->read(now_); }
  [[nodiscard]] NodeBooks& books() { return *books_; }
  [[nodiscard]] NodeBooks::Clock::time_point now() const { return now_; }

  /// A scrape: no two series may be equal.
  [[nodiscard]] FamilyList scrape() {
    return scrape([](std::size_t) {});
  }
  /// … process by process; `between` is called before each, with how many there were.
  template <class Between>
  [[nodiscard]] FamilyList scrape(Between const& between) {
    auto reading = books_->begin(now_);
    Families families;
    const auto told = add_node_gpus(families, gpus, {{"process", "headroom"}});
    for (std::size_t count = 0; between(count), books_->read_some(reading, 1, now_); ++count) {
      for (auto& living : reading.living) {
        const auto is_whole = [this](flight::FlightView const& view) { return process_of(view).is_whole; };
        add_living(families, reading, living, is_whole, &told);
      }
    }
    for (auto const& kept : reading.kept) add_kept(families, kept);
    add_sums(families, reading);
    auto list = families.take();
    for (auto const& family : list) {
      std::set<Labels> seen;
      for (auto const& sample : family.metric) EXPECT_TRUE(seen.insert(sample.label).second) << family.name;
    }
    return list;
  }

  [[nodiscard]] static Sums sums_of(FamilyList const& families, std::string_view metric) {
    Sums sums;
    for (auto const& sample : samples_of(families, metric)) {
      const auto name = std::ranges::find(sample.label, "process", [](auto const& label) { return label.name; });
      if (name != sample.label.end()) sums[name->value] += sample.counter.value + sample.gauge.value;
    }
    return sums;
  }
  /// Of the series and of what has none.
  [[nodiscard]] static Sums whole_of(FamilyList const& families, std::string const& metric) {
    auto sums = sums_of(families, metric);
    for (auto const& [name, value] : sums_of(families, "exited_" + metric)) sums[name] += value;
    return sums;
  }

  [[nodiscard]] std::vector<std::string> const& notices() const { return notices_; }
  [[nodiscard]] std::list<FakeProcess>& processes() { return processes_; }

  std::vector<GpuDevice> gpus;  ///< as the machine's driver tells them

private:
  [[nodiscard]] FakeProcess const& process_of(flight::FlightView const& view) const {
    auto const* const first = reinterpret_cast<std::byte const*>(&view.header());
    return *std::ranges::find_if(processes_, [first](auto const& process) { return process.first() == first; });
  }

  std::list<FakeProcess> processes_;
  std::uint64_t number_ = 0;
  NodeBooks::Clock::time_point now_{std::chrono::hours{1}};
  std::vector<std::string> notices_;
  std::unique_ptr<NodeBooks> books_;
};

}  // namespace headroom::exporter
