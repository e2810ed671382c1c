#include "document.hpp"

#include <utility>

#include "command/find_process.hpp"
#include "command/guarded_flight.hpp"

namespace headroom::viewer {

Result<std::unique_ptr<Document>> Document::open(std::string path, std::size_t memory_bytes) {
  auto opened = command::Source::open(path);
  if (!opened) return tl::unexpected{std::move(opened.error())};
  auto file = std::make_unique<command::Source>(std::move(*opened));
  auto records = file->records();
  if (!records) return tl::unexpected{std::move(records.error())};
  if (auto const whole = file->was_whole(); !whole) return tl::unexpected{whole.error()};
  return std::unique_ptr<Document>{new Document{std::move(path), std::move(file), std::move(*records), memory_bytes}};
}

Document::Document(std::string path, std::unique_ptr<command::Source> file, std::unique_ptr<follow::Source> records,
                   std::size_t memory_bytes)
    : path_{std::move(path)}, file_{std::move(file)}, model_{std::move(records), {.memory_bytes = memory_bytes}} {}

Result<Document::Progress> Document::read(std::chrono::milliseconds most) {
  if (is_over()) return Progress::nothing;
  auto const end = std::chrono::steady_clock::now() + most;
  auto progress = Progress::nothing;
  while (true) {
    auto const polled = model_.poll();
    auto const whole = file_->was_whole();
    if (!polled || !whole) {
      failed_ = true;
      return tl::unexpected{whole ? polled.error() : whole.error()};
    }
    if (!*polled || model_.ended()) return *polled ? Progress::some : progress;
    progress = Progress::some;
    // A process that allocates without pause always has more: what is left waits for the next turn.
    if (std::chrono::steady_clock::now() >= end) return Progress::more;
  }
}

Result<void> Document::read_all() {
  auto const done = model_.catch_up();
  auto const whole = file_->was_whole();
  if (done && whole) return {};
  failed_ = true;
  return tl::unexpected{whole ? done.error() : whole.error()};
}

Result<ReadAgain> Document::open_again() const {
  auto opened = command::Source::open(path_);
  if (!opened) return tl::unexpected{std::move(opened.error())};
  auto file = std::make_shared<command::Source>(std::move(*opened));
  auto records = file->records();
  if (!records) return tl::unexpected{std::move(records.error())};
  if ((*records)->kind() != model_.source().kind() || (*records)->process().run != model_.source().process().run) {
    return fail(ErrorKind::io, Layer::request, path_ + ": has been replaced since it was opened");
  }
  return ReadAgain{.keeps = file, .records = std::move(*records), .was_whole = [file] { return file->was_whole(); }};
}

std::optional<double> Document::share_read() const noexcept {
  if (model_.source().kind() != follow::SourceKind::history || is_over()) return std::nullopt;
  auto const position = file_->position();
  if (!position || position->size == 0) return std::nullopt;
  return static_cast<double>(position->read) / static_cast<double>(position->size);
}

Result<std::string> newest_flight(std::optional<std::string> const& folder) {
  std::string newest;
  for (auto const& one : command::folders_or_default(folder)) {
    auto const found = flight::find_flights(one);
    if (!found) return tl::unexpected{found.error()};
    for (auto const& file : *found) {
      auto const opened = command::GuardedFlight::open(file.path);
      if (!opened) continue;  // the list says what is wrong with it
      if (opened->view().liveness() == flight::Liveness::living) return file.path;
      if (newest.empty()) newest = file.path;
    }
  }
  return newest;
}

}  // namespace headroom::viewer
