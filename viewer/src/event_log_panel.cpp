// The event log: what happened, line by line, newest last.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <headroom/byte_size.hpp>

#include "event_filter.hpp"
#include "event_rows.hpp"
#include "event_words.hpp"
#include "figures.hpp"
#include "panels.hpp"
#include "plain_table.hpp"
#include "row_selection.hpp"

namespace headroom::viewer {
namespace {

using flight::EventKind;

constexpr std::uint64_t bit(EventKind kind) noexcept { return std::uint64_t{1} << static_cast<unsigned>(kind); }

/// Kinds as people think of them.
struct KindGroup {
  char const* label;
  std::uint64_t kinds;
};
constexpr std::array<KindGroup, 6> kGroups{{
    {"allocations", bit(EventKind::allocate) | bit(EventKind::resource_allocate)},
    {"frees", bit(EventKind::free) | bit(EventKind::resource_free)},
    {"failures", bit(EventKind::refusal) | bit(EventKind::observed) | bit(EventKind::free_failed) | bit(EventKind::write_off) |
                     bit(EventKind::resource_refusal) | bit(EventKind::resource_free_failed)},
    {"hooks and policy", bit(EventKind::hook_begin) | bit(EventKind::hook_end) | bit(EventKind::hook_skip) |
                             bit(EventKind::hook_overrun) | bit(EventKind::policy) | bit(EventKind::trim)},
    {"budget and pressure", bit(EventKind::peak) | bit(EventKind::pressure) | bit(EventKind::budget) | bit(EventKind::reserve) |
                                bit(EventKind::reserve_drop)},
    {"threads and marks", bit(EventKind::thread_attach) | bit(EventKind::thread_detach) | bit(EventKind::mark)},
}};

constexpr std::array kColumns{
    Column{.title = "Time", .width = 14, .is_right = true, .help = "Since the first event that was read"},
    Column{.title = "Event", .width = 13},
    Column{.title = "Size", .width = 9, .is_right = true, .help = "Of the block or request; of a hook's end, what it freed"},
    Column{
        .title = "Used after", .width = 10, .rank = 3, .is_right = true, .help = "Allocated bytes of its manager right after it"},
    Column{.title = "Tag", .width = 14, .rank = 1},
    Column{.title = "Thread", .width = 8, .rank = 5, .is_right = true},
    Column{.title = "Took", .width = 8, .rank = 6, .is_right = true, .help = "How long the operation or the hook's run took"},
    Column{.title = "Where, what", .least = 22, .rank = 2, .help = "The place in the program that asked, or what the event says"},
    Column{.title = "Manager", .width = 12, .rank = 4},  // the last, so that it can be left out where there is one only
};

/// Of a ledger's place in the file that another manager had before.
constexpr std::string_view kEarlierOwner = "an earlier manager";

class EventLogPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "event-log",
                                     .title = "Event log",
                                     .what = "Every allocation and free, and what happened between them, line by line",
                                     .place = Place::left};
    return kInfo;
  }

  void forget() override {
    rows_.forget();
    selection_.clear();
    shown_cursor_.reset();
    follows_ = true;
    all_managers_ = true;
  }

  void draw(ViewState& state, Ui& ui) override {
    auto const range = state.selected.value_or(TickRange{.begin = 0, .end = state.clock + 1});
    draw_controls(state, ui);
    (void)rows_.update(
        *state.model,
        {.ledger = all_managers_ ? std::nullopt : std::optional{state.ledger}, .range = range, .filter = state.filter},
        state.revision);
    if (std::exchange(generation_, rows_.generation()) != rows_.generation()) selection_.clear();
    if (!rows_.complaint().empty()) ui.warning(rows_.complaint());
    draw_notes(state, ui);
    if (rows_.rows().empty()) return draw_empty(state, ui);
    draw_table(state, ui);
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) && ui.asked(Command::copy)) {
      ImGui::SetClipboardText(as_tabs(plain(*state.model)).c_str());
    }
  }

