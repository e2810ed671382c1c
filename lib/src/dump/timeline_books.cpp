#include "dump/timeline_books.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

namespace headroom::dump {
namespace {

/// The same block in two looks at what is live.
[[nodiscard]] std::pair<std::uint64_t, std::uint64_t> key_of(TimelineBlock const& block) noexcept {
  return {block.address, block.bytes};
}

/// An order that does not hang on how a table lies in memory.
[[nodiscard]] bool is_before(TimelineBlock const& a, TimelineBlock const& b) noexcept {
  return std::tuple{a.allocated_ns, a.address, a.bytes} < std::tuple{b.allocated_ns, b.address, b.bytes};
}

}  // namespace

TimelineBlock TimelineBooks::to_block(std::uint32_t ledger, std::uint64_t address, Live::Live const& live) {
  auto const& held = live.value;
  return {.ledger = ledger,
          .address = address,
          .bytes = live.bytes,
          .tag = held.tag,
          .site = held.site,
          .thread = held.thread,
          .stream = held.stream,
          .allocated_ns = held.allocated_ns};
}

void TimelineBooks::insert(Ledger& ledger, TimelineBlock const& block) {
  static_cast<void>(ledger.live.insert(block.address, block.bytes,
                                       {.thread = block.thread,
                                        .stream = block.stream,
                                        .allocated_ns = block.allocated_ns,
                                        .tag = block.tag,
                                        .site = block.site}));
  ledger.known += block.bytes;
}

std::uint32_t TimelineBooks::add_ledger(TimelineLedger info) {
  info.id = static_cast<std::uint32_t>(ledgers_.size());
  auto& ledger = ledgers_.emplace_back();
  ledger.allocated = info.is_device_account ? 0 : info.allocated;
  ledger.info = std::move(info);
  visitor_->ledger(ledger.info);
  return ledger.info.id;
}

void TimelineBooks::add_before(TimelineBlock const& block) {
  insert(ledgers_[block.ledger], block);
  ++totals_.before;
  visitor_->before(block);
}

void TimelineBooks::apply(TimelineOperation operation) {  // NOLINT(performance-unnecessary-value-param): it is filled in
  auto& ledger = ledgers_[operation.block.ledger];
  operation.known = true;
  if (operation.kind == flight::EventKind::allocate) {
    if (!operation.assumed) operation.block.allocated_ns = static_cast<std::int64_t>(operation.time_ns);
    insert(ledger, operation.block);
  } else if (auto const taken = ledger.live.take(operation.block.address, operation.block.bytes); taken) {
    ledger.known -= taken->bytes;
    operation.block.bytes = taken->bytes;
    operation.block.tag = taken->value.tag;
    operation.block.site = taken->value.site;
    operation.block.allocated_ns = taken->value.allocated_ns;
  } else {
    operation.known = false;
    ++totals_.unknown_frees;
  }
  ledger.allocated = operation.allocated_after;
  if (!operation.assumed) operation.unattributed_after = ledger.unattributed();
  ++(operation.assumed ? totals_.assumed : totals_.events);
  visitor_->operation(operation);
}

void TimelineBooks::apply_gap(TimelineGap gap, std::vector<TimelineBlock> live) {
  auto& ledger = ledgers_[gap.ledger];
  ++totals_.gaps;
  totals_.operations_missing += gap.missing;
  ledger.allocated = gap.allocated_after;
  std::uint64_t known = 0;
  for (auto const& block : live) known += block.bytes;
  gap.unattributed_after = gap.allocated_after > known ? gap.allocated_after - known : 0;
  visitor_->gap(gap);
  std::ranges::sort(live, is_before);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> still;
  for (auto const& block : live) ++still[key_of(block)];
  auto const assume = [&](flight::EventKind kind, TimelineBlock const& block) {
    TimelineOperation operation;
    operation.kind = kind;
    operation.time_ns = gap.time_ns;
    operation.block = block;
    operation.allocated_after = gap.allocated_after;
    operation.unattributed_after = gap.unattributed_after;
    operation.assumed = true;
    apply(operation);
  };
  auto before = live_of(gap.ledger);
  for (auto const& block : before) {
    if (stopped()) return;
    if (auto const found = still.find(key_of(block)); found != still.end() && found->second != 0) {
      --found->second;
    } else {
      assume(flight::EventKind::free, block);
    }
  }
  // What is left in `still` is new: of two alike the younger ones.
  for (auto& block : std::views::reverse(live)) {
    auto& count = still[key_of(block)];
    if (count == 0) {
      block.bytes = 0;
    } else {
      --count;
    }
  }
  for (auto const& block : live) {
    if (stopped()) return;
    if (block.bytes != 0) assume(flight::EventKind::allocate, block);
  }
}

void TimelineBooks::note(TimelineNote const& note) {
  ++totals_.events;
  visitor_->note(note);
}

void TimelineBooks::end(TimelineEnd end) {
  for (auto const& ledger : ledgers_) {
    if (ledger.info.is_device_account) continue;
    totals_.unattributed_bytes += ledger.unattributed();
  }
  totals_.events_lost = end.events_lost;
  visitor_->end(end);
}

std::vector<TimelineBlock> TimelineBooks::live_of(std::uint32_t id) const {
  std::vector<TimelineBlock> blocks;
  blocks.reserve(ledgers_[id].live.size());
  ledgers_[id].live.for_each(
      [&](std::uint64_t address, Live::Live const& live) { blocks.push_back(to_block(id, address, live)); });
  std::ranges::sort(blocks, is_before);
  return blocks;
}

void TimelineBooks::for_each_live(std::function<void(TimelineBlock const&)> const& visit) const {
  for (auto const& ledger : ledgers_) {
    ledger.live.for_each([&](std::uint64_t address, Live::Live const& live) { visit(to_block(ledger.info.id, address, live)); });
  }
}

}  // namespace headroom::dump
