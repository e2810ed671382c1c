// A timeline that is played to the writer of PyTorch's snapshots by hand, and what comes out of the pickle.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dump/torch_writer.hpp"
#include "post_mortems.hpp"
#include "unpickled.hpp"

namespace headroom::test::torch {

using namespace std::string_literals;
using dump::TimelineBlock;
using dump::TimelineLedger;
using dump::TimelineOperation;
using flight::EventKind;
using nlohmann::json;

inline constexpr std::uint64_t kStart = 1'700'000'000'000'000'000;  // ns since 1970
inline constexpr std::uint64_t kStartUs = kStart / 1000;
inline constexpr std::uint64_t kElsewhere = dump::TorchPlaces::kElsewhere;
inline constexpr std::uint32_t kWeights = 1, kActivations = 2;
inline constexpr std::uint32_t kLoad = 1;

class Names final : public dump::TimelineNames {
public:
  [[nodiscard]] std::string_view tag(std::uint32_t number) const noexcept override {
    return number == kWeights ? "weights" : number == kActivations ? "activations" : number == 3 ? hostile : std::string_view{};
  }
  [[nodiscard]] std::string_view site(std::uint32_t number) const noexcept override {
    return number == kLoad ? "model/load.cpp:7 load" : std::string_view{};
  }
  [[nodiscard]] std::string stack(std::uint32_t number) const override {
    return number == kLoad ? "main.cpp:3 main;model/load.cpp:7 load" : std::string{};
  }
  std::string hostile;
};

[[nodiscard]] inline TimelineBlock block(std::uint32_t ledger, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0,
                                         std::uint32_t site = 0, std::optional<std::uint64_t> stream = {}) {
  TimelineBlock made;
  made.ledger = ledger;
  made.address = address;
  made.bytes = bytes;
  made.tag = tag;
  made.site = site;
  made.stream = stream;
  return made;
}

/// Plays by hand; times are in µs.
class Played {
public:
  explicit Played(follow::SourceKind kind = follow::SourceKind::flight, std::size_t room = ~std::size_t{0})
      : sink{room}, writer{sink} {
    dump::TimelineProcess process;
    process.kind = kind;
    process.title = "a file";
    process.info.program = "train";
    process.info.pid = 42;
    process.names = &names;
    if (kind == follow::SourceKind::history) {
      process.start_clock_ns = 5'000;
    } else {
      process.start_realtime_ns = kStart;
    }
    writer.begin(process);
  }

  std::uint32_t ledger(std::string name, std::int64_t ordinal = 0, std::uint64_t allocated = 0, std::uint64_t unattributed = 0) {
    TimelineLedger made;
    made.id = static_cast<std::uint32_t>(books.size());
    made.name = std::move(name);
    made.device_ordinal = ordinal;
    made.device_name = "GPU";
    made.allocated = allocated;
    made.unattributed = unattributed;
    books.push_back(allocated);
    writer.ledger(made);
    return made.id;
  }
  void allocate(std::uint64_t us, TimelineBlock const& block, bool assumed = false) {
    if (!assumed) books[block.ledger] += block.bytes;
    operation(EventKind::allocate, us, block, assumed, true);
  }
  void free(std::uint64_t us, TimelineBlock const& block, bool assumed = false, bool known = true) {
    if (!assumed) books[block.ledger] -= block.bytes;
    operation(EventKind::free, us, block, assumed, known);
  }
  void gap(std::uint64_t us, std::uint32_t ledger, std::uint64_t allocated_after, std::uint64_t unattributed_after) {
    books[ledger] = allocated_after;
    writer.gap({.time_ns = us * 1000,
                .ledger = ledger,
                .missing = 1,
                .allocated_after = allocated_after,
                .unattributed_after = unattributed_after});
  }
  void note(EventKind kind, std::uint64_t us, std::optional<std::uint32_t> ledger, std::string_view name,
            std::uint64_t thread = 1) {
    flight::Event event;
    event.kind = kind;
    dump::TimelineNote made;
    made.kind = kind;
    made.time_ns = us * 1000;
    made.ledger = ledger;
    made.thread = thread;
    made.name = name;
    made.event = &event;
    writer.note(made);
  }
  void refuse(std::uint64_t us, std::uint32_t ledger, std::uint64_t bytes, ErrorKind kind, flight::Event const* tail = nullptr) {
    flight::Event event;
    event.kind = EventKind::refusal;
    event.words[2] = bytes;
    event.words[5] = std::uint64_t{(static_cast<std::uint32_t>(kind) + 1) * 64} << 40U;
    dump::TimelineNote made;
    made.kind = EventKind::refusal;
    made.time_ns = us * 1000;
    made.ledger = ledger;
    made.tag = kWeights;
    made.site = kLoad;
    made.event = &event;
    made.tail = tail;
    writer.note(made);
  }
  json end(std::uint64_t us) {
    dump::TimelineEnd end;
    end.time_ns = us * 1000;
    end.events_lost = 3;
    for (std::uint32_t id = 0; id < books.size(); ++id) end.ledgers.push_back({.id = id, .allocated = books[id]});
    writer.end(end);
    EXPECT_TRUE(writer.finish());
    return unpickled(sink.text);
  }

