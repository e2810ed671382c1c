#include "command/guarded_flight.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "command/output.hpp"
#include "src/truncation_guard.hpp"

namespace headroom::command {
namespace {

constexpr std::size_t kMostNamed = 64;

std::vector<std::string>& truncated() noexcept {
  static std::vector<std::string> paths;
  return paths;
}

}  // namespace

Result<GuardedFlight> GuardedFlight::open(std::string path) {
  if (!exporter::install_truncation_guard()) {
    return fail(ErrorKind::io, Layer::request, path + ": cannot be read: no handler for SIGBUS could be installed");
  }
  auto view = flight::FlightView::open(std::move(path));
  if (!view) return tl::unexpected{std::move(view.error())};
  auto guard = exporter::guard_mapping(view->memory());
  if (!guard) {
    return fail(ErrorKind::io, Layer::request,
                view->path() + ": cannot be read: expected at most " + std::to_string(exporter::kGuardedMappings) +
                    " flight files at a time");
  }
  return GuardedFlight{std::move(*view), std::move(guard)};
}

GuardedFlight::GuardedFlight(flight::FlightView view, std::shared_ptr<void const> guard) noexcept
    : view_{std::move(view)}, guard_{std::move(guard)} {}

GuardedFlight::GuardedFlight(GuardedFlight&& other) noexcept : view_{std::move(other.view_)}, guard_{std::move(other.guard_)} {}

GuardedFlight& GuardedFlight::operator=(GuardedFlight&& other) noexcept {
  if (this != &other) {
    let_go();
    view_ = std::move(other.view_);
    guard_ = std::move(other.guard_);
  }
  return *this;
}

GuardedFlight::~GuardedFlight() { let_go(); }

bool GuardedFlight::was_truncated() const noexcept { return guard_ && exporter::is_damaged(view_.memory().data()); }

void GuardedFlight::let_go() noexcept {
  if (was_truncated()) {
    try {
      auto& paths = truncated();
      auto const is_new = std::ranges::find(paths, view_.path()) == paths.end();
      if (is_new && paths.size() < kMostNamed) paths.push_back(view_.path());
    } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch): then there is none to say it with either
    }
  }
  guard_.reset();  // before the mapping goes
}

std::string truncation_message(std::string const& path) {
  return printable(path) + ": was truncated while it was read; what was told of it may be wrong";
}

std::vector<std::string> const& truncated_flights() noexcept { return truncated(); }

}  // namespace headroom::command
