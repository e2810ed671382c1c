// A recorded program of any size that nobody had to run: operations of one ledger, in which as many blocks are live all the time as it
// is told, and on request what else panels show: sites, refusals, hooks, pressure and the books.
//
//   auto const past = std::make_shared<MadePast const>(MadePast::Size{.operations = 1'000'000, .live = 65'536, .tags = 256});
//   follow::Model model{past->source(), {.memory_bytes = …}};
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

namespace headroom::bench {

class MadePast : public std::enable_shared_from_this<MadePast> {
public:
  struct Size {
    std::uint64_t operations = 1'000'000;
    std::uint64_t live = 4096;      // blocks, once the first so many operations have allocated them
    std::uint32_t tags = 16;        // names 1 … tags
    std::uint32_t sites = 0;        // names after those
    std::uint64_t shortages = 0;    // each a rise of pressure, a run of a hook and a refusal
    std::uint64_t larger_tags = 0;  // the first so many allocate twice as much: for a past that differs from another
  };
  static constexpr std::uint64_t kTicksApart = 100;

  explicit MadePast(Size const& size) : size_{size} {
    events_.reserve(size.operations + 5 * size.shortages);
    std::mt19937_64 random{1};
    blocks_.resize(size.live);
    std::uint64_t block = 0;
    for (std::uint64_t i = 0; i < size.operations; ++i) {
      auto const fills = i < size.live;
      auto const adds = fills || (i - size.live) % 2 != 0;
      if (fills) block = i;
      if (!adds) block = random() % size.live;
      operate(block, adds, i, random);
      if (size.shortages != 0 && (i + 1) % std::max<std::uint64_t>(size.operations / size.shortages, 1) == 0) fall_short();
    }
  }

  [[nodiscard]] std::uint64_t end_ticks() const noexcept { return ticks_ + 1; }
  [[nodiscard]] std::unique_ptr<follow::Source> source() const { return std::make_unique<Reader>(shared_from_this()); }

private:
  static constexpr std::uint64_t kTicksPerSecond = 1'000'000'000;
  static constexpr std::uint64_t kLimit = std::uint64_t{1} << 40U;

  [[nodiscard]] std::uint32_t hook() const noexcept { return size_.tags + size_.sites + 1; }

  flight::Event& add(flight::EventKind kind, std::uint64_t flags = 0) {
    flight::Event event;
    event.kind = kind;
    event.ring = static_cast<unsigned>(kind) < 16 ? flight::Ring::main : flight::Ring::journal;
    event.number = event.ring == flight::Ring::main ? main_++ : journal_++;
    event.ticks = ticks_;
    event.words[0] = (std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U) | flags;
    event.words[1] = ticks_;
    return events_.emplace_back(event);
  }

