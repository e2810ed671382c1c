#include "export_data.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <headroom/post_mortem_reader.hpp>

#include "event_rows.hpp"
#include "live_rows.hpp"
#include "new_file.hpp"
#include "plain_table.hpp"

namespace headroom::viewer {
namespace {

Result<std::unique_ptr<follow::Source>> opened(std::string const& title, follow::SourceKind kind) {
  switch (kind) {
    case follow::SourceKind::flight: return follow::open_flight_source(title);
    case follow::SourceKind::history: return follow::open_history_source(title);
    case follow::SourceKind::dump: break;
  }
  auto dump = load_post_mortem(title);
  if (!dump) return tl::unexpected{std::move(dump.error())};
  return post_mortem_source(std::move(*dump), title);
}

}  // namespace

/// What is written, and into what. One of `events` and `live` has the rows.
struct RowExport::Rows {
  Rows(NewFile opened, ExportWhat of, ExportFormat format)
      : file{std::move(opened)},
        what{of},
        text{format == ExportFormat::csv ? PlainFormat::csv : PlainFormat::json,
             of == ExportWhat::events ? plain_event_columns() : plain_live_columns()} {}

  [[nodiscard]] std::size_t count() const noexcept {
    return what == ExportWhat::events ? events.rows().size() : live.rows.size();
  }
  [[nodiscard]] PlainRow plain(follow::Model const& model, std::size_t row) const {
    return what == ExportWhat::events ? plain_event(model, events.rows()[row]) : plain_live(model, live.rows[row], ticks);
  }

  NewFile file;
  ExportWhat what;
  PlainText text;
  EventRows events;
  LiveRows live;
  std::uint64_t ticks = 0;  // of what is live
  std::string piece;        // is still to be written
};

RowExport::RowExport(follow::Model const& model, std::unique_ptr<Rows> rows) : model_{&model}, rows_{std::move(rows)} {}
RowExport::RowExport(RowExport&&) noexcept = default;
RowExport::~RowExport() = default;

std::size_t RowExport::count() const noexcept { return rows_->count(); }

Result<RowExport> RowExport::begin(ViewState const& state, ExportWhat what, ExportFormat format, std::string const& path) {
  auto const& model = *state.model;
  auto file = NewFile::open(path);  // before the work: a name that cannot be is told at once
  if (!file) return tl::unexpected{std::move(file.error())};
  RowExport made{model, std::make_unique<Rows>(std::move(*file), what, format)};
  auto& rows = *made.rows_;
  if (what == ExportWhat::events) {
    EventQuery const query{.range = state.selected.value_or(TickRange{.begin = 0, .end = model.last_ticks() + 1}),
                           .filter = state.filter,
                           .most = kMostExported};
    (void)rows.events.update(model, query, state.revision);
    made.exported_.matching = rows.events.matching();
  } else {
    rows.ticks = state.known_instant();
    rows.live = live_rows(model, {.ledger = state.ledger, .ticks = rows.ticks, .most = kMostExported});
    made.exported_.matching = rows.live.total;
  }
  rows.piece = rows.text.head();
  return made;
}

Result<bool> RowExport::write(std::size_t most) {
  constexpr std::size_t kPiece = std::size_t{256} << 10U;
  auto& rows = *rows_;
  auto const all = rows.count();
  auto const put = [&]() -> Result<void> {
    longest_piece_ = std::max(longest_piece_, rows.piece.size());
    auto written = rows.file.write(rows.piece);
    rows.piece.clear();
    return written;
  };
  for (; most > 0 && exported_.rows < all; --most, ++exported_.rows) {
    rows.piece += rows.text.row(rows.plain(*model_, exported_.rows));
    if (rows.piece.size() < kPiece) continue;
    if (auto written = put(); !written) return tl::unexpected{std::move(written.error())};
  }
  if (exported_.rows < all) return false;
  rows.piece += rows.text.end();
  if (auto written = put(); !written) return tl::unexpected{std::move(written.error())};
  if (auto done = rows.file.finish(); !done) return tl::unexpected{std::move(done.error())};
  return true;
}

Result<ReadAgain> read_again(ViewState const& state) {
  if (state.open_again) return state.open_again();
  auto const& source = state.model->source();
  auto records = opened(source.title(), source.kind());
  if (!records) return tl::unexpected{std::move(records.error())};
  return ReadAgain{.records = std::move(*records)};
}

Result<ConvertReport> export_trace(ReadAgain again, std::string const& path, std::atomic<std::uint64_t>& progress) {
  auto file = NewFile::open(path);
  if (!file) return tl::unexpected{std::move(file.error())};
  auto report = convert(std::move(again.records), ConvertFormat::chrome,
                        [&file](std::string_view bytes) { return file->write(bytes); }, {.progress = &progress});
  if (!report) return report;
  if (again.was_whole) {
    if (auto whole = again.was_whole(); !whole) return tl::unexpected{std::move(whole.error())};
  }
  if (auto done = file->finish(); !done) return tl::unexpected{std::move(done.error())};
  return report;
}

}  // namespace headroom::viewer
