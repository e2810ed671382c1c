#include "state.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::viewer {
namespace {

/// Now, as far as a display is concerned: what has ended stands still at its last event.
std::uint64_t newest(follow::Model const& model) {
  auto const last = model.last_ticks();
  return model.ended() ? last : std::max(last, model.source().now_ticks());
}

/// A live display shows at most this share of what came before; the rest of its width is the newest.
constexpr std::uint64_t kShortest = 8;  // ticks: below this, neighbouring pixels could not be told apart anyway

}  // namespace

std::uint64_t ViewState::known_instant() const noexcept {
  return std::min(instant(), std::max(model->last_ticks(), std::uint64_t{1}));
}

TickRange ViewState::whole() const noexcept {
  auto const begin = std::min(model != nullptr ? model->first_ticks() : 0, ~std::uint64_t{0} - 1);
  return {.begin = begin, .end = std::min(std::max(clock, begin), ~std::uint64_t{0} - 1) + 1};
}

flight::LedgerSnapshot const* ViewState::books() const noexcept { return model != nullptr ? model->ledger(ledger) : nullptr; }

void ViewState::show(follow::Model* shown) {
  model = shown;
  ++revision;
  cursor.reset();
  selected.reset();
  failure.reset();
  is_live = true;
  is_paused = false;
  clock = model != nullptr ? newest(*model) : 0;
  choose_fullest_ledger();
  fit_all();
  is_live = true;
}

void ViewState::follow(bool is_news) {
  if (model == nullptr) return;
  if (is_news) {
    ++revision;
    touch();
  }
  if (books() == nullptr) choose_fullest_ledger();
  if (is_paused) return;
  auto const now = newest(*model);
  if (now == clock) return;
  auto const was_whole = visible.begin <= whole().begin;
  clock = now;
  touch();
  if (!is_live) return;
  // What showed everything goes on showing everything; what showed the last minute goes on showing the last minute.
  auto const length = visible.length();
  visible.end = clock + 1;
  visible.begin = was_whole ? whole().begin : visible.end - std::min(length, visible.end);
  keep_visible_sane();
}

void ViewState::choose_fullest_ledger() {
  if (model == nullptr) return;
  auto const all = model->ledgers();
  // Accounts of whole devices repeat what their managers hold, and keep no records of their own.
  auto const best = std::ranges::max_element(all, {}, [](flight::LedgerSnapshot const& one) {
    return std::pair{!one.is_device_account, std::max(one.peak, one.allocated)};
  });
  ledger = best != all.end() ? best->cell : 0;
}

void ViewState::choose_ledger(std::uint32_t cell) {
  if (cell == ledger) return;
  ledger = cell;
  touch();
}

void ViewState::travel_to(std::uint64_t ticks) {
  auto const all = whole();
  cursor = std::clamp(ticks, all.begin, all.end - 1);
  if (!visible.contains(*cursor)) {
    auto const half = visible.length() / 2;
    visible = {.begin = *cursor - std::min(half, *cursor), .end = *cursor + half + 1};
    is_live = false;
    keep_visible_sane();
  }
  touch();
}

void ViewState::end_travel() {
  cursor.reset();
  touch();
}

void ViewState::toggle_pause() {
  is_paused = !is_paused;
  touch();
}

void ViewState::go_live() {
  is_paused = false;
  cursor.reset();
  selected.reset();
  is_live = true;
  auto const length = visible.length();
  if (model != nullptr) clock = newest(*model);
  visible.end = clock + 1;
  visible.begin = visible.end - std::min(length, visible.end);
  keep_visible_sane();
  touch();
}

void ViewState::fit(TickRange range) {
  if (range.empty()) return;
  visible = range;
  is_live = is_live && range.end > clock;
  keep_visible_sane();
  touch();
}

void ViewState::zoom(double factor, std::uint64_t around) {
  auto const length = static_cast<double>(visible.length());
  auto const most = 1.25 * static_cast<double>(whole().length());
  auto const wanted = std::clamp(length * factor, static_cast<double>(kShortest), std::max(most, static_cast<double>(kShortest)));
  // Differences alone become doubles: ticks themselves may be above 2^53, where doubles step over some.
  auto const share = length > 0 ? std::min(static_cast<double>(around - std::min(around, visible.begin)) / length, 1.0) : 0.5;
  auto const before = static_cast<std::uint64_t>(std::llround(share * wanted));
  visible.begin = around - std::min(before, around);
  visible.end = visible.begin + static_cast<std::uint64_t>(std::llround(wanted));
  is_live = is_live && visible.end > clock;
  keep_visible_sane();
  touch();
}

void ViewState::pan(double share) {
  auto const by = share * static_cast<double>(visible.length());
  auto const amount = static_cast<std::uint64_t>(std::abs(by));
  if (by < 0) {
    auto const left = std::min(amount, visible.begin);
    visible.begin -= left;
    visible.end -= left;
  } else {
    visible.begin += amount;
    visible.end += amount;
  }
  keep_visible_sane();
  is_live = by > 0 && visible.end > clock;
  touch();
}

void ViewState::select(std::optional<TickRange> range) {
  selected = range && !range->empty() ? range : std::nullopt;
  touch();
}

void ViewState::ask_for_panel(std::string name) {
  asked_panel = std::move(name);
  touch();
}

/// At least a part of the past stays in sight, and the range stays long enough to draw.
void ViewState::keep_visible_sane() {
  auto const all = whole();
  auto const length = std::max(visible.length(), kShortest);
  auto const earliest = all.begin - std::min(length / 2, all.begin);
  auto const latest = all.end - std::min(length / 2, all.end);
  visible.begin = std::clamp(visible.begin, earliest, std::max(earliest, latest));
  visible.end = visible.begin + length;
}

}  // namespace headroom::viewer
