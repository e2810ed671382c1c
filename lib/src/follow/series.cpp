// A ledger's or its tags' bytes for a plot: the range of values in each pixel column.
//
// The past has ranges of whole stretches of operations: of what is allocated every 64 (Chunk::heights), of tags from one keyframe to
// the next. A stretch within one column costs one look; only those that an edge of a column cuts are walked. So a plot costs its columns
// times what a stretch has, however long the past is.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "base/checked.hpp"
#include "follow/model_impl.hpp"

namespace headroom::follow {
namespace {

/// Plots of several values with the same columns.
class Columns {
public:
  Columns(std::uint64_t begin, std::uint64_t end, std::size_t count, std::size_t plots)
      : begin_{begin}, end_{end}, count_{count}, plots_(plots, std::vector<SeriesColumn>(count)) {}

  [[nodiscard]] bool is_before(std::uint64_t ticks) const noexcept { return ticks < begin_; }
  [[nodiscard]] bool is_after(std::uint64_t ticks) const noexcept { return ticks >= end_; }
  /// All instants from `from` to `to` lie in one column.
  [[nodiscard]] bool is_one(std::uint64_t from, std::uint64_t to) noexcept {
    if (is_before(from) || is_after(to)) return false;
    go_to(from);
    return to < next_;
  }

  /// A value of one plot was from `low` to `high` at instants from `from` to `to`, both included.
  void add(std::size_t plot, std::uint64_t from, std::uint64_t to, Range const& values, Known known) {
    for_each_column(from, to, [&](std::size_t column) { add(plots_[plot][column], values, known); });
  }
  /// Each plot had its value from `from` to `to`, both included.
  void hold(std::span<std::uint64_t const> values, std::uint64_t from, std::uint64_t to, Known known) {
    for_each_column(from, to, [&](std::size_t column) {
      for (std::size_t plot = 0; plot < values.size(); ++plot) add(plots_[plot][column], {values[plot], values[plot]}, known);
    });
  }
  void add_gap(std::uint64_t from, std::uint64_t to) {
    for_each_column(from, to, [&](std::size_t column) {
      for (auto& plot : plots_) note(plot[column], Known::gap);
    });
  }

  /// Each plot had its value at `ticks`. Until `next()`, widen() adds to the same column. False: that is not in the range.
  [[nodiscard]] bool open(std::span<std::uint64_t const> values, std::uint64_t ticks, Known known) {
    if (is_before(ticks) || is_after(ticks)) return false;
    hold(values, ticks, ticks, known);
    return true;
  }
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  void widen(std::size_t plot, std::uint64_t value) noexcept {
    auto& column = plots_[plot][at_];
    column.low = std::min(column.low, value);
    column.high = std::max(column.high, value);
  }

  [[nodiscard]] std::vector<std::vector<SeriesColumn>> take() { return std::move(plots_); }

private:
  static void note(SeriesColumn& column, Known known) {
    column.known = column.known == Known::forgotten ? known : std::max(column.known, known);
  }
  static void add(SeriesColumn& column, Range const& values, Known known) {
    auto const is_new = !column.has_value;
    column.low = is_new ? values.low : std::min(column.low, values.low);
    column.high = is_new ? values.high : std::max(column.high, values.high);
    column.has_value = true;
    note(column, known);
  }
  template <typename Visit>
  void for_each_column(std::uint64_t from, std::uint64_t to, Visit&& visit) {
    if (to < begin_ || from >= end_ || to < from) return;
    go_to(std::max(from, begin_));
    auto const first = at_;
    go_to(std::min(to, end_ - 1));
    for (auto column = first; column <= at_; ++column) visit(column);
  }
  /// The first tick of a column, or of the next one that has any.
  [[nodiscard]] std::uint64_t begin_of(std::size_t column) const noexcept {
    return begin_ + static_cast<std::uint64_t>((uint128{column} * (end_ - begin_) + count_ - 1) / count_);
  }
  /// Divides only when it leaves the column: neighbours are mostly in the same one.
  void go_to(std::uint64_t ticks) noexcept {
    if (ticks >= first_ && ticks < next_) return;
    at_ = static_cast<std::size_t>(uint128{ticks - begin_} * count_ / (end_ - begin_));
    first_ = begin_of(at_);
    next_ = begin_of(at_ + 1);
  }

