// The peak inspector: who held what when most was held.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <headroom/byte_size.hpp>

#include "figures.hpp"
#include "paced.hpp"
#include "panels.hpp"
#include "peak_data.hpp"

namespace headroom::viewer {
namespace {

constexpr std::array kTagColumns{
    Column{.title = "Tag", .width = 26},
    Column{.title = "At the peak", .width = 12, .is_right = true},
    Column{.title = "Blocks", .width = 9, .rank = 2, .is_right = true},
    Column{.title = "Now", .width = 11, .rank = 1, .is_right = true, .help = "At the moment that is looked at"},
    Column{.title = "Share of the peak", .least = 10, .rank = 3},
};
constexpr std::array kSiteColumns{
    Column{.title = "At the peak", .width = 12, .is_right = true},
    Column{.title = "Blocks", .width = 9, .rank = 2, .is_right = true},
    Column{.title = "Tag", .width = 20, .rank = 1},
    Column{.title = "Site"},
};

class PeakPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "peak",
                                     .title = "Peak",
                                     .what = "Who held what when most was held: ever, or within the selected range. P goes there",
                                     .place = Place::right};
    return kInfo;
  }

  void forget() override { data_.forget(); }

  void draw(ViewState& state, Ui& ui) override {
    auto const now = state.known_instant();
    auto const until = state.paused_at();
    auto const& data = data_.get({.ledger = state.ledger, .range = state.selected, .cursor = state.cursor, .until = until},
                                 {.revision = state.revision, .now = now},
                                 [&] { return peak_data(*state.model, state.ledger, state.selected, now, until); });
    if (data_.is_behind()) state.touch();
    if (data.bytes == 0) {
      ui.empty(state.selected ? "Nothing was held in the selected range" : "Nothing was ever held",
               state.selected ? "Esc lets go of the selection" : "The peak shows up with the first allocation");
      return;
    }
    draw_headline(state, ui, data);
    auto const height = ImGui::GetContentRegionAvail().y;
    if (auto table = ui.table("peak tags", kTagColumns, data.sites.rows.empty() ? 0 : height * 0.55F)) {
      table.rows(data.tags.size(), [&](std::size_t row) { draw_tag(ui, data.tags[row], data.bytes); });
    }
    if (data.sites.rows.empty()) return;
    ui.showing(data.sites.rows.size(), data.sites.total, "sites");
    if (auto table = ui.table("peak sites", kSiteColumns)) {
      table.rows(data.sites.rows.size(), [&](std::size_t row) { draw_site(ui, data.sites.rows[row]); });
    }
  }

private:
  struct Choice {
    std::uint32_t ledger = 0;
    std::optional<TickRange> range{};
    std::optional<std::uint64_t> cursor{}, until{};
    friend bool operator==(Choice const&, Choice const&) = default;
  };
  struct Version {
    std::uint64_t revision = 0, now = 0;
    friend bool operator==(Version const&, Version const&) = default;
  };

  static void draw_headline(ViewState& state, Ui& ui, PeakData const& data) {
    ui.large(format_bytes(data.bytes));
    Ui::same_line();
    ui.soft(state.selected    ? "the most in the selected range"
            : data.is_of_kept ? "the most of what is kept up to the pause"
                              : "the most that was ever held");
    if (data.limit && *data.limit != 0) {
      ui.labelled("budget", format_bytes_exact(*data.limit));
      auto const share = static_cast<double>(data.bytes) / static_cast<double>(*data.limit);
      ui.share_bar(share, data.bytes > *data.limit ? ui.colours().bad : ui.colours().accent);
    }
    ui.labelled("exactly", format_count(data.bytes) + " B");
    if (data.ticks) {
      auto const wall = format_wall_clock(*state.model, *data.ticks);
      ui.labelled("at", format_instant(*state.model, *data.ticks, 1'000) + (wall.empty() ? "" : "   " + wall));
      Ui::same_line();
      if (ui.small_button("show this moment")) state.travel_to(*data.ticks);
      ui.help("All panels then show what was the case at the peak");
    } else {
      ui.soft("before the kept past: tags are those that the books noted then");
    }
    if (data.unattributed_bytes != 0) {
      ui.warning(format_bytes(data.unattributed_bytes) + " of it belong to no tag that is known");
      ui.help(data.is_from_books
                  ? "Tags of the books are exact for one thread; with several they may be off by what was under way"
                  : "They lie in blocks that were never seen");
    }
  }

  static void draw_tag(Ui& ui, PeakTag const& tag, std::uint64_t whole) {
    ui.cell();
    ui.tag(tag.name);
    ui.cell();
    ui.bytes_right(tag.then);
    ui.cell();
    if (tag.allocations) ui.count_right(*tag.allocations);
    ui.cell();
    ui.bytes_right(tag.now, ui.colours().soft);
    ui.cell();
    ui.share_bar(static_cast<double>(tag.then) / static_cast<double>(whole), ui.tag_colour(tag.name));
  }

  static void draw_site(Ui& ui, LiveRow const& row) {
    ui.cell();
    ui.bytes_right(row.bytes);
    ui.cell();
    ui.count_right(row.blocks);
    ui.cell();
    if (row.has_several_tags) {
      ui.soft("several");
    } else {
      ui.tag(row.tag);
    }
    ui.cell();
    ui.site(row.site, "no site is recorded");
  }

  Paced<Choice, Version, PeakData> data_;
};

}  // namespace

std::unique_ptr<Panel> make_peak_panel() { return std::make_unique<PeakPanel>(); }

}  // namespace headroom::viewer