private:
  [[nodiscard]] std::uint64_t first_row() const noexcept {
    return rows_.matching() - std::min<std::uint64_t>(rows_.matching(), rows_.rows().size());
  }

  void draw_controls(ViewState& state, Ui& ui) {
    if (std::exchange(state.wants_filter, false)) ImGui::SetKeyboardFocusHere();
    if (ui.input("##filter", "filter: cache  tag:kv  device:cuda:0  thread:7  size>=64MiB  kind:free", state.filter.text,
                 ImGui::GetFontSize() * 22)) {
      state.touch();
    }
    ui.help(
        "All terms must hold. tag:, site:, device:, kind: and thread: look there only, size> and size< compare, anything else "
        "looks "
        "everywhere. Esc clears.");
    Ui::same_line();
    if (ui.button(state.filter.kinds == ~std::uint64_t{0} ? "all kinds" : "some kinds")) ImGui::OpenPopup("kinds");
    if (ImGui::BeginPopup("kinds")) {
      for (auto const& group : kGroups) {
        auto is_on = (state.filter.kinds & group.kinds) == group.kinds;
        if (ui.checkbox(group.label, is_on)) {
          state.filter.kinds = is_on ? state.filter.kinds | group.kinds : state.filter.kinds & ~group.kinds;
          state.touch();
        }
      }
      if (ui.small_button("all")) state.filter.kinds = ~std::uint64_t{0};
      ImGui::EndPopup();
    }
    Ui::same_line();
    if (state.model->ledgers().size() > 1) {
      (void)ui.checkbox("all managers", all_managers_);
      ui.help("Otherwise only events of the manager that the header shows");
      Ui::same_line();
    }
    if (ui.toggle("follow", follows_)) follows_ = !follows_;
    ui.help("Keeps the newest event in sight");
  }

  void draw_notes(ViewState& state, Ui& ui) const {
    if (state.selected) {
      ui.soft("of the selected " + format_between(*state.model, state.selected->begin, state.selected->end));
      Ui::same_line();
    }
    ui.showing(rows_.rows().size(), rows_.matching(), "events");
    if (rows_.rows().size() >= rows_.matching()) ui.soft(format_count(rows_.matching()) + " events");
    auto const losses = state.model->losses();
    if (losses.forgotten_operations != 0) {
      Ui::same_line();
      ui.warning(format_count(losses.forgotten_operations) + " older ones were let go of");
      ui.help("The past is kept as far as memory for it goes: --memory gives it more");
    }
    if (losses.operations_missing != 0) {
      Ui::same_line();
      ui.bad(format_count(losses.operations_missing) + " missing");
      ui.help(
          "Operations that were overwritten before they could be read. Rows say where; figures after them come from the books.");
    }
  }

  static void draw_empty(ViewState& state, Ui& ui) {
    if (state.filter.is_on()) {
      ui.empty("No event fits the filter", "Esc clears it");
    } else if (state.selected) {
      ui.empty("Nothing happened in the selected range", "Esc lets go of it");
    } else if (state.model->source().process().events_off) {
      ui.empty("This program writes no events", "It runs with HEADROOM_FLIGHT=off: only its books are known");
    } else {
      ui.empty("Nothing has happened yet", "Events show up here as the program allocates");
    }
  }

  void draw_table(ViewState& state, Ui& ui) {
    auto const rows = rows_.rows();
    has_manager_ = state.model->ledgers().size() > 1;
    auto const columns = std::span{kColumns};
    auto table =
        ui.table(has_manager_ ? "events of managers" : "events", has_manager_ ? columns : columns.first(kColumns.size() - 1));
    if (!table) return;
    auto const at_cursor = state.cursor ? rows_.row_at(*state.cursor) : std::nullopt;
    if (state.cursor != shown_cursor_) {
      if (at_cursor) table.scroll_to(*at_cursor);
      state.touch();  // scrolled is what the next frame draws
      follows_ = !state.cursor;
    }
    shown_cursor_ = state.cursor;
    if (ImGui::IsWindowHovered() && ImGui::GetIO().MouseWheel > 0) follows_ = false;
    if (follows_ && !state.is_paused && rows_.matching() != followed_) {
      table.scroll_to(rows.size());
      state.touch();
    }
    followed_ = rows_.matching();
    table.rows(rows.size(), [&](std::size_t row) { draw_row(state, ui, rows[row], first_row() + row, row == at_cursor); });
  }

  void draw_row(ViewState& state, Ui& ui, EventRow const& row, std::uint64_t number, bool is_at_cursor) {
    auto const& colours = ui.colours();
    auto const is_later = state.cursor && row.ticks > *state.cursor;
    auto const ink = is_later ? colours.soft : colours.text;
    ui.cell();
    if (ui.row_button(static_cast<std::size_t>(number), is_at_cursor || selection_.has(number))) {
      selection_.pick(number, ImGui::GetIO().KeyShift);
      follows_ = false;
    }
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(0)) state.travel_to(row.ticks);
    draw_menu(state, ui, row, number);
    ui.text_right(format_instant(*state.model, row.ticks, 1'000), ink);
    if (ImGui::IsItemHovered()) ui.help(format_wall_clock(*state.model, row.ticks));
    ui.cell();
    if (row.what == EventRow::What::gap) {
      ui.bad("\u2014 gap \u2014");
      for (int column = 2; column < 8; ++column) ui.cell();
      auto const owner = owner_of(*state.model, row);
      ui.elided(missing_in_words(row) + " of " + (owner.empty() ? std::string{kEarlierOwner} : std::string{owner}) +
                    " missing before the next line",
                0, colours.bad);
      return;
    }
    auto const weight = weight_of(row.kind);
    ui.text_coloured(word_of(row.kind), is_later                    ? colours.soft
                                        : weight == Weight::bad     ? colours.bad
                                        : weight == Weight::notable ? colours.accent
                                                                    : colours.text);
    ui.cell();
    if (tells_bytes(row)) ui.bytes_right(row.bytes, ink);
    ui.cell();
    if (row.used_after) ui.bytes_right(*row.used_after, ink);
    ui.cell();
    if (row.what == EventRow::What::operation || !row.tag.empty()) ui.tag(row.tag);
    ui.cell();
    ui.text_right(std::to_string(row.thread), ink);
    ui.cell();
    if (row.duration_ns != 0) ui.duration_right(row.duration_ns);
    ui.cell();
    if (row.what == EventRow::What::journal) {
      ui.elided(row.text, 0, ink);
    } else {
      ui.site(row.site, {}, colours.soft);
    }
    if (row.is_recovered) {
      Ui::same_line();
      ui.soft("(from the live table)");
    }
    if (!has_manager_) return;
    ui.cell();
    if (state.model->ledger(row.ledger) == nullptr) return;
    auto const owner = owner_of(*state.model, row);
    ui.elided(owner.empty() ? kEarlierOwner : owner, 0, colours.soft);
  }

  void draw_menu(ViewState& state, Ui& ui, EventRow const& row, std::uint64_t number) {
    ImGui::PushID(static_cast<int>(number));
    if (ImGui::IsItemHovered() && ImGui::IsMouseReleased(1)) ImGui::OpenPopup("row");
    if (ImGui::BeginPopup("row")) {
      if (ui.small_button("go to this moment")) state.travel_to(row.ticks);
      auto const only = [&](std::string_view name, std::string_view value) {
        if (!ui.small_button("only " + std::string{name} + std::string{value})) return;
        state.filter.text = with_term(state.filter.text, name, value);
        state.touch();
        ImGui::CloseCurrentPopup();
      };
      if (!row.tag.empty()) only("tag:", row.tag);
      only("kind:", word_of(row.kind));
      only("thread:", std::to_string(row.thread));
      if (!row.device.empty()) only("device:", row.device);
      if (!row.site.empty()) only("site:", row.site);
      ImGui::EndPopup();
    }
    ImGui::PopID();
  }

  /// The picked rows, or all.
  [[nodiscard]] PlainTable plain(follow::Model const& model) const {
    auto const first = first_row();
    return plain_events(model, rows_.rows(), [&](std::size_t row) { return selection_.empty() || selection_.has(first + row); });
  }

  EventRows rows_;
  RowSelection selection_;
  std::optional<std::uint64_t> shown_cursor_;
  std::uint64_t generation_ = 0;
  std::uint64_t followed_ = 0;
  bool follows_ = true;
  bool has_manager_ = false;
  bool all_managers_ = true;
};

}  // namespace

std::unique_ptr<Panel> make_event_log_panel() { return std::make_unique<EventLogPanel>(); }

}  // namespace headroom::viewer
