#include "event_rows.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "event_filter.hpp"
#include "event_words.hpp"

namespace headroom::viewer {
namespace {

bool has_alloc_word(flight::EventKind kind) noexcept {
  using enum flight::EventKind;
  return kind == peak || kind == free_failed || kind == write_off || kind == trim || kind == refusal || kind == observed;
}

EventRow row_of(follow::Operation const& operation) {
  return {.what = EventRow::What::operation,
          .kind = operation.kind,
          .is_recovered = operation.recovered,
          .ledger = operation.ledger,
          .thread = operation.thread,
          .duration_ns = operation.duration_ns,
          .ticks = operation.ticks,
          .address = operation.address,
          .bytes = operation.bytes,
          .used_after = operation.allocated_after,
          .tag = operation.tag,
          .site = operation.site};
}

}  // namespace

EventRows::EventRows() : filter_{std::make_unique<EventFilter>()} {}
EventRows::~EventRows() = default;

std::string const& EventRows::complaint() const noexcept { return filter_->complaint(); }

void EventRows::forget() {
  is_empty_ = true;
  ++generation_;
  streams_.clear();
  rows_.clear();
  journal_from_ = last_ticks_ = matching_ = 0;
}

bool EventRows::update(follow::Model const& model, EventQuery const& query, std::uint64_t revision) {
  if (!is_empty_ && query == query_ && revision == revision_) return false;
  auto grown = query;
  grown.range.end = query_.range.end;
  if (is_empty_ || !(grown == query_) || query.range.end < query_.range.end) {
    forget();
    filter_ = std::make_unique<EventFilter>(query.filter);
    journal_from_ = query.range.begin;
  }
  auto const is_news = is_empty_ || revision != revision_;
  auto const saw_all = !is_news && query_.range.end > model.last_ticks();
  is_empty_ = false;
  query_ = query;
  revision_ = revision;
  if (saw_all) return false;  // the clock moved, and nothing else

  std::vector<EventRow> fresh;
  for (auto const& ledger : model.ledgers()) {
    if (!query_.ledger || *query_.ledger == ledger.cell) take_operations(model, ledger.cell, fresh);
  }
  drop_unsettled_journal();
  take_journal(model, fresh);
  merge(std::move(fresh));
  // What the next read brings may be as old as the newest of the read before this one.
  if (is_news) {
    journal_from_ = std::max(query_.range.begin, last_ticks_);
    last_ticks_ = query_.range.empty() ? 0 : std::min(model.last_ticks(), query_.range.end - 1);  // a pause sees no further
  }
  return true;
}

void EventRows::keep(std::vector<EventRow>& rows, EventRow row) {
  if (!filter_->shows(row)) return;
  if (row.what != EventRow::What::gap) ++matching_;
  rows.push_back(std::move(row));
}

void EventRows::take_operations(follow::Model const& model, std::uint32_t cell, std::vector<EventRow>& fresh) {
  auto& stream = streams_[cell];
  stream.next = std::max(stream.next, query_.range.begin);
  if (query_.range.empty()) return;
  auto const last = query_.range.end - 1;
  auto const gaps = model.gaps(cell, stream.gap + 1);
  auto gap = gaps.begin();
  // Rows that would be cut off anyway are let go of on the way.
  std::vector<EventRow> rows;
  auto const add_gaps_up_to = [&](std::uint64_t ticks) {
    for (; gap != gaps.end() && gap->end_ticks != 0 && gap->end_ticks <= ticks; ++gap) {
      stream.gap = gap->end_ticks;
      if (!query_.range.contains(gap->end_ticks)) continue;
      keep(rows, {.what = EventRow::What::gap, .ledger = cell, .ticks = gap->end_ticks, .bytes = gap->missing});
    }
  };
  auto to_skip = stream.seen_then;
  model.for_each_operation(cell, stream.next, last, [&](follow::Operation const& operation) {
    if (operation.ticks == stream.next && to_skip > 0) {
      --to_skip;
      return true;
    }
    ++looked_at_;
    if (operation.ticks != stream.next) {
      stream.next = operation.ticks;
      stream.seen_then = 0;
      to_skip = 0;  // of what was forgotten meanwhile nothing is left to skip
    }
    ++stream.seen_then;
    add_gaps_up_to(operation.ticks);
    keep(rows, row_of(operation));
    if (rows.size() >= 2 * query_.most) {
      rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(query_.most));
    }
    return true;
  });
  std::ranges::move(rows, std::back_inserter(fresh));
}

void EventRows::drop_unsettled_journal() {
  auto const from = std::ranges::lower_bound(rows_, journal_from_, {}, &EventRow::ticks);
  auto const is_journal = [](EventRow const& row) { return row.what == EventRow::What::journal; };
  auto const kept = std::remove_if(from, rows_.end(), is_journal);
  matching_ -= static_cast<std::uint64_t>(rows_.end() - kept);
  rows_.erase(kept, rows_.end());
}

