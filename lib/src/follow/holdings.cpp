// Who holds how much, and what changed.
#include <algorithm>
#include <utility>

#include <headroom/holdings.hpp>

namespace headroom::follow {
namespace {

[[nodiscard]] std::string name_of(std::string label) { return label.empty() ? "untagged" : std::move(label); }

/// "file.cpp:17 function", as far as the source knows.
[[nodiscard]] std::string site_of(Source const& source, std::uint32_t id) {
  auto const name = source.name(id);
  return name && name->kind == flight::EntryKind::site ? name->label : std::string{};
}

void add(Holdings& holdings, Holder holder, std::uint64_t bytes) {
  if (bytes != 0) holdings[std::move(holder)] += bytes;
}

/// Bytes by ledger and tag, and by site within them.
class LiveTable {
public:
  LiveTable(Source const& source, Holdings& holdings) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, std::uint64_t>> found;
    source.for_each_live(
        [&found](flight::LiveAllocation const& live) { found[{live.ledger, live.tag}][live.site] += live.bytes; });
    for (auto const& [place, sites] : found) {
      auto const name = source.name(place.second);
      auto const tag = name_of(name ? name->label : std::string{});
      for (auto const& [site, bytes] : sites) {
        add(holdings, {.tag = tag, .site = site_of(source, site)}, bytes);
        sums_[place] += bytes;
      }
    }
  }

  [[nodiscard]] std::uint64_t sum(std::uint32_t ledger, std::uint32_t tag) const {
    auto const found = sums_.find({ledger, tag});
    return found == sums_.end() ? 0 : found->second;
  }

private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sums_;
};

/// Largest change first; of equal ones in the order of their names, so that the output is always the same.
[[nodiscard]] bool comes_first(HoldingChange const& a, HoldingChange const& b) {
  return a.size() != b.size() ? a.size() > b.size() : a.holder < b.holder;
}

}  // namespace

Holdings live_holdings(Source const& records) {
  Holdings holdings;
  const LiveTable table{records, holdings};
  return holdings;
}

Holdings holdings_of_books(Source const& records, std::span<flight::LedgerSnapshot const> managers) {
  Holdings holdings;
  LiveTable const table{records, holdings};
  for (auto const& manager : managers) {
    for (auto const& tag : manager.tags) {
      auto const in_table = table.sum(manager.cell, tag.id);
      add(holdings, {.tag = name_of(tag.name), .site = {}}, tag.bytes - std::min(tag.bytes, in_table));
    }
  }
  return holdings;
}

Holdings peak_holdings(std::span<flight::LedgerSnapshot const> managers) {
  Holdings holdings;
  for (auto const& manager : managers) {
    for (auto const& tag : manager.tags) add(holdings, {.tag = name_of(tag.name), .site = {}}, tag.at_peak_bytes);
  }
  return holdings;
}

HoldingsDifference compare(Holdings const& a, Holdings const& b) {
  std::map<Holder, HoldingChange> changes;
  HoldingsDifference difference;
  for (auto const& [holder, bytes] : a) {
    changes[holder].bytes_a = bytes;
    difference.bytes_a += bytes;
  }
  for (auto const& [holder, bytes] : b) {
    changes[holder].bytes_b = bytes;
    difference.bytes_b += bytes;
  }
  for (auto& [holder, change] : changes) {
    if (change.bytes_a == change.bytes_b) continue;
    change.holder = holder;
    auto& into = change.bytes_a == 0               ? difference.appeared
                 : change.bytes_b == 0             ? difference.vanished
                 : change.bytes_b > change.bytes_a ? difference.grown
                                                   : difference.shrunk;
    into.push_back(change);
  }
  for (auto* const list : {&difference.grown, &difference.vanished, &difference.appeared, &difference.shrunk}) {
    std::ranges::sort(*list, comes_first);
  }
  return difference;
}

}  // namespace headroom::follow
