// A source that a test writes by hand: a ledger's operations as they happen, what a reader gets of them, and what the books say.
//
//   ScriptedSource script;
//   script.allocate(100, 0x1000, 64, 5);   // ticks, address, bytes, tag id
//   auto model = script.model();           // shares the script: what is written later is seen at the next poll
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

namespace headroom::follow {

/// What a program did and what can be read of it. All ledgers number their operations from 1.
struct Script {
  struct Book {
    std::uint64_t number = 0;
    flight::LedgerSnapshot snapshot;
  };

  std::map<std::uint32_t, Book> books;
  std::vector<flight::LiveAllocation> live;
  std::map<std::uint32_t, flight::DirectoryName> names;
  std::map<std::uint32_t, std::uint64_t> thread_ids;  ///< of threads that are numbered anew
  std::vector<AddressRegion> regions;
  std::vector<flight::Event> unread;
  std::vector<flight::Gap> gaps;
  std::vector<flight::ClockMap::Sync> syncs{{.ticks = 0, .monotonic_ns = 0, .realtime_ns = 1'000'000'000'000}};
  std::uint64_t now = 1;
  std::uint64_t records = 0;
  std::uint64_t lost = 0;
  std::uint64_t table_reads = 0;
  bool ended = false;
  bool record = true;    ///< false: operations change the books, and no record of them is ever read
  bool in_table = true;  ///< false: blocks find no slot
  std::uint32_t thread = 7;
  std::uint32_t ledger = 0;

  void name(std::uint32_t id, std::string label) {
    flight::DirectoryName entry;
    entry.label = std::move(label);
    names[id] = std::move(entry);
  }

  flight::LedgerSnapshot& book(std::uint32_t cell = 0) {
    auto& snapshot = books[cell].snapshot;
    snapshot.cell = cell;
    snapshot.state = flight::LedgerState::open;
    snapshot.generation = std::max<std::uint64_t>(snapshot.generation, 1);
    if (snapshot.name.empty()) snapshot.name = "ledger " + std::to_string(cell);
    return snapshot;
  }

  flight::Event event(flight::EventKind kind, std::uint64_t ticks, std::uint32_t tag = 0) {
    flight::Event made;
    made.kind = kind;
    made.ring = static_cast<unsigned>(kind) < 16 ? flight::Ring::main : flight::Ring::journal;
    made.number = records;
    made.ticks = ticks;
    made.words[0] = std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U;
    made.words[1] = ticks;
    made.words[5] = tag | (std::uint64_t{ledger} << 16U);
    made.words[7] = thread;
    now = std::max(now, ticks);
    return made;
  }

  /// Written, and read at the next poll.
  void put(flight::Event const& made) {
    if (!record) return;
    ++records;
    unread.push_back(made);
  }

  flight::Event operation(flight::EventKind kind, std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes,
                          std::uint32_t tag, std::uint32_t site) {
    auto& of_ledger = books[ledger];
    auto& snapshot = book(ledger);
    auto const adds = kind == flight::EventKind::allocate;
    snapshot.allocated = adds ? snapshot.allocated + bytes : snapshot.allocated - bytes;
    snapshot.peak = std::max(snapshot.peak, snapshot.allocated);
    ++(adds ? snapshot.counters.allocations : snapshot.counters.frees);
    auto made = event(kind, ticks, tag);
    made.words[2] = address;
    made.words[3] = bytes;
    made.words[4] = (++of_ledger.number << flight::kBytesBits) | snapshot.allocated;
    snapshot.operation_number = made.words[4] >> flight::kBytesBits;
    made.words[6] = site;
    if (!in_table) made.words[0] |= flight::kFlagUntracked;
    return made;
  }

  flight::Event make_allocate(std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0,
                              std::uint32_t site = 0) {
    auto made = operation(flight::EventKind::allocate, ticks, address, bytes, tag, site);
    flight::LiveAllocation slot;
    slot.address = address;
    slot.bytes = bytes;
    slot.ticks = ticks;
    slot.operation = made.words[4];
    slot.tag = tag;
    slot.site = site;
    slot.ledger = ledger;
    slot.thread = thread;
    if (in_table) live.push_back(slot);
    return made;
  }

  flight::Event make_free(std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0) {
    auto const here = [&](flight::LiveAllocation const& slot) { return slot.ledger == ledger && slot.address == address; };
    auto const slot = std::ranges::find_if(live, here);
    if (slot != live.end()) live.erase(slot);
    return operation(flight::EventKind::free, ticks, address, bytes, tag, 0);
  }

  void allocate(std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0, std::uint32_t site = 0) {
    put(make_allocate(ticks, address, bytes, tag, site));
  }
  void free(std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0) {
    put(make_free(ticks, address, bytes, tag));
  }
};

/// Ticks are nanoseconds.
class ScriptedSource final : public Source {
public:
  explicit ScriptedSource(std::shared_ptr<Script> script) : script_{std::move(script)} {}

  [[nodiscard]] SourceKind kind() const override { return SourceKind::flight; }
  [[nodiscard]] std::string title() const override { return "script"; }
  [[nodiscard]] Result<void> read(News& news) override {
    accepted_ += script_->unread.size();
    std::ranges::move(script_->unread, std::back_inserter(news.events));
    std::ranges::move(script_->gaps, std::back_inserter(news.gaps));
    script_->unread.clear();
    script_->gaps.clear();
    news.ended = script_->ended;
    return {};
  }
  [[nodiscard]] flight::ProcessInfo process() const override { return {}; }
  [[nodiscard]] flight::Liveness liveness() const override {
    return script_->ended ? flight::Liveness::dead : flight::Liveness::living;
  }
  [[nodiscard]] flight::ClockMap clock() const override { return {1'000'000'000, script_->syncs}; }
  [[nodiscard]] std::uint64_t now_ticks() const override { return script_->now; }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override {
    std::vector<flight::LedgerSnapshot> ledgers;
    for (auto const& [cell, book] : script_->books) {
      ledgers.push_back(book.snapshot);
      ledgers.back().claimed = std::max(book.snapshot.claimed, book.snapshot.allocated);
    }
    return ledgers;
  }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    ++script_->table_reads;
    for (auto const& slot : script_->live) visit(slot);
  }
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override {
    auto const found = script_->names.find(id);
    return found == script_->names.end() ? std::nullopt : std::optional{found->second};
  }
  [[nodiscard]] std::uint64_t thread_id(std::uint32_t thread) const override {
    auto const found = script_->thread_ids.find(thread);
    return found == script_->thread_ids.end() ? thread : found->second;
  }
  [[nodiscard]] std::vector<AddressRegion> regions(std::uint32_t /*ledger*/) const override { return script_->regions; }
  [[nodiscard]] std::uint64_t accepted() const override { return accepted_; }
  [[nodiscard]] std::uint64_t lost() const override { return script_->lost; }

private:
  std::shared_ptr<Script> script_;
  std::uint64_t accepted_ = 0;
};

/// A script that names two tags, 5 "weights" and 6 "cache", and two sites, 20 "a.cpp:1 f" and 21 "b.cpp:2 g". Nothing has happened.
inline std::shared_ptr<Script> named_script() {
  auto script = std::make_shared<Script>();
  script->name(5, "weights");
  script->name(6, "cache");
  script->name(20, "a.cpp:1 f");
  script->name(21, "b.cpp:2 g");
  return script;
}

inline Model model_of(std::shared_ptr<Script> script, Options const& options = {}) {
  return Model{std::make_unique<ScriptedSource>(std::move(script)), options};
}

}  // namespace headroom::follow
