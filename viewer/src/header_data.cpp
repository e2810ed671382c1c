#include "header_data.hpp"

#include <algorithm>
#include <filesystem>

namespace headroom::viewer {
namespace {

constexpr std::uint64_t kRateWindow = 2'000'000'000;
constexpr std::uint64_t kRateLeast = 500'000'000;

Life life_of(follow::Source const& source) {
  if (source.kind() == follow::SourceKind::history) return Life::recorded;
  if (source.kind() == follow::SourceKind::dump) return Life::post_mortem;
  switch (source.liveness()) {
    case flight::Liveness::living: return Life::living;
    case flight::Liveness::dead: return source.process().state == flight::ProcessState::closed ? Life::exited : Life::killed;
    case flight::Liveness::unknown: break;
  }
  return Life::unknown;
}

void tell_process(HeaderFigures& figures, follow::Source const& source) {
  auto const process = source.process();
  auto const name = std::filesystem::path{process.program}.filename().string();
  figures.life = life_of(source);
  if (source.kind() == follow::SourceKind::history) {
    figures.program = std::filesystem::path{source.title()}.filename().string();
    figures.place = source.title();
    return;
  }
  figures.program = (name.empty() ? std::string{"?"} : name) + " (" + std::to_string(process.pid) + ")";
  figures.place = process.command.empty() ? source.title() : process.command;
}

void tell_books(HeaderFigures& figures, flight::LedgerSnapshot const& books) {
  figures.known = follow::Known::exact;
  figures.allocated = books.allocated;
  figures.live_allocations = books.live_allocations;
  figures.claimed = books.claimed;
  figures.limit = books.limit;
  figures.is_unlimited = !books.limit;
  figures.is_enforcing = books.enforcing;
  figures.peak = std::max(books.peak, books.allocated);
  figures.remaining = books.remaining();
  figures.pressure = books.pressure;
}

void tell_past(HeaderFigures& figures, follow::LedgerState const& then) {
  figures.is_past = true;
  figures.known = then.known;
  figures.allocated = then.allocated;
  figures.live_allocations = then.live_allocations;
  figures.claimed = then.claimed;
  figures.limit = then.limit;
  figures.is_unlimited = !then.limit && then.limit_known;
  figures.is_enforcing = then.enforcing;
  figures.peak = then.peak;
  if (then.limit) {
    auto const used = then.claimed.value_or(then.allocated);
    figures.remaining = *then.limit - std::min(used, *then.limit);
  }
  figures.pressure = then.pressure;
  figures.unattributed_bytes = then.unattributed_bytes;
}

}  // namespace

std::string_view to_string(Life life) noexcept {
  switch (life) {
    case Life::living: return "live";
    case Life::exited: return "exited";
    case Life::killed: return "killed";
    case Life::recorded: return "recorded";
    case Life::post_mortem: return "post-mortem";
    case Life::unknown: break;
  }
  return "unknown";
}

HeaderFigures header_figures(ViewState const& state) {
  HeaderFigures figures;
  if (state.model == nullptr) return figures;
  auto const& model = *state.model;
  tell_process(figures, model.source());
  auto const* const books = state.books();
  auto const is_now = !state.cursor && !state.is_paused;
  if (books != nullptr && is_now) {
    tell_books(figures, *books);
  } else if (books != nullptr) {
    tell_past(figures, model.state_at(state.ledger, state.instant()));
  }
  if (books != nullptr) figures.device_total = books->device_total;
  if (books != nullptr && is_now) {
    figures.unspent = books->unspent;
    figures.sentinel = books->sentinel_bytes;
    figures.device_free = books->device_free;
    figures.failures = books->failures();
  }
  auto const losses = model.losses();
  figures.lost = losses.events_lost;
  figures.refused = losses.events_refused;
  if (model.source().kind() != follow::SourceKind::history && model.last_ticks() != 0) {
    auto const now = std::max(model.source().now_ticks(), model.last_ticks());
    figures.idle_ns = model.duration_ns(now - model.last_ticks());
  }
  return figures;
}

void EventRate::note(std::uint64_t nanoseconds, std::uint64_t events) {
  if (!samples_.empty() && (nanoseconds < samples_.back().nanoseconds || events < samples_.back().events)) samples_.clear();
  if (samples_.empty() || nanoseconds >= samples_.back().nanoseconds + kRateWindow / 40)
    samples_.push_back({nanoseconds, events});
  // One that is older than the window stays, so that the window is full.
  while (samples_.size() > 2 && samples_[1].nanoseconds + kRateWindow <= nanoseconds) samples_.pop_front();
}

std::optional<double> EventRate::per_second() const noexcept {
  if (samples_.size() < 2) return std::nullopt;
  auto const time = samples_.back().nanoseconds - samples_.front().nanoseconds;
  if (time < kRateLeast) return std::nullopt;
  return static_cast<double>(samples_.back().events - samples_.front().events) * 1e9 / static_cast<double>(time);
}

}  // namespace headroom::viewer
