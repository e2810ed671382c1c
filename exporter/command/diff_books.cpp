// Who holds memory, by the books of a flight file or a post-mortem. Tags are exact: they come from the tag cells, which count every allocation. Sites come
// from the live table; what it has no slot for, or what changes while we read, belongs to its tag without a site.
#include <algorithm>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "command/diff_sources.hpp"
#include "command/process_figures.hpp"

namespace headroom::command {
namespace {

[[nodiscard]] std::string name_of(std::string label) { return label.empty() ? "untagged" : std::move(label); }

/// "file.cpp:17 function", as far as the file knows.
[[nodiscard]] std::string site_of(follow::Source const& source, std::uint32_t id) {
  auto const name = source.name(id);
  return name && name->kind == flight::EntryKind::site ? name->label : std::string{};
}

void add(Holdings& holdings, Holder holder, std::uint64_t bytes) {
  if (bytes != 0) holdings[std::move(holder)] += bytes;
}

/// Bytes by ledger and tag, and by site within them.
class LiveTable {
public:
  LiveTable(follow::Source const& source, Holdings& holdings) {
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

}  // namespace

Holdings live_holdings(follow::Source const& records) {
  Holdings holdings;
  const LiveTable table{records, holdings};
  return holdings;
}

Result<Holdings> holdings_of_books(Source& source, HoldingsOptions const& options) {
  auto const records = source.records();
  if (!records) return tl::unexpected{records.error()};
  Holdings holdings;
  auto const managers = process_figures(**records).managers;
  if (options.at_peak) {
    for (auto const& manager : managers) {
      for (auto const& tag : manager.tags) add(holdings, {.tag = name_of(tag.name), .site = {}}, tag.at_peak_bytes);
    }
    return holdings;
  }
  LiveTable const table{**records, holdings};
  for (auto const& manager : managers) {
    for (auto const& tag : manager.tags) {
      auto const in_table = table.sum(manager.cell, tag.id);
      add(holdings, {.tag = name_of(tag.name), .site = {}}, tag.bytes - std::min(tag.bytes, in_table));
    }
  }
  return holdings;
}

}  // namespace headroom::command
