#include "command/top_processes.hpp"

#include <algorithm>
#include <utility>

namespace headroom::command {
namespace {

// A terminal shows the books, and the last few events: no need for a long past, nor for operations.
constexpr follow::Options kShortPast{.memory_bytes = std::size_t{4} << 20U, .operations = false};

}  // namespace

TopProcesses::TopProcesses(std::vector<std::string> folders, std::optional<std::string> file)
    : folders_{std::move(folders)}, only_{std::move(file)} {}

Result<void> TopProcesses::refresh() {
  if (auto found = find_files(); !found) return found;
  return follow_selected();
}

Result<void> TopProcesses::find_files() {
  if (only_ && !files_.empty()) {
    if (files_.front().flight->was_truncated()) {
      return fail(ErrorKind::io, Layer::request, *only_ + ": was truncated while it was read; expected a whole flight file");
    }
    files_.front().is_living = files_.front().flight->view().liveness() == flight::Liveness::living;
    return {};
  }
  std::vector<flight::FoundFlight> found;
  std::optional<Error> unreadable;
  std::size_t readable = 0;
  if (only_) {
    auto file = GuardedFlight::open(*only_);
    if (!file) return tl::unexpected{std::move(file.error())};
    auto const pid = file->view().process().pid;
    auto const is_living = file->view().liveness() == flight::Liveness::living;
    files_.push_back(
        {.path = *only_, .pid = pid, .flight = std::make_shared<GuardedFlight const>(std::move(*file)), .is_living = is_living});
    return {};
  }
  for (auto const& folder : folders_) {
    auto in_folder = flight::find_flights(folder);
    if (!in_folder) {
      unreadable = std::move(in_folder.error());
      continue;
    }
    ++readable;
    std::ranges::move(*in_folder, std::back_inserter(found));
  }
  if (readable == 0 && unreadable) return tl::unexpected{std::move(*unreadable)};

  auto const was_selected = selected_ < files_.size() ? files_[selected_].path : std::string{};
  std::vector<File> files;
  for (auto& file : found) {
    auto const known = std::ranges::find(files_, file.path, &File::path);
    if (known != files_.end()) {
      files.push_back(std::move(*known));
      files_.erase(known);
    } else if (auto opened = GuardedFlight::open(file.path)) {
      files.push_back({.path = std::move(file.path),
                       .pid = file.pid,
                       .flight = std::make_shared<GuardedFlight const>(std::move(*opened)),
                       .is_living = false});
    }  // else it ended meanwhile, or headroom check says what is wrong with it
    if (!files.empty()) files.back().is_living = files.back().flight->view().liveness() == flight::Liveness::living;
  }
  std::erase_if(files, [](File const& file) { return file.flight->was_truncated(); });  // main() names it at the end
  std::ranges::stable_sort(files, std::ranges::greater{}, &File::is_living);
  files_ = std::move(files);
  auto const again = std::ranges::find(files_, was_selected, &File::path);
  selected_ = again == files_.end() ? 0 : static_cast<std::size_t>(again - files_.begin());
  return {};
}

Result<void> TopProcesses::follow_selected() {
  if (files_.empty()) {
    model_.reset();
    followed_.clear();
    followed_file_.reset();
    return {};
  }
  auto const& file = files_[selected_];
  if (!model_ || followed_ != file.path) {
    model_.emplace(follow::flight_source(file.flight->view()), kShortPast);
    followed_ = file.path;
    followed_file_ = file.flight;
    return model_->catch_up();
  }
  auto polled = model_->poll();
  if (!polled) return tl::unexpected{std::move(polled.error())};
  return {};
}

void TopProcesses::select(int step) {
  if (files_.empty()) return;
  auto const count = static_cast<int>(files_.size());
  selected_ = static_cast<std::size_t>(((static_cast<int>(selected_) + step) % count + count) % count);
}

std::vector<TopProcesses::Row> TopProcesses::rows(std::size_t most) const {
  std::vector<Row> rows;
  auto const first = selected_ >= most ? selected_ - most + 1 : 0;
  for (auto i = first; i < std::min(files_.size(), first + most); ++i) {
    rows.push_back({.path = files_[i].path,
                    .pid = files_[i].pid,
                    .is_selected = i == selected_,
                    .figures = process_figures(files_[i].flight->view())});
  }
  return rows;
}

}  // namespace headroom::command
