#include "export_data.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <headroom/post_mortem_reader.hpp>

#include "event_rows.hpp"
#include "live_rows.hpp"
#include "plain_table.hpp"

namespace headroom::viewer {
namespace {

tl::unexpected<Error> io_error(std::string const& path, std::string const& what) {
  Error error;
  error.kind = ErrorKind::io;
  error.layer = Layer::request;
  error.message = path + ": " + what;
  return tl::unexpected{std::move(error)};
}

/// A file that appears under its name when it is whole.
class NewFile {
public:
  explicit NewFile(std::string path) : path_{std::move(path)}, unfinished_{path_ + ".part"} {
    errno = 0;
    out_.open(unfinished_, std::ios::binary | std::ios::trunc);
  }
  NewFile(NewFile const&) = delete;
  NewFile& operator=(NewFile const&) = delete;
  ~NewFile() {
    std::error_code ignored;
    if (!is_done_) std::filesystem::remove(unfinished_, ignored);
  }

  [[nodiscard]] Result<void> write(std::string_view text) {
    errno = 0;
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
    return out_ ? Result<void>{} : Result<void>{failed()};
  }
  [[nodiscard]] Result<void> finish() {
    errno = 0;
    out_.close();
    if (!out_) return failed();
    std::error_code error;
    std::filesystem::rename(unfinished_, path_, error);
    if (error) return io_error(path_, error.message());
    is_done_ = true;
    return {};
  }

private:
  [[nodiscard]] tl::unexpected<Error> failed() const {
    return io_error(path_, errno != 0 ? std::strerror(errno) : "cannot be written");  // NOLINT(concurrency-mt-unsafe)
  }
  std::string path_, unfinished_;
  std::ofstream out_;
  bool is_done_ = false;
};

Result<std::unique_ptr<follow::Source>> reopened(std::string const& title, follow::SourceKind kind) {
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
    LiveQuery const query{.ledger = state.ledger, .ticks = std::min(state.instant(), model.last_ticks()), .most = kMostExported};
    auto const rows = live_rows(model, query);
    exported.matching = rows.total;
    table = plain_live(model, rows, query.ticks);
  }
  exported.rows = table.rows.size();
  NewFile file{path};
  if (auto written = file.write(format == ExportFormat::csv ? as_csv(table) : as_json(table)); !written) {
    return tl::unexpected{std::move(written.error())};
  }
  if (auto done = file.finish(); !done) return tl::unexpected{std::move(done.error())};
  return exported;
}

Result<ConvertReport> export_trace(std::string const& title, follow::SourceKind kind, std::string const& path,
                                   std::atomic<std::uint64_t>& progress) {
  auto source = reopened(title, kind);
  if (!source) return tl::unexpected{std::move(source.error())};
  NewFile file{path};
  auto report = convert(std::move(*source), ConvertFormat::chrome, [&file](std::string_view bytes) { return file.write(bytes); },
                        {.progress = &progress});
  if (!report) return report;
  if (auto done = file.finish(); !done) return tl::unexpected{std::move(done.error())};
  return report;
}

}  // namespace headroom::viewer
