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

Result<Exported> export_rows(ViewState const& state, ExportWhat what, ExportFormat format, std::string const& path) {
  auto const& model = *state.model;
  auto file = NewFile::open(path);  // before the work: a name that cannot be is told at once
  if (!file) return tl::unexpected{std::move(file.error())};
  Exported exported;
  PlainTable table;
  if (what == ExportWhat::events) {
    EventRows rows;
    EventQuery const query{.range = state.selected.value_or(TickRange{.begin = 0, .end = model.last_ticks() + 1}),
                           .filter = state.filter,
                           .most = kMostExported};
    (void)rows.update(model, query, state.revision);
    exported.matching = rows.matching();
    table = plain_events(model, rows.rows(), [](std::size_t) { return true; });
  } else {
    LiveQuery const query{.ledger = state.ledger, .ticks = state.known_instant(), .most = kMostExported};
    auto const rows = live_rows(model, query);
    exported.matching = rows.total;
    table = plain_live(model, rows, query.ticks);
  }
  exported.rows = table.rows.size();
  if (auto written = file->write(format == ExportFormat::csv ? as_csv(table) : as_json(table)); !written) {
    return tl::unexpected{std::move(written.error())};
  }
  if (auto done = file->finish(); !done) return tl::unexpected{std::move(done.error())};
  return exported;
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