std::string_view EventRows::kept_name(follow::Model const& model, std::uint32_t id) {
  auto const name = model.source().name(id);
  return name ? std::string_view{*names_.insert(name->label).first} : std::string_view{};
}

void EventRows::take_journal(follow::Model const& model, std::vector<EventRow>& fresh) {
  if (query_.range.empty()) return;
  std::vector<EventRow> rows;
  model.for_each_journal_event(journal_from_, query_.range.end - 1, [&](flight::Event const& event) {
    if ((event.flags() & flight::kFlagContinues) != 0) return;
    ++looked_at_;
    using enum flight::EventKind;
    auto const is_of_thread = event.kind == thread_attach || event.kind == thread_detach || event.kind == mark;
    auto const has_ledger = !event.is_log_line() && !is_of_thread;
    if (query_.ledger && has_ledger && event.ledger() != *query_.ledger) return;
    EventRow row{.what = EventRow::What::journal, .kind = event.kind, .ledger = has_ledger ? event.ledger() : ~std::uint32_t{0}};
    row.thread = event.thread();
    row.duration_ns = event.duration_ns();
    row.ticks = event.ticks;
    if (event.kind == free_failed || event.kind == write_off) row.address = event.words[2];
    if (event.kind == refusal || event.kind == observed || row.address != 0 || event.kind == reserve ||
        event.kind == reserve_drop) {
      row.bytes = event.bytes();
    }
    if (event.kind == policy) row.bytes = event.words[4];
    if (event.kind == hook_end) {
      row.bytes = event.words[flight::HookEnd::kFreed];
      row.duration_ns = static_cast<std::uint32_t>(std::min<std::uint64_t>(event.words[flight::HookEnd::kNs], 0xFFFF'FFFFU));
    }
    if (has_alloc_word(event.kind)) row.used_after = event.allocated_after();
    if (!event.is_log_line()) row.tag = kept_name(model, event.tag());
    row.text = event_in_words(model, event);
    keep(rows, std::move(row));
  });
  std::ranges::move(rows, std::back_inserter(fresh));
}

void EventRows::merge(std::vector<EventRow> fresh) {
  if (fresh.empty()) return;
  std::ranges::stable_sort(fresh, {}, &EventRow::ticks);
  auto const middle = static_cast<std::ptrdiff_t>(rows_.size());
  auto const first =
      std::ranges::upper_bound(rows_, fresh.front().ticks, {}, &EventRow::ticks) - rows_.begin();  // before it nothing moves
  std::ranges::move(fresh, std::back_inserter(rows_));
  std::inplace_merge(rows_.begin() + first, rows_.begin() + middle, rows_.end(),
                     [](EventRow const& a, EventRow const& b) { return a.ticks < b.ticks; });
  if (rows_.size() > query_.most + query_.most / 4) {
    rows_.erase(rows_.begin(), rows_.end() - static_cast<std::ptrdiff_t>(query_.most));
  }
}

std::span<EventRow const> EventRows::rows() const noexcept {
  auto const all = std::span<EventRow const>{rows_};
  return all.size() > query_.most ? all.last(query_.most) : all;
}

std::optional<std::size_t> EventRows::row_at(std::uint64_t ticks) const noexcept {
  auto const all = rows();
  auto const after = std::ranges::upper_bound(all, ticks, {}, &EventRow::ticks);
  if (after == all.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - all.begin()) - 1;
}

PlainTable plain_events(follow::Model const& model, std::span<EventRow const> rows,
                        std::function<bool(std::size_t row)> const& is_wanted) {
  PlainTable table;
  table.columns = {"time_ns", "event", "bytes", "used_after_bytes", "tag", "thread", "duration_ns", "manager", "address", "what"};
  auto const first = model.first_ticks();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_wanted(i)) continue;
    auto const& row = rows[i];
    auto const is_gap = row.what == EventRow::What::gap;
    auto const* const book = model.ledger(row.ledger);
    auto const figure = [&](std::uint64_t value) { return is_gap ? std::nullopt : std::optional{value}; };
    auto const what = is_gap             ? std::to_string(row.bytes) + " operations missing"
                      : row.text.empty() ? std::string{row.site}
                                         : row.text;
    table.rows.push_back(
        {model.duration_ns(row.ticks - std::min(row.ticks, first)), std::string{is_gap ? "gap" : word_of(row.kind)},
         plain_figure(figure(row.bytes)), plain_figure(row.used_after), plain_text(row.tag), plain_figure(figure(row.thread)),
         plain_figure(figure(row.duration_ns)), plain_text(book != nullptr ? std::string_view{book->name} : std::string_view{}),
         plain_text(row.address == 0 ? "" : address_in_words(row.address)), plain_text(what)});
  }
  return table;
}

}  // namespace headroom::viewer