  void operate(std::uint64_t block, bool adds, std::uint64_t i, std::mt19937_64& random) {
    ticks_ += kTicksApart;
    auto& live = blocks_[block];
    auto const tag = static_cast<std::uint32_t>(1 + block % size_.tags);
    if (adds) {
      live.address = 0x7F00'0000'0000 + block * 262'144;
      live.bytes = (256 + random() % 65'536) * (tag <= size_.larger_tags ? 2 : 1);
      live.tag = tag;
      live.site = size_.sites == 0 ? 0 : static_cast<std::uint32_t>(size_.tags + 1 + random() % size_.sites);
      live.ticks = ticks_;
      allocated_ += live.bytes;
    } else {
      allocated_ -= live.bytes;
    }
    auto& event = add(adds ? flight::EventKind::allocate : flight::EventKind::free);
    event.words[2] = live.address;
    event.words[3] = live.bytes;
    event.words[4] = ((i + 1) << flight::kBytesBits) | allocated_;
    event.words[5] = tag;
    event.words[6] = live.site;
    live.operation = event.words[4];
    peak_ = std::max(peak_, allocated_);
    if (!adds) live.bytes = 0;
  }

  void fall_short() {
    auto const bytes = std::uint64_t{1} << 30U;
    pressure_ = pressure_ == PressureLevel::low ? PressureLevel::high : PressureLevel::low;
    add(flight::EventKind::pressure).words[2] = static_cast<std::uint64_t>(pressure_) << 8U;
    auto& begin = add(flight::EventKind::hook_begin);
    begin.words[2] = begin.words[3] = begin.words[6] = bytes;
    begin.words[5] = std::uint64_t{hook()} << 28U;
    auto& end = add(flight::EventKind::hook_end);
    end.words[5] = std::uint64_t{hook()} << 28U;
    end.words[flight::HookEnd::kNs] = 50;
    auto& refusal = add(flight::EventKind::refusal);
    refusal.words[2] = refusal.words[3] = bytes;
    refusal.words[5] = 1 | (std::uint64_t{64 + static_cast<unsigned>(Layer::manager)} << 40U);  // over_budget
    add(flight::EventKind::refusal, flight::kFlagContinues);
  }

  class Reader final : public follow::Source {
  public:
    explicit Reader(std::shared_ptr<MadePast const> past) : past_{std::move(past)} {}
    [[nodiscard]] follow::SourceKind kind() const override { return follow::SourceKind::dump; }
    [[nodiscard]] std::string title() const override { return "bench"; }
    [[nodiscard]] Result<void> read(follow::News& news) override {
      constexpr std::size_t kBatch = 16'384;
      auto const& events = past_->events_;
      auto const end = std::min(next_ + kBatch, events.size());
      news.events.assign(events.begin() + static_cast<std::ptrdiff_t>(next_), events.begin() + static_cast<std::ptrdiff_t>(end));
      next_ = end;
      news.more = next_ < events.size();
      news.ended = !news.more;
      return {};
    }
    [[nodiscard]] flight::ProcessInfo process() const override { return {}; }
    [[nodiscard]] flight::Liveness liveness() const override { return flight::Liveness::dead; }
    [[nodiscard]] flight::ClockMap clock() const override { return {kTicksPerSecond, {}}; }
    [[nodiscard]] std::uint64_t now_ticks() const override { return next_ == 0 ? 0 : past_->events_[next_ - 1].ticks; }
    [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override {
      if (next_ < past_->events_.size()) return {};
      return {past_->books()};
    }
    void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
      for (auto const& block : past_->blocks_) {
        if (block.bytes != 0) visit(block);
      }
    }
    [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override {
      flight::DirectoryName name;
      auto const& size = past_->size_;
      auto const is_site = id > size.tags && id <= size.tags + size.sites;
      name.kind = is_site ? flight::EntryKind::site : id > size.tags ? flight::EntryKind::hook : flight::EntryKind::tag;
      name.label = is_site ? "source/file_" + std::to_string(id % 37) + ".cpp:" + std::to_string(id) + " make"
                           : (id > size.tags ? "hook " : "tag ") + std::to_string(id);
      return name;
    }
    [[nodiscard]] std::uint64_t accepted() const override { return next_; }

  private:
    std::shared_ptr<MadePast const> past_;
    std::size_t next_ = 0;
  };

  [[nodiscard]] flight::LedgerSnapshot books() const {
    flight::LedgerSnapshot book;
    book.generation = 1;
    book.state = flight::LedgerState::open;
    book.name = "main";
    book.operation_number = size_.operations;
    book.claimed = book.allocated = allocated_;
    book.peak = peak_;
    book.limit = kLimit;
    for (std::uint32_t id = 1; id <= size_.tags; ++id) book.tags.push_back({.id = id, .name = "tag " + std::to_string(id)});
    for (auto const& block : blocks_) {
      if (block.bytes == 0) continue;
      ++book.live_allocations;
      book.tags[block.tag - 1].bytes += block.bytes;
    }
    std::ranges::sort(book.tags, std::ranges::greater{}, &flight::TagSnapshot::bytes);
    return book;
  }

  Size size_;
  std::vector<flight::Event> events_;
  std::vector<flight::LiveAllocation> blocks_;  // those of 0 bytes are free
  std::uint64_t ticks_ = 0, allocated_ = 0, peak_ = 0, main_ = 0, journal_ = 0;
  PressureLevel pressure_ = PressureLevel::low;
};

}  // namespace headroom::bench
