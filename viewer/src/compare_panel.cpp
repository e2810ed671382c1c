// Two files side by side: who holds more, less, or is new.
#include <array>
#include <memory>
#include <string>

#include <headroom/byte_size.hpp>

#include "cached.hpp"
#include "compare_data.hpp"
#include "paced.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

constexpr std::array kColumns{
    Column{.title = "Change", .width = 13, .is_right = true},
    Column{.title = "", .width = 8},
    Column{.title = "Tag", .width = 18},
    Column{.title = "There", .width = 11, .rank = 2, .is_right = true, .help = "In the file that it is compared with"},
    Column{.title = "Here", .width = 11, .rank = 1, .is_right = true, .help = "In what is open in this window"},
    Column{.title = "Site", .least = 20, .rank = 3},
};

class ComparePanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "compare",
                                     .title = "Compare",
                                     .what = "Who holds more, less, or is new, against another process or file",
                                     .place = Place::right};
    return kInfo;
  }

  void forget() override {
    there_.forget();
    rows_.forget();
  }

  void draw(ViewState& state, Ui& ui) override {
    if (ui.input("##other", "a flight file, post-mortem or history", path_, ImGui::GetFontSize() * 22)) state.touch();
    Ui::same_line();
    if (ui.button("compare") && !path_.empty()) state.asked_other = path_;
    if (state.other == nullptr) {
      forget();
      ui.empty("Nothing to compare with", "Name a file above: an older run, or a post-mortem of this one");
      return;
    }
    Ui::same_line();
    if (ui.toggle("live", !at_peak_)) at_peak_ = false;
    ui.help("What is held now, or was when it ended, by tag and site");
    Ui::same_line();
    if (ui.toggle("at the peak", at_peak_)) at_peak_ = true;
    ui.help("What each manager held at its peak, by tag");
    // The other is wholly read. Of a process that still runs, live tables go on changing and its books do not: one look at both.
    auto const& there = there_.get(
        state.other, [&] { return There{.live = holdings_of(*state.other, false), .at_peak = holdings_of(*state.other, true)}; });
    auto const& rows = rows_.get({.other = state.other, .at_peak = at_peak_}, state.revision, [&] {
      return comparison_of(at_peak_ ? there.at_peak : there.live, holdings_of(*state.model, at_peak_));
    });
    if (rows_.is_behind()) state.touch();
    ui.labelled("there", format_bytes(rows.bytes_a));
    ui.help(state.other->source().title());
    Ui::same_line(ImGui::GetFontSize() * 1.5F);
    ui.labelled("here", format_bytes(rows.bytes_b));
    ui.help(state.model->source().title());
    if (rows.rows.empty()) return ui.empty("Nobody holds more or less", "");
    if (auto table = ui.table("changes", kColumns)) {
      table.rows(rows.rows.size(), [&](std::size_t row) { draw_row(ui, rows.rows[row]); });
    }
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) && ui.asked(Command::copy)) {
      ImGui::SetClipboardText(as_tabs(plain_comparison(rows)).c_str());
    }
  }

private:
  struct Choice {
    follow::Model const* other = nullptr;
    bool at_peak = false;
    friend bool operator==(Choice const&, Choice const&) = default;
  };
  struct There {
    follow::Holdings live{}, at_peak{};
  };

  static void draw_row(Ui& ui, ChangeRow const& row) {
    auto const is_more = row.kind == ChangeKind::grown || row.kind == ChangeKind::appeared;
    auto const& change = row.change;
    ui.cell();
    ui.text_right((is_more ? "+" : "\u2212") + format_bytes(change.size()), is_more ? ui.colours().warning : ui.colours().good);
    if (ImGui::IsItemHovered()) ui.help(format_count(change.size()) + " bytes");
    ui.cell();
    ui.soft(row.kind == ChangeKind::appeared ? "new" : row.kind == ChangeKind::vanished ? "gone" : is_more ? "grown" : "shrunk");
    ui.cell();
    ui.tag(change.holder.tag);
    ui.cell();
    ui.bytes_right(change.bytes_a);
    ui.cell();
    ui.bytes_right(change.bytes_b);
    ui.cell();
    ui.site(change.holder.site);
  }

  Cached<follow::Model const*, There> there_;
  Paced<Choice, std::uint64_t, Comparison> rows_;
  std::string path_;
  bool at_peak_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_compare_panel() { return std::make_unique<ComparePanel>(); }

}  // namespace headroom::viewer
