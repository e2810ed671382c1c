#include "event_rows.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <headroom/byte_size.hpp>

#include "event_filter.hpp"
#include "event_words.hpp"

namespace headroom::viewer {
namespace {

bool has_alloc_word(flight::EventKind kind) noexcept {
  using enum flight::EventKind;
  return kind == peak || kind == free_failed || kind == write_off || kind == trim || kind == refusal || kind == observed;
}

EventRow row_of(follow::Operation const& operation, follow::Source const& source, std::string_view device) {
  return {.what = EventRow::What::operation,
          .kind = operation.kind,
          .is_recovered = operation.recovered,
          .ledger = operation.ledger,
          .thread = source.thread_id(operation.thread),
          .duration_ns = operation.duration_ns,
          .ticks = operation.ticks,
          .address = operation.address,
          .bytes = operation.bytes,
          .used_after = operation.allocated_after,
          .tag = operation.tag,
          .site = operation.site,
          .device = device};
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
  auto const device = device_of(model, cell);
  auto const add_gaps_up_to = [&](std::uint64_t ticks) {
    for (; gap != gaps.end() && gap->end_ticks != 0 && gap->end_ticks <= ticks; ++gap) {
      stream.gap = gap->end_ticks;
      if (!query_.range.contains(gap->end_ticks)) continue;
      keep(rows, {.what = EventRow::What::gap, .ledger = cell, .ticks = gap->end_ticks, .bytes = gap->missing, .device = device});
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
    keep(rows, row_of(operation, model.source(), device));
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

std::string_view EventRows::kept(std::string_view name) {
  auto const known = names_.find(name);
  return known != names_.end() ? *known : *names_.emplace(name).first;
}

std::string_view EventRows::name_of(follow::Model const& model, std::uint32_t id) {
  auto const name = model.source().name(id);
  return name ? kept(name->label) : std::string_view{};
}

std::string_view EventRows::device_of(follow::Model const& model, std::uint32_t cell) {
  auto const* const book = model.ledger(cell);
  return book != nullptr ? kept(book->device_name) : std::string_view{};
}

void EventRows::take_journal(follow::Model const& model, std::vector<EventRow>& fresh) {
  if (query_.range.empty()) return;
  std::vector<EventRow> rows;
  model.for_each_journal_event(journal_from_, query_.range.end - 1, [&](flight::Event const& event) {
    if ((event.flags() & flight::kFlagContinues) != 0) return;
    ++looked_at_;
    using enum flight::EventKind;
    auto const ledger = ledger_of(event);
    if (query_.ledger && ledger && *ledger != *query_.ledger) return;
    EventRow row{.what = EventRow::What::journal, .kind = event.kind, .ledger = ledger.value_or(~std::uint32_t{0})};
    if (ledger) row.device = device_of(model, *ledger);
    row.thread = model.source().thread_id(event.thread());
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
    if (!event.is_log_line()) row.tag = name_of(model, event.tag());
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

std::optional<std::uint32_t> ledger_of(flight::Event const& event) noexcept {
  using enum flight::EventKind;
  auto const is_of_thread = event.kind == thread_attach || event.kind == thread_detach || event.kind == mark;
  return event.is_log_line() || is_of_thread ? std::nullopt : std::optional{event.ledger()};
}

bool tells_bytes(EventRow const& row) noexcept {
  if (row.what == EventRow::What::gap) return false;
  return row.what == EventRow::What::operation || row.bytes != 0 || row.kind == flight::EventKind::hook_end;
}

std::string_view owner_of(follow::Model const& model, EventRow const& row) {
  auto const* const book = model.ledger(row.ledger);
  if (book == nullptr || (book->generation > 1 && row.ticks < book->created_ticks)) return {};
  return book->name;
}

std::string missing_in_words(EventRow const& row) {
  if (row.bytes == 0) return "operations";
  return format_count(row.bytes) + (row.bytes == 1 ? " operation" : " operations");
}

std::vector<std::string> plain_event_columns() {
  return {"time_ns", "event", "bytes", "used_after_bytes", "tag", "thread", "duration_ns", "manager", "address", "what"};
}

PlainRow plain_event(follow::Model const& model, EventRow const& row) {
  auto const is_gap = row.what == EventRow::What::gap;
  auto const figure = [](bool is_known, std::uint64_t value) {
    return plain_figure(is_known ? std::optional{value} : std::nullopt);
  };
  auto const what = is_gap ? missing_in_words(row) + " missing" : row.text.empty() ? std::string{row.site} : row.text;
  return {model.duration_ns(row.ticks - std::min(row.ticks, model.origin_ticks())),
          std::string{is_gap ? "gap" : word_of(row.kind)},
          figure(tells_bytes(row), row.bytes),
          plain_figure(row.used_after),
          plain_text(row.tag),
          figure(!is_gap, row.thread),
          figure(!is_gap, row.duration_ns),
          plain_text(owner_of(model, row)),
          plain_text(row.address == 0 ? "" : address_in_words(row.address)),
          plain_text(what)};
}

PlainTable plain_events(follow::Model const& model, std::span<EventRow const> rows,
                        std::function<bool(std::size_t row)> const& is_wanted) {
  PlainTable table{.columns = plain_event_columns()};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_wanted(i)) table.rows.push_back(plain_event(model, rows[i]));
  }
  return table;
}

}  // namespace headroom::viewer
