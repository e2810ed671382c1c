#include "peak_data.hpp"

#include <algorithm>
#include <utility>

namespace headroom::viewer {
namespace {

std::vector<PeakTag> compared(std::vector<follow::TagFigures> const& then, std::vector<follow::TagFigures> const& now,
                              bool counts) {
  std::vector<PeakTag> tags;
  tags.reserve(then.size());
  for (auto const& tag : then) {
    tags.push_back(
        {.name = tag.name, .then = tag.bytes, .now = 0, .allocations = counts ? std::optional{tag.allocations} : std::nullopt});
  }
  for (auto const& tag : now) {
    auto const found = std::ranges::find(tags, tag.name, &PeakTag::name);
    if (found != tags.end()) {
      found->now = tag.bytes;
    } else {
      tags.push_back({.name = tag.name, .then = 0, .now = tag.bytes});
    }
  }
  return tags;
}

TickRange kept_until(follow::Model const& model, std::uint64_t until) {
  return {.begin = model.first_ticks(), .end = std::min(until, ~std::uint64_t{0} - 1) + 1};
}

}  // namespace

std::optional<std::uint64_t> highest_in(follow::Model const& model, std::uint32_t ledger, TickRange range) {
  constexpr std::uint64_t kColumns = 256;
  if (range.empty()) return std::nullopt;
  // Columns know their largest value; the first that has the largest of all is looked into, until it is a tick wide.
  while (range.length() > 1) {
    auto const columns = static_cast<std::size_t>(std::min(kColumns, range.length()));
    auto const series = model.series(ledger, std::nullopt, range.begin, range.end, columns);
    auto const value = [](follow::SeriesColumn const& column) { return column.has_value ? column.high + 1 : 0; };
    auto const best = std::ranges::max_element(series, {}, value);
    if (best == series.end() || !best->has_value) return std::nullopt;
    auto const place = static_cast<std::uint64_t>(best - series.begin());
    auto const edge = [&](std::uint64_t column) {
      // As the series cuts it: the first tick whose place among the columns is this one.
      return range.begin + range.length() / columns * column + (range.length() % columns * column + columns - 1) / columns;
    };
    TickRange const next{.begin = edge(place), .end = std::max(edge(place + 1), edge(place) + 1)};
    if (next == range) break;
    range = next;
  }
  auto const state = model.state_at(ledger, range.begin);
  return state.known == follow::Known::forgotten || state.known == follow::Known::no_ledger ||
                 state.known == follow::Known::not_recorded
             ? std::nullopt
             : std::optional{range.begin};
}

std::optional<std::uint64_t> peak_ticks(follow::Model const& model, std::uint32_t ledger, std::optional<std::uint64_t> until) {
  auto const peak = model.peak(ledger).ticks;
  return peak && until && *peak > *until ? highest_in(model, ledger, kept_until(model, *until)) : peak;
}

PeakData peak_data(follow::Model const& model, std::uint32_t ledger, std::optional<TickRange> range, std::uint64_t now,
                   std::optional<std::uint64_t> until) {
  PeakData data;
  std::vector<follow::TagFigures> then;
  auto peak = range ? follow::PeakAnswer{} : model.peak(ledger);
  if (until && peak.ticks && *peak.ticks > *until) {
    range = kept_until(model, *until);
    data.is_of_kept = true;
  }
  if (range) {
    data.ticks = highest_in(model, ledger, *range);
    if (!data.ticks) return data;
    auto state = model.state_at(ledger, *data.ticks);
    data.bytes = state.allocated;
    data.unattributed_bytes = state.unattributed_bytes;
    then = std::move(state.tags);
  } else {
    data.bytes = peak.bytes;
    data.ticks = peak.ticks;
    data.is_from_books = peak.from_books;
    data.unattributed_bytes = peak.unattributed_bytes;
    then = std::move(peak.tags);
  }
  data.tags = compared(then, model.state_at(ledger, now).tags, !data.is_from_books);
  if (data.ticks) {
    auto const state = model.state_at(ledger, *data.ticks);
    if (state.limit_known) data.limit = state.limit;
    data.sites = live_rows(model, {.ledger = ledger, .ticks = *data.ticks, .grouping = LiveGrouping::site});
  }
  return data;
}

}  // namespace headroom::viewer
