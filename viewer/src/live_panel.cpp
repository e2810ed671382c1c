// Live allocations: who holds what at the moment that is looked at, and what outlived a range: the leak list.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <headroom/byte_size.hpp>

#include "event_words.hpp"
#include "figures.hpp"
#include "live_rows.hpp"
#include "paced.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

constexpr std::array kColumns{
    Column{.title = "Tag", .width = 16, .is_sortable = true},
    Column{.title = "Size", .width = 9, .is_right = true, .is_sortable = true},
    Column{.title = "Share", .width = 9, .rank = 4, .help = "Of all that its manager held then"},
    Column{.title = "Blocks", .width = 8, .rank = 3, .is_right = true, .is_sortable = true},
    Column{.title = "Age",
           .width = 9,
           .rank = 1,
           .is_right = true,
           .is_sortable = true,
           .help = "Of a group, that of its oldest block"},
    Column{.title = "Thread", .width = 8, .rank = 5, .is_right = true},
    Column{.title = "Address", .width = 15, .rank = 6},
    Column{.title = "Site", .least = 22, .rank = 2, .help = "The place in the program that asked"},
};
constexpr int kTag = 0, kSize = 1, kBlocks = 3, kAge = 4;

LiveOrder order_of(int column) noexcept {
  switch (column) {
    case kTag: return LiveOrder::name;
    case kBlocks: return LiveOrder::count;
    case kAge: return LiveOrder::age;
    default: return LiveOrder::bytes;
  }
}

class LivePanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "live",
                                     .title = "Live allocations",
                                     .what = "What was held at the moment that is looked at, by block, tag, site or thread",
                                     .place = Place::left};
    return kInfo;
  }

  void forget() override { rows_.forget(); }

  void draw(ViewState& state, Ui& ui) override {
    draw_controls(state, ui);
    auto const since = only_old_ && state.selected ? std::optional{state.selected->begin} : std::nullopt;
    LiveQuery query{.ledger = state.ledger,
                    .ticks = 0,
                    .alive_since = since,
                    .text = text_,
                    .grouping = static_cast<LiveGrouping>(grouping_),
                    .order = order_of(order_.column),
                    .is_descending = order_.is_descending};
    auto const choice = Choice{.query = query, .cursor = state.cursor};
    query.ticks = state.known_instant();
    // Of a range, what was still there at its end; without time travel nothing else was asked about.
    if (since && !state.cursor) query.ticks = std::min(query.ticks, state.selected->end - 1);
    auto const& rows =
        rows_.get(choice, {.revision = state.revision, .ticks = query.ticks}, [&] { return live_rows(*state.model, query); });
    if (rows_.is_behind()) state.touch();
    draw_notes(state, ui, rows, query);
    if (rows.rows.empty()) return draw_empty(state, ui, rows, since);
    draw_table(state, ui, rows, query);
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) && ui.asked(Command::copy)) {
      ImGui::SetClipboardText(as_tabs(plain_live(*state.model, rows, query.ticks)).c_str());
    }
  }