  std::uint64_t begin_;
  std::uint64_t end_;
  std::size_t count_;
  std::vector<std::vector<SeriesColumn>> plots_;
  // The column that was looked at last, and the ticks from its first to the next one's.
  std::size_t at_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// What a whole chunk ended with.
Sums ending(LedgerPast const& past, Chunk const& chunk) {
  return past.sums_at({.chunk = &chunk, .steps = chunk.steps.size(), .known = Known::exact, .missing = 0});
}

std::uint64_t ticks_before(Chunk const& chunk, std::size_t step) {
  return step == 0 ? chunk.begin_ticks : chunk.steps[step - 1].ticks;
}

/// Steps [first, last) one by one. `values` are those before them, and afterwards those after them.
template <typename Values>
void walk(Columns& columns, Values& values, Chunk const& chunk, std::size_t first, std::size_t last, Known known) {
  auto since = ticks_before(chunk, first);
  auto is_open = false;
  for (auto i = first; i < last; ++i) {
    auto const& step = chunk.steps[i];
    if (is_open && step.ticks < columns.next()) {
      if (auto const plot = values.take(step); plot != kNone) columns.widen(plot, values.all()[plot]);
    } else {
      if (columns.is_after(since)) return;
      // The values before it held up to the tick before; of several operations in one tick all were values of it.
      columns.hold(values.all(), since, step.ticks > since ? step.ticks - 1 : step.ticks, known);
      values.take(step);
      is_open = columns.open(values.all(), step.ticks, known);
    }
    since = step.ticks;
  }
}

/// One ledger's total.
class Total {
public:
  [[nodiscard]] std::span<std::uint64_t const> all() const noexcept { return value_; }
  std::size_t take(Step const& step) noexcept {
    value_[0] = step.allocated;
    return 0;
  }

  void add_chunk(Columns& columns, Chunk const& chunk) {
    for (std::size_t i = 0; i < chunk.heights.size(); ++i) {
      auto const first = i * LedgerPast::kHeightSteps;
      auto const last = std::min(first + LedgerPast::kHeightSteps, chunk.steps.size());
      auto const from = ticks_before(chunk, first);
      auto const to = chunk.steps[last - 1].ticks;
      if (columns.is_before(to)) continue;
      if (columns.is_after(from)) return;
      auto const before = first == 0 ? chunk.keyframes.front().sums.allocated : chunk.steps[first - 1].allocated;
      if (columns.is_one(from, to)) {
        auto const& height = chunk.heights[i];
        columns.add(0, from, to, {std::min(before, height.low), std::max(before, height.high)}, Known::exact);
      } else {
        value_[0] = before;
        walk(columns, *this, chunk, first, last, Known::exact);
      }
    }
  }
  /// Its values at the end of the chunk, and how far they are known: the total is exact whoever holds it.
  Known end(LedgerPast const& /*past*/, Chunk const& chunk) {
    value_[0] = chunk.steps.empty() ? chunk.keyframes.front().sums.allocated : chunk.steps.back().allocated;
    return Known::exact;
  }

private:
  std::array<std::uint64_t, 1> value_{};
};

/// Some of its tags. One that nobody ever had has no number, and held nothing.
class Tags {
public:
  Tags(Names const& names, std::span<std::string const> tags) : values_(tags.size()) {
    for (std::size_t plot = 0; plot < tags.size(); ++plot) {
      auto const* const number = names.find(tags[plot]);
      numbers_.push_back(number == nullptr ? kNone : *number);
      if (number == nullptr) continue;
      if (*number >= plots_.size()) plots_.resize(*number + 1, kNone);
      plots_[*number] = plot;
    }
  }

  [[nodiscard]] std::span<std::uint64_t const> all() const noexcept { return values_; }
  std::size_t take(Step const& step) noexcept {
    auto const plot = step.tag < plots_.size() ? plots_[step.tag] : kNone;
    if (plot == kNone) return kNone;
    if (step.adds()) {
      values_[plot] += step.bytes;
    } else if ((step.bits & Step::kUnmatched) == 0) {
      values_[plot] = checked_sub(values_[plot], step.bytes).value_or(0);
    }
    return plot;
  }

