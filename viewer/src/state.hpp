// headroom: what the person at the viewer chose, and what is looked at.
//
// One ViewState is shared by all panels. A panel reads it, and calls the functions below to change it; how each figure is worked out
// is the panel's own affair. Nothing in it is O(events): what a panel works out from the model it keeps in a Cached (cached.hpp), under
// a key made of what it depends on: `revision`, `ledger`, instant(), `visible`, `filter`.
//
// Times are ticks of the model's source. Thread safety: none; one thread draws.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <headroom/error.hpp>
#include <headroom/follow.hpp>

namespace headroom::viewer {

/// Half open. Empty where end ≤ begin.
struct TickRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] bool empty() const noexcept { return end <= begin; }
  [[nodiscard]] std::uint64_t length() const noexcept { return empty() ? 0 : end - begin; }
  [[nodiscard]] bool contains(std::uint64_t ticks) const noexcept { return ticks >= begin && ticks < end; }
  friend bool operator==(TickRange const&, TickRange const&) = default;
};

/// What lists show.
struct Filter {
  std::string text;                         ///< in tag, site or kind; "" = everything
  std::uint64_t kinds = ~std::uint64_t{0};  ///< bit of each flight::EventKind that is shown
  [[nodiscard]] bool is_on() const noexcept { return !text.empty() || kinds != ~std::uint64_t{0}; }
  [[nodiscard]] bool shows(flight::EventKind kind) const noexcept {
    auto const bit = static_cast<unsigned>(kind);
    return bit >= 64 || ((kinds >> bit) & 1U) != 0;
  }
  friend bool operator==(Filter const&, Filter const&) = default;
};

enum class ThemeName : std::uint8_t { dark, light };

/// What the model reads, from its beginning.
struct ReadAgain {
  std::shared_ptr<void> keeps{};  ///< what `records` needs, such as the guard of its mapping; goes after it
  std::unique_ptr<follow::Source> records{};
  std::function<Result<void>()>
      was_whole{};  ///< asked once all is read: an error where it changed under the reader; may be empty
};

class ViewState {
public:
  // ── what is looked at ──

  /// Null: nothing is open. Owned by whoever runs the viewer; only show() changes it.
  follow::Model* model = nullptr;
  /// Raised whenever the model read something new, and whenever it is another model. What was worked out under another revision may be old.
  std::uint64_t revision = 0;
  std::uint32_t ledger = 0;  ///< the cell of the manager or account whose past is shown

  // ── time ──

  bool is_live = true;                    ///< the visible range follows the newest
  bool is_paused = false;                 ///< the display stands still; reading goes on
  std::uint64_t clock = 0;                ///< of the display: now, or when it was paused
  std::optional<std::uint64_t> cursor{};  ///< time travel: panels show what was the case then
  TickRange visible{};
  std::optional<TickRange> selected{};

  // ── what it is compared with ──

  follow::Model const* other = nullptr;  ///< null: nothing. Owned by whoever runs the viewer, and wholly read
  std::string asked_other{};             ///< a path that is to be opened as `other`; whoever opens files clears it

  // ── what an export of everything reads ──

  /// Opens once more what the model reads, for another thread. Empty: by its name and without a guard. Set by whoever opens files.
  std::function<Result<ReadAgain>()> open_again{};

  // ── choices ──

  Filter filter{};
  std::optional<std::uint64_t> failure{};  ///< FailureStory::number of the one that is inspected; absent: the newest
  std::string asked_panel{};               ///< name of a panel that is to come to the front; whoever lays panels out clears it
  bool wants_filter = false;               ///< the next thing typed is meant for the filter; the panel that has it clears this
  ThemeName theme = ThemeName::dark;
  float scale = 1.0F;
  /// Something on the screen is not as it was: draw again soon. Cleared by whoever draws.
  bool is_stale = true;

  // ── asking ──

  /// The moment that panels are about: the cursor if time travel is on, else the clock of the display.
  [[nodiscard]] std::uint64_t instant() const noexcept { return cursor.value_or(clock); }
  /// While the display stands still: the last moment that has happened for it. Absent: all has.
  [[nodiscard]] std::optional<std::uint64_t> paused_at() const noexcept {
    return is_paused ? std::optional{clock} : std::nullopt;
  }
  /// The same as instant(), no later than what was read: what a model can be asked about. At least 1.
  [[nodiscard]] std::uint64_t known_instant() const noexcept;
  /// From the oldest that is kept to the clock of the display; at least a tick long.
  [[nodiscard]] TickRange whole() const noexcept;
  /// What was selected, else what is visible.
  [[nodiscard]] TickRange range() const noexcept { return selected.value_or(visible); }
  /// The books of the chosen ledger; null when there are none.
  [[nodiscard]] flight::LedgerSnapshot const* books() const noexcept;

  // ── changing ──

  /// Another model, or none: times and choices about the one before are forgotten, the ledger that holds most is chosen.
  void show(follow::Model* shown);
  /// After each poll: moves the clock unless paused, and the visible range with it when live. `is_news`: the poll brought something.
  void follow(bool is_news);
  void choose_ledger(std::uint32_t cell);
  /// The past of `ledger` is what panels show from here on, at this moment: the cursor goes there and the timeline shows it.
  void travel_to(std::uint64_t ticks);
  void end_travel();
  void toggle_pause();
  void go_live();  ///< follows the newest, without pause, cursor or selection
  void fit(TickRange range);
  void fit_all() { fit(whole()); }
  /// By a factor (below 1: closer), the instant `around` keeps its place on the screen.
  void zoom(double factor, std::uint64_t around);
  /// By a share of the visible length; negative: into the past.
  void pan(double share);
  void select(std::optional<TickRange> range);
  void ask_for_panel(std::string name);
  void touch() noexcept { is_stale = true; }

private:
  void choose_fullest_ledger();
  void keep_visible_sane();
};

}  // namespace headroom::viewer
