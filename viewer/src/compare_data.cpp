#include "compare_data.hpp"

#include <algorithm>
#include <string>

namespace headroom::viewer {
namespace {

void add(Comparison& comparison, std::vector<follow::HoldingChange>& changes, ChangeKind kind) {
  for (auto& change : changes) comparison.rows.push_back({.kind = kind, .change = std::move(change)});
}

std::string word_of(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::grown: return "grown";
    case ChangeKind::appeared: return "appeared";
    case ChangeKind::shrunk: return "shrunk";
    case ChangeKind::vanished: return "vanished";
  }
  return {};
}

}  // namespace

follow::Holdings holdings_of(follow::Model const& model, bool at_peak) {
  std::vector<flight::LedgerSnapshot> managers;
  for (auto const& ledger : model.ledgers()) {
    if (!ledger.is_device_account) managers.push_back(ledger);  // what accounts hold is their managers'
  }
  if (!at_peak) return follow::holdings_of_books(model.source(), managers);
  follow::Holdings holdings;
  for (auto const& manager : managers) {
    for (auto const& tag : model.peak(manager.cell).tags) {
      if (tag.bytes != 0) holdings[{.tag = tag.name.empty() ? "untagged" : tag.name, .site = {}}] += tag.bytes;
    }
  }
  return holdings;
}

Comparison comparison_of(follow::Holdings const& a, follow::Holdings const& b) {
  auto difference = follow::compare(a, b);
  Comparison comparison{.bytes_a = difference.bytes_a, .bytes_b = difference.bytes_b, .rows = {}};
  add(comparison, difference.grown, ChangeKind::grown);
  add(comparison, difference.appeared, ChangeKind::appeared);
  add(comparison, difference.shrunk, ChangeKind::shrunk);
  add(comparison, difference.vanished, ChangeKind::vanished);
  std::ranges::stable_sort(comparison.rows, std::ranges::greater{}, [](ChangeRow const& row) { return row.change.size(); });
  return comparison;
}

PlainTable plain_comparison(Comparison const& comparison) {
  PlainTable table;
  table.columns = {"change", "tag", "site", "bytes_a", "bytes_b"};
  for (auto const& row : comparison.rows) {
    auto const& holder = row.change.holder;
    table.rows.push_back({word_of(row.kind), holder.tag, plain_text(holder.site), row.change.bytes_a, row.change.bytes_b});
  }
  return table;
}

}  // namespace headroom::viewer