private:
  struct Choice {
    LiveQuery query{};
    std::optional<std::uint64_t> cursor{};
    friend bool operator==(Choice const&, Choice const&) = default;
  };
  struct Version {
    std::uint64_t revision = 0, ticks = 0;
    friend bool operator==(Version const&, Version const&) = default;
  };

  void draw_controls(ViewState& state, Ui& ui) {
    static std::array<std::string, 4> const groupings{"each block", "by tag", "by site", "by thread"};
    if (ui.choice("##grouping", groupings, grouping_, ImGui::GetFontSize() * 8)) state.touch();
    Ui::same_line();
    if (ui.input("##holder", "tag or site", text_, ImGui::GetFontSize() * 14)) state.touch();
    Ui::same_line();
    ImGui::BeginDisabled(!state.selected);
    (void)ui.checkbox("only what is older than the selection", only_old_);
    ImGui::EndDisabled();
    ui.help(
        "Select a range on the timeline (Ctrl and drag): what was allocated before it and still lives at its end is the leak "
        "list");
  }

  static void draw_notes(ViewState& state, Ui& ui, LiveRows const& rows, LiveQuery const& query) {
    auto const is_now = !state.cursor && query.ticks == state.known_instant();
    auto const ticks = state.cursor.value_or(query.ticks);
    ui.soft(is_now ? std::string{"now:"} : "at " + format_instant(*state.model, ticks, 1'000) + ":");
    Ui::same_line();
    ui.bytes(rows.bytes);
    Ui::same_line();
    ui.soft("in " + format_count(rows.blocks) + (rows.blocks == 1 ? " block" : " blocks") +
            (query.alive_since ? ", alive since before the selected range" : ""));
    if (rows.bytes != rows.allocated) {
      Ui::same_line();
      ui.soft("of " + format_bytes(rows.allocated) + " allocated");
    }
    if (rows.unattributed_bytes != 0) {
      Ui::same_line();
      ui.warning(format_bytes(rows.unattributed_bytes) + " in blocks that were never seen");
      ui.help("They were allocated before the history begins, or while records were missing, and have no slot in the live table");
    }
    if (rows.known == follow::Known::gap) {
      ui.warning("This moment lies among records that are missing: figures are those just before them");
    }
    ui.showing(rows.rows.size(), rows.total, "rows");
  }

  void draw_empty(ViewState& state, Ui& ui, LiveRows const& rows, std::optional<std::uint64_t> since) const {
    if (rows.known == follow::Known::forgotten)
      return ui.empty("This moment is before the kept past", "Choose a later one on the timeline");
    if (rows.known == follow::Known::not_recorded) {
      return ui.empty("Who held what is not recorded of a device account", "Choose one of its managers in the header");
    }
    if (!text_.empty()) return ui.empty("Nothing that was held fits", "Change or clear the text above");
    if (since) return ui.empty("Nothing from before the selected range is left", "No leak in it");
    ui.empty(state.cursor ? "Nothing was held at this moment" : "Nothing is held now",
             rows.allocated == 0 ? "Click on the timeline to see another moment"
                                 : "The books have bytes whose blocks were never seen");
  }

  void draw_table(ViewState& state, Ui& ui, LiveRows const& rows, LiveQuery const& query) {
    auto table = ui.table("live", kColumns, 0, {.column = kSize, .is_descending = true});
    if (!table) return;
    if (order_ != table.order()) {
      order_ = table.order();
      state.touch();
    }
    table.rows(rows.rows.size(), [&](std::size_t index) { draw_row(state, ui, rows.rows[index], rows.allocated, query); });
  }

  static void draw_row(ViewState const& state, Ui& ui, LiveRow const& row, std::uint64_t allocated, LiveQuery const& query) {
    ui.cell();
    if (row.has_several_tags) {
      ui.soft("several");
    } else {
      ui.tag(row.tag);
    }
    ui.cell();
    ui.bytes_right(row.bytes);
    ui.cell();
    ui.share_bar(allocated == 0 ? 0 : static_cast<double>(row.bytes) / static_cast<double>(allocated), ui.tag_colour(row.tag));
    ui.cell();
    ui.count_right(row.blocks);
    ui.cell();
    if (row.oldest_ticks) {
      ui.duration_right(state.model->duration_ns(query.ticks - std::min(query.ticks, *row.oldest_ticks)));
      if (ImGui::IsItemHovered()) ui.help("since " + format_instant(*state.model, *row.oldest_ticks, 1'000));
    } else {
      ui.text_right("older", ui.colours().soft);
      ui.help("It was there before the kept past begins");
    }
    ui.cell();
    ui.text_right(row.has_several_threads ? std::string{"several"} : std::to_string(row.thread),
                  row.has_several_threads ? ui.colours().soft : ui.colours().text);
    ui.cell();
    if (row.address != 0) ui.soft(address_in_words(row.address));
    ui.cell();
    if (row.has_several_sites) {
      ui.soft("several");
    } else {
      ui.site(row.site);
    }
  }

  Paced<Choice, Version, LiveRows> rows_;
  SortOrder order_{.column = kSize, .is_descending = true};
  std::string text_;
  std::size_t grouping_ = 0;
  bool only_old_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_live_panel() { return std::make_unique<LivePanel>(); }

}  // namespace headroom::viewer
