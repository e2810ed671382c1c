// A ledger's or tag's bytes for a plot: the range of values in each pixel column. Keyframes carry the range of all operations up to the
// next one, so that a column that holds whole keyframes costs one look for each.
#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "follow/model_impl.hpp"

namespace headroom::follow {
namespace {

class Columns {
public:
  Columns(std::uint64_t begin, std::uint64_t end, std::size_t count) : begin_{begin}, end_{end}, columns_(count) {}

  [[nodiscard]] std::size_t column_of(std::uint64_t ticks) const noexcept {
    return static_cast<std::size_t>(uint128{ticks - begin_} * columns_.size() / (end_ - begin_));
  }
  [[nodiscard]] bool is_before(std::uint64_t ticks) const noexcept { return ticks < begin_; }
  [[nodiscard]] bool is_after(std::uint64_t ticks) const noexcept { return ticks >= end_; }

  /// Values from `low` to `high` at instants from `from` to `to`, both included.
  void add(std::uint64_t from, std::uint64_t to, Range const& values, Known known) {
    if (to < begin_ || from >= end_ || to < from) return;
    auto const first = column_of(std::max(from, begin_));
    auto const last = column_of(std::min(to, end_ - 1));
    for (auto i = first; i <= last; ++i) {
      auto& column = columns_[i];
      auto const is_new = !column.has_value;
      column.low = is_new ? values.low : std::min(column.low, values.low);
      column.high = is_new ? values.high : std::max(column.high, values.high);
      column.has_value = true;
      note(column, known);
    }
  }
  void add_gap(std::uint64_t from, std::uint64_t to) {
    if (to < begin_ || from >= end_ || to < from) return;
    for (auto i = column_of(std::max(from, begin_)); i <= column_of(std::min(to, end_ - 1)); ++i) note(columns_[i], Known::gap);
  }
  [[nodiscard]] std::vector<SeriesColumn> take() { return std::move(columns_); }

private:
  static void note(SeriesColumn& column, Known known) {
    column.known = column.known == Known::forgotten ? known : std::max(column.known, known);
  }

  std::uint64_t begin_;
  std::uint64_t end_;
  std::vector<SeriesColumn> columns_;
};

/// One ledger's total, or one of its tags.
struct Of {
  std::optional<std::uint16_t> tag;

  [[nodiscard]] std::uint64_t value(Sums const& sums) const noexcept {
    if (!tag) return sums.allocated;
    return *tag < sums.tags.size() ? sums.tags[*tag].bytes : 0;
  }
  [[nodiscard]] Range range(Keyframe const& keyframe) const noexcept {
    if (!tag) return keyframe.allocated;
    return *tag < keyframe.tags.size() ? keyframe.tags[*tag] : Range{};
  }
  /// The total is exact whoever holds it.
  [[nodiscard]] Known known(Sums const& sums) const noexcept {
    return tag && sums.unattributed() != 0 ? Known::partial : Known::exact;
  }
  void step(std::uint64_t& value, Step const& step) const noexcept {
    if (!tag) {
      value = step.allocated;
    } else if (step.tag == *tag && step.adds()) {
      value += step.bytes;
    } else if (step.tag == *tag && (step.bits & Step::kUnmatched) == 0) {
      value = checked_sub(value, step.bytes).value_or(0);
    }
  }
};

/// From a keyframe up to the next one, or to the end of the chunk. Returns the value and the instant that it ends with.
void add_interval(Columns& columns, Of const& of, Chunk const& chunk, std::size_t index) {
  auto const& keyframe = chunk.keyframes[index];
  auto const end = index + 1 < chunk.keyframes.size() ? chunk.keyframes[index + 1].at : chunk.steps.size();
  auto const from = keyframe.at == 0 ? chunk.begin_ticks : chunk.steps[keyframe.at - 1].ticks;
  auto const to = end == 0 ? chunk.begin_ticks : chunk.steps[end - 1].ticks;
  if (columns.is_before(to) || columns.is_after(from)) return;
  auto const known = of.known(keyframe.sums);
  if (!columns.is_before(from) && !columns.is_after(to) && columns.column_of(from) == columns.column_of(to)) {
    columns.add(from, to, of.range(keyframe), known);
    return;
  }
  auto value = of.value(keyframe.sums);
  auto since = from;
  for (auto i = keyframe.at; i < end; ++i) {
    auto const& step = chunk.steps[i];
    // The value before it held up to the tick before; of several operations in one tick all were values of it.
    columns.add(since, step.ticks > since ? step.ticks - 1 : step.ticks, {value, value}, known);
    of.step(value, step);
    since = step.ticks;
  }
  columns.add(since, to, {value, value}, known);
}

}  // namespace

std::vector<SeriesColumn> Model::series(std::uint32_t ledger, std::optional<std::string_view> tag, std::uint64_t begin,
                                        std::uint64_t end, std::size_t columns) const {
  if (end <= begin || columns == 0) return {};
  Columns made{begin, end, columns};
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr) return made.take();
  Of of;
  if (tag) {
    auto const* const number = impl_->tags.find(*tag);
    of.tag = number == nullptr ? std::uint16_t{0xFFFF} : static_cast<std::uint16_t>(*number);
  }
  auto const& chunks = track->past.chunks();
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    auto const& chunk = chunks[c];
    if (made.is_after(chunk.begin_ticks)) break;
    auto const* const next = c + 1 < chunks.size() ? &chunks[c + 1] : nullptr;
    if (next != nullptr && made.is_before(next->begin_ticks)) continue;
    for (std::size_t k = 0; k < chunk.keyframes.size(); ++k) add_interval(made, of, chunk, k);
    // What it ended with holds up to the next chunk, or up to now; not into a gap.
    auto const last = chunk.steps.empty() ? chunk.begin_ticks : chunk.steps.back().ticks;
    auto const ends_in_gap = next != nullptr && next->segment != chunk.segment && !track->past.segment_of(*next).continues;
    if (ends_in_gap) {
      if (next->begin_ticks > last + 1) made.add_gap(last + 1, next->begin_ticks - 1);
      continue;
    }
    auto const sums = track->past.sums_at({.chunk = &chunk, .steps = chunk.steps.size(), .known = Known::exact, .missing = 0});
    auto const value = of.value(sums);
    if (next == nullptr && track->past.is_behind()) {
      made.add(last, last, {value, value}, of.known(sums));
      made.add_gap(last + 1, std::max(impl_->polled_ticks, last + 1));
      continue;
    }
    auto const until = next != nullptr ? next->begin_ticks : std::max(impl_->polled_ticks, last);
    made.add(last, until, {value, value}, of.known(sums));
  }
  return made.take();
}

}  // namespace headroom::follow
