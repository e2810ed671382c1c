// Call sites with what they hold, other names, and every live allocation, largest first.
#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

void Writer::write_sites() noexcept {
  json_.begin_array("sites");
  for (std::uint32_t id = 1; id < places_; ++id) {
    if (work_.places[id].kind != flight::EntryKind::site) continue;
    flight::RawName name;
    if (!flight::read_name(mapped_, id, name) || name.kind != flight::EntryKind::site) continue;
    json_.begin_object(Shape::flat);
    json_.member("id", id);
    json_.member("name", text_of(name.label));
    json_.member("line", name.number);
    json_.member("live_bytes", work_.sites[id].bytes);
    json_.member("live_allocations", work_.sites[id].blocks);
    json_.end_object();
  }
  json_.end_array();
}

// What events name besides: marks by id, logs by the number that their lines carry; hooks, tags and ledgers that are no more.
void Writer::write_names() noexcept {
  constexpr std::array<std::string_view, 8> kKinds{"", "", "ledger", "tag", "hook", "", "mark", "log"};
  static_assert(kKinds[static_cast<std::size_t>(flight::EntryKind::hook)] == "hook");
  static_assert(kKinds[static_cast<std::size_t>(flight::EntryKind::log)] == "log");
  json_.begin_array("names");
  for (std::uint32_t id = 1; id < places_; ++id) {
    const auto kind = work_.places[id].kind;
    const auto number = static_cast<std::size_t>(kind);
    if (number >= kKinds.size() || kKinds[number].empty()) continue;
    flight::RawName name;
    if (!flight::read_name(mapped_, id, name) || name.kind != kind) continue;
    const bool is_listed_elsewhere = kind != flight::EntryKind::mark && kind != flight::EntryKind::log;
    if (is_listed_elsewhere && name.state == flight::EntryState::open) continue;
    json_.begin_object(Shape::flat);
    json_.member("id", id);
    json_.member_word("kind", kKinds[number]);
    if (kind == flight::EntryKind::log) json_.member("number", name.number);
    json_.member("name", text_of(name.label));
    json_.end_object();
  }
  json_.end_array();
}

void Writer::write_live() noexcept {
  const auto keys = work_.live.first(live_listed_);
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(request_.options.most_live, keys.size()));
  if (most < keys.size()) std::ranges::nth_element(keys, keys.begin() + static_cast<std::ptrdiff_t>(most), std::greater{});
  std::ranges::sort(keys.first(most), std::greater{});

  json_.begin_object("live");
  json_.member("allocations", live_count_);
  json_.member("bytes", live_bytes_);
  json_.begin_array("columns", Shape::flat);
  for (auto const* const column : {"address", "bytes", "tag", "ledger", "site", "thread", "state", "alignment", "stream", "ticks",
                                   "operation", "slot", "generation"}) {
    json_.word(column);
  }
  json_.end_array();
  json_.begin_array("rows");
  std::uint64_t listed = 0;
  std::uint64_t listed_bytes = 0;
  const auto slot_of = [](LiveKey key) { return static_cast<std::uint32_t>(key & (kMostSlots - 1)); };
  const auto slots = mapped_.live_slots();
  for (std::size_t i = 0; i < most && json_.error() == 0; ++i) {
    // In the order of their sizes they lie all over the table.
    constexpr std::size_t kAhead = 16;
    if (i + kAhead < most) __builtin_prefetch(&slots[slot_of(keys[i + kAhead])]);
    // Read again: in a living process it may have been freed since, or be another one by now.
    flight::LiveAllocation allocation;
    if (flight::read_slot(mapped_, slot_of(keys[i]), allocation) != flight::GuardedRead::whole) continue;
    write_live_row(allocation);
    ++listed;
    listed_bytes += allocation.bytes;
  }
  json_.end_array();
  json_.member("listed", listed);
  json_.member("listed_bytes", listed_bytes);
  json_.end_object();
}

void Writer::write_live_row(flight::LiveAllocation const& allocation) noexcept {
  JsonStream::Row row{json_};
  row.hex(allocation.address);
  row.number(allocation.bytes);
  row.number(allocation.tag);
  row.number(allocation.ledger);
  row.number(allocation.site);
  row.number(allocation.thread);
  row.word(word_of(kSlotStateWords, allocation.state));
  row.number(allocation.alignment);
  row.hex(allocation.stream);
  row.number(allocation.ticks);
  row.hex(allocation.operation);
  row.number(allocation.slot);
  row.number(allocation.generation);
}

}  // namespace headroom::dump
