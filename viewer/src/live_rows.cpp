#include "live_rows.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "event_filter.hpp"
#include "event_words.hpp"

namespace headroom::viewer {
namespace {

using follow::LiveBlock;

LiveRow row_of(LiveBlock block, follow::Source const& source) {
  return {.tag = std::move(block.tag),
          .site = std::move(block.site),
          .bytes = block.bytes,
          .oldest_ticks = block.ticks,
          .address = block.address,
          .thread = source.thread_id(block.thread)};
}

struct Group {
  LiveRow row;
  std::uint64_t largest = 0;
};

void add(Group& group, LiveBlock const& block, std::uint64_t thread, bool is_first) {
  auto& row = group.row;
  if (is_first) {
    row = {.tag = block.tag, .site = block.site, .bytes = 0, .blocks = 0, .oldest_ticks = block.ticks, .thread = thread};
  } else {
    row.has_several_tags = row.has_several_tags || row.tag != block.tag;
    row.has_several_sites = row.has_several_sites || row.site != block.site;
    row.has_several_threads = row.has_several_threads || row.thread != thread;
    if (!block.ticks || !row.oldest_ticks) {
      row.oldest_ticks.reset();
    } else {
      row.oldest_ticks = std::min(*row.oldest_ticks, *block.ticks);
    }
  }
  row.bytes += block.bytes;
  ++row.blocks;
  if (block.bytes <= group.largest) return;
  group.largest = block.bytes;
  row.tag = block.tag;
  row.site = block.site;
  row.thread = thread;
}

std::vector<LiveRow> grouped(std::vector<LiveBlock> const& blocks, LiveGrouping grouping, follow::Source const& source) {
  std::map<std::pair<std::string_view, std::uint64_t>, Group> groups;
  for (auto const& block : blocks) {
    auto const thread = source.thread_id(block.thread);
    std::pair<std::string_view, std::uint64_t> key{};
    if (grouping == LiveGrouping::tag) key.first = block.tag;
    if (grouping == LiveGrouping::site) key.first = block.site;
    if (grouping == LiveGrouping::thread) key.second = thread;
    auto const [found, is_first] = groups.try_emplace(key);
    add(found->second, block, thread, is_first);
  }
  std::vector<LiveRow> rows;
  rows.reserve(groups.size());
  for (auto& [key, group] : groups) rows.push_back(std::move(group.row));
  return rows;
}

void sort(std::vector<LiveRow>& rows, LiveQuery const& query) {
  auto const sorted_by = [&](auto const& value) {
    auto const comes_first = [&](LiveRow const& a, LiveRow const& b) {
      return query.is_descending ? value(b) < value(a) : value(a) < value(b);
    };
    std::ranges::stable_sort(rows, comes_first);
  };
  switch (query.order) {
    case LiveOrder::bytes: return sorted_by([](LiveRow const& row) { return row.bytes; });
    case LiveOrder::count: return sorted_by([](LiveRow const& row) { return row.blocks; });
    // The oldest have the largest age.
    case LiveOrder::age: return sorted_by([](LiveRow const& row) { return ~row.oldest_ticks.value_or(0); });
    case LiveOrder::name:
      return sorted_by([](LiveRow const& row) { return std::pair{std::string_view{row.tag}, std::string_view{row.site}}; });
  }
}

}  // namespace

LiveRows live_rows(follow::Model const& model, LiveQuery const& query) {
  LiveRows result;
  auto const state = model.state_at(query.ledger, query.ticks);
  result.known = state.known;
  result.allocated = state.allocated;
  result.unattributed_bytes = state.unattributed_bytes;
  auto blocks = model.live_at(query.ledger, query.ticks);
  auto const part = in_small_letters(query.text);
  std::erase_if(blocks, [&](LiveBlock const& block) {
    if (query.alive_since && block.ticks.value_or(0) >= *query.alive_since) return true;
    if (part.empty()) return false;
    auto const tag = block.tag.empty() ? kUntagged : std::string_view{block.tag};
    return !contains_in_any_case(tag, part) && !contains_in_any_case(block.site, part);
  });
  result.blocks = blocks.size();
  for (auto const& block : blocks) result.bytes += block.bytes;
  if (query.grouping != LiveGrouping::none) {
    result.rows = grouped(blocks, query.grouping, model.source());
  } else {
    result.rows.reserve(blocks.size());
    for (auto& block : blocks) result.rows.push_back(row_of(std::move(block), model.source()));
  }
  result.total = result.rows.size();
  sort(result.rows, query);
  if (result.rows.size() > query.most) result.rows.resize(query.most);
  return result;
}

std::vector<std::string> plain_live_columns() { return {"bytes", "blocks", "age_ns", "tag", "site", "thread", "address"}; }

PlainRow plain_live(follow::Model const& model, LiveRow const& row, std::uint64_t ticks) {
  std::optional<std::uint64_t> age;
  if (row.oldest_ticks) age = model.duration_ns(ticks - std::min(ticks, *row.oldest_ticks));
  std::optional<std::uint64_t> thread;
  if (!row.has_several_threads) thread = row.thread;
  auto const tag = row.tag.empty() ? kUntagged : std::string_view{row.tag};
  return {row.bytes,
          row.blocks,
          plain_figure(age),
          plain_text(row.has_several_tags ? std::string_view{} : tag),
          plain_text(row.has_several_sites ? std::string_view{} : row.site),
          plain_figure(thread),
          plain_text(row.address == 0 ? "" : address_in_words(row.address))};
}

PlainTable plain_live(follow::Model const& model, LiveRows const& rows, std::uint64_t ticks) {
  PlainTable table{.columns = plain_live_columns()};
  for (auto const& row : rows.rows) table.rows.push_back(plain_live(model, row, ticks));
  return table;
}

}  // namespace headroom::viewer