  Names names;
  StringSink sink;
  dump::TorchWriter writer;
  std::vector<std::uint64_t> books;  // by ledger: what is allocated

private:
  void operation(EventKind kind, std::uint64_t us, TimelineBlock const& block, bool assumed, bool known) {
    TimelineOperation made;
    made.kind = kind;
    made.time_ns = us * 1000;
    made.block = block;
    made.allocated_after = books[block.ledger];
    made.assumed = assumed;
    made.known = known;
    writer.operation(made);
  }
};

[[nodiscard]] inline std::vector<std::string> actions(json const& trace) {
  std::vector<std::string> found;
  for (auto const& entry : trace)
    found.push_back(entry["action"].get<std::string>() + (entry.contains("addr") && entry["addr"] != 0
                                                              ? ' ' + std::to_string(entry["addr"].get<std::uint64_t>())
                                                              : ""));
  return found;
}
using Actions = std::vector<std::string>;

/// What memory_viz shows as live: before the first entry, and after each.
[[nodiscard]] inline std::vector<std::uint64_t> shown_live(json const& snapshot, std::size_t device) {
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t before = 0;
  std::vector<std::int64_t> changes;
  for (auto const& entry : snapshot["device_traces"][device]) {
    auto const size = entry["size"].get<std::uint64_t>();
    if (entry["action"] == "alloc") {
      EXPECT_TRUE(live.emplace(entry["addr"], size).second) << "two live blocks at one address";
      changes.push_back(static_cast<std::int64_t>(size));
    } else if (entry["action"] == "free_completed") {
      if (live.erase(entry["addr"]) == 0) before += size;
      changes.push_back(-static_cast<std::int64_t>(size));
    }
  }
  for (auto const& segment : snapshot["segments"]) {
    if (segment["device"] != device) continue;
    for (auto const& block : segment["blocks"]) {
      if (live.erase(block["address"]) == 0) before += block["requested_size"].get<std::uint64_t>();
    }
  }
  EXPECT_TRUE(live.empty()) << "a block that was allocated is neither freed nor in a segment";
  std::vector<std::uint64_t> sums{before};
  for (auto const change : changes) sums.push_back(sums.back() + static_cast<std::uint64_t>(change));
  return sums;
}
using Sums = std::vector<std::uint64_t>;

[[nodiscard]] inline std::uint64_t requested(json const& snapshot) {
  std::uint64_t sum = 0;
  for (auto const& segment : snapshot["segments"]) sum += segment["requested_size"].get<std::uint64_t>();
  return sum;
}

}  // namespace headroom::test::torch