  void add_chunk(Columns& columns, Chunk const& chunk) {
    for (std::size_t k = 0; k < chunk.keyframes.size(); ++k) {
      auto const& keyframe = chunk.keyframes[k];
      auto const last = k + 1 < chunk.keyframes.size() ? chunk.keyframes[k + 1].at : chunk.steps.size();
      auto const from = ticks_before(chunk, keyframe.at);
      auto const to = ticks_before(chunk, last);
      if (columns.is_before(to)) continue;
      if (columns.is_after(from)) return;
      auto const known = known_of(keyframe.sums);
      if (columns.is_one(from, to)) {
        for (std::size_t plot = 0; plot < numbers_.size(); ++plot) {
          auto const number = numbers_[plot];
          columns.add(plot, from, to, number < keyframe.tags.size() ? keyframe.tags[number] : Range{}, known);
        }
      } else {
        begin_with(keyframe.sums);
        walk(columns, *this, chunk, keyframe.at, last, known);
      }
    }
  }
  Known end(LedgerPast const& past, Chunk const& chunk) {
    auto const sums = ending(past, chunk);
    begin_with(sums);
    return known_of(sums);
  }

private:
  static Known known_of(Sums const& sums) noexcept { return sums.unattributed() != 0 ? Known::partial : Known::exact; }
  void begin_with(Sums const& sums) {
    for (std::size_t plot = 0; plot < numbers_.size(); ++plot) {
      auto const number = numbers_[plot];
      values_[plot] = number < sums.tags.size() ? sums.tags[number].bytes : 0;
    }
  }

  std::vector<std::size_t> numbers_;  // of each plot's tag
  std::vector<std::size_t> plots_;    // by number; kNone: not asked for
  std::vector<std::uint64_t> values_;
};

template <typename Values>
void plot(Columns& columns, Values& values, LedgerPast const& past, std::uint64_t polled_ticks) {
  auto const& chunks = past.chunks();
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    auto const& chunk = chunks[c];
    if (columns.is_after(chunk.begin_ticks)) break;
    auto const* const next = c + 1 < chunks.size() ? &chunks[c + 1] : nullptr;
    if (next != nullptr && columns.is_before(next->begin_ticks)) continue;
    values.add_chunk(columns, chunk);
    // What it ended with holds up to the next chunk, or up to now; not into a gap.
    auto const last = ticks_before(chunk, chunk.steps.size());
    if (columns.is_after(last)) break;
    auto const known = values.end(past, chunk);
    if (next != nullptr) {
      auto const ends_in_gap = next->segment != chunk.segment && !past.segment_of(*next).continues;
      columns.hold(values.all(), last, ends_in_gap ? last : next->begin_ticks, known);
      if (ends_in_gap && next->begin_ticks > last + 1) columns.add_gap(last + 1, next->begin_ticks - 1);
    } else if (past.is_behind()) {
      columns.hold(values.all(), last, last, known);
      columns.add_gap(last + 1, std::max(polled_ticks, last + 1));
    } else {
      columns.hold(values.all(), last, std::max(polled_ticks, last), known);
    }
  }
}

}  // namespace

std::vector<SeriesColumn> Model::series(std::uint32_t ledger, std::optional<std::string_view> tag, std::uint64_t begin,
                                        std::uint64_t end, std::size_t columns) const {
  if (end <= begin || columns == 0) return {};
  if (tag) return std::move(series_of_tags(ledger, std::array{std::string{*tag}}, begin, end, columns).front());
  Columns made{begin, end, columns, 1};
  Total total;
  if (auto const* const track = impl_->track_of(ledger)) plot(made, total, track->past, impl_->polled_ticks);
  return std::move(made.take().front());
}

std::vector<std::vector<SeriesColumn>> Model::series_of_tags(std::uint32_t ledger, std::span<std::string const> tags,
                                                             std::uint64_t begin, std::uint64_t end, std::size_t columns) const {
  if (end <= begin || columns == 0) return std::vector<std::vector<SeriesColumn>>(tags.size());
  Columns made{begin, end, columns, tags.size()};
  Tags values{impl_->tags, tags};
  if (auto const* const track = impl_->track_of(ledger)) plot(made, values, track->past, impl_->polled_ticks);
  return made.take();
}

}  // namespace headroom::follow
