// Panel 1: the strip above all others.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include <headroom/byte_size.hpp>

#include "cached.hpp"
#include "figures.hpp"
#include "header_data.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

constexpr PanelInfo kInfo{.name = "header",
                          .title = "Header",
                          .what = "Which process, how full its budget is, and how it fares.",
                          .place = Place::strip};

ImU32 colour_of(Life life, Colours const& colours) {
  switch (life) {
    case Life::living: return colours.good;
    case Life::killed: return colours.bad;
    default: return colours.soft;
  }
}

class HeaderPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override { return kInfo; }
  void forget() override {
    rate_.forget();
    figures_.forget();
  }

  void draw(ViewState& state, Ui& ui) override {
    auto const& model = *state.model;
    auto const& figures = figures_.get({state.revision, state.instant(), state.ledger, state.is_paused, state.cursor.has_value()},
                                       [&] { return header_figures(state); });
    rate_.note(model.monotonic_ns(state.clock), model.losses().events_read);
    auto const is_low = ImGui::GetContentRegionAvail().y < ImGui::GetFontSize() * 22;  // the timeline needs what there is
    who(state, ui, figures);
    budget(ui, figures);
    if (!is_low) details(state, ui, figures);
  }

private:
  struct Key {
    std::uint64_t revision = 0, instant = 0;
    std::uint32_t ledger = 0;
    bool is_paused = false, travels = false;
    friend bool operator==(Key const&, Key const&) = default;
  };

  void who(ViewState& state, Ui& ui, HeaderFigures const& figures) {
    auto const middle = ImGui::GetCursorPosY() + ImGui::GetStyle().FramePadding.y;
    ImGui::SetCursorPosY(middle);
    ui.badge(to_string(figures.life), colour_of(figures.life, ui.colours()));
    ui.help(figures.life == Life::recorded ? "A recorded history: nothing follows what is in the file."
                                           : "Whether the process lives, ended in good order, or was killed.");
    Ui::same_line();
    ImGui::SetCursorPosY(middle);
    ui.strong(figures.program);
    Ui::same_line();
    auto const room = ImGui::GetContentRegionAvail().x - controls_width_ - ImGui::GetFontSize();
    ImGui::SetCursorPosY(middle);
    if (room > ImGui::GetFontSize() * 4) {
      ui.elided(figures.place, room, ui.colours().soft);
      Ui::same_line();
    }
    controls(state, ui, figures.life == Life::living);
  }

  /// At the right edge, or in a line of their own where there is no room.
  void controls(ViewState& state, Ui& ui, bool is_living) {
    auto const at = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x - controls_width_;
    if (at < ImGui::GetCursorPosX()) ImGui::NewLine();
    ImGui::SetCursorPosX(std::max(at, ImGui::GetCursorPosX()));
    ImGui::BeginGroup();
    choose_ledger(state, ui);
    Ui::same_line();
    if (ui.toggle(is_living ? "Live" : "End", state.is_live && !state.is_paused && !state.cursor)) state.go_live();
    ui.help(is_living ? "Follow what is new (L)." : "To the end of what is kept (L).");
    Ui::same_line();
    if (ui.toggle(state.is_paused ? "Paused" : "Pause", state.is_paused)) state.toggle_pause();
    ui.help("The display stands still; reading goes on (Space).");
    Ui::same_line();
    if (ui.button(state.theme == ThemeName::dark ? "Light" : "Dark")) {
      state.theme = state.theme == ThemeName::dark ? ThemeName::light : ThemeName::dark;
      state.touch();
    }
    ui.help("The other theme. Both are readable without telling red from green.");
    ImGui::EndGroup();
    controls_width_ = ImGui::GetItemRectSize().x;
  }

  void choose_ledger(ViewState& state, Ui& ui) {
    auto const ledgers = state.model->ledgers();
    names_.clear();
    std::size_t chosen = 0;
    for (std::size_t i = 0; i < ledgers.size(); ++i) {
      auto const& one = ledgers[i];
      auto name = one.name.empty() ? "ledger " + std::to_string(one.cell) : one.name;
      if (one.is_namesake) name.insert(0, "#" + std::to_string(one.directory_id) + " ");
      if (!one.device_name.empty()) name += " on " + one.device_name;
      names_.push_back(std::move(name));
      if (one.cell == state.ledger) chosen = i;
    }
    if (names_.empty()) return;
    auto const width = std::clamp(ImGui::GetContentRegionMax().x * 0.3F, ImGui::GetFontSize() * 4, ImGui::GetFontSize() * 11);
    if (ui.choice("##ledger", names_, chosen, width)) state.choose_ledger(ledgers[chosen].cell);
    ui.help("Whose memory the panels show: a manager, or the account of a whole device.");
  }

  static void budget(Ui& ui, HeaderFigures const& figures) {
    auto const& colours = ui.colours();
    auto const is_known = figures.known != follow::Known::forgotten && figures.known != follow::Known::not_recorded &&
                          figures.known != follow::Known::no_ledger;
    if (!is_known) {
      ui.soft("Nothing is known of this instant: it lies before what is kept.");
      return;
    }
    auto const top = ImGui::GetCursorPosY();
    ui.large(format_bytes(figures.allocated));
    // What follows stands on the same ground as the large figure.
    auto const shift = std::max(0.0F, (ImGui::GetItemRectSize().y - ImGui::GetFontSize()) * 0.8F);
    ui.help(format_count(figures.allocated) + " bytes: the sum of all live allocations.");
    Ui::same_line();
    ImGui::SetCursorPosY(top + shift);
    ImGui::BeginGroup();
    if (figures.limit) {
      ui.soft("of " + format_bytes(*figures.limit));
      ui.help("The budget: " + format_count(*figures.limit) + " bytes. No request is granted that would go above it" +
              (figures.is_enforcing ? std::string{"."} : std::string{"; but it only observes, and refuses nothing."}));
    } else {
      ui.soft(figures.is_unlimited ? "no budget" : "budget not known");
    }
    Ui::same_line();
    ui.exact_bytes(figures.allocated);
    Ui::same_line(ImGui::GetFontSize() * 0.4F);
    ui.soft("in");
    Ui::same_line(ImGui::GetFontSize() * 0.4F);
    ui.text(format_count(figures.live_allocations) + (figures.live_allocations == 1 ? " allocation" : " allocations"));
    if (figures.limit || figures.pressure != PressureLevel::none) {
      Ui::same_line(ImGui::GetFontSize());
      ui.soft("pressure");
      Ui::same_line(ImGui::GetFontSize() * 0.4F);
      ui.pressure(figures.pressure);
      ui.help(
          "Pressure: none below 70 % of the budget, low from there, medium from 90 %, high from 95 %, critical when it is full.");
    }
    ImGui::EndGroup();
    bar(ui, figures, colours);
  }

  /// Used, claimed beyond that, the peak as a tick, and the whole width is the budget.
  static void bar(Ui& ui, HeaderFigures const& figures, Colours const& colours) {
    auto const whole = std::max(
        {figures.limit.value_or(0), figures.peak.value_or(0), figures.claimed.value_or(0), figures.allocated, std::uint64_t{1}});
    auto const size = ImGui::GetFontSize();
    auto const at = ImGui::GetCursorScreenPos();
    auto const width = std::max(ImGui::GetContentRegionAvail().x, size);
    auto const height = size * 0.55F;
    auto const x = [&](std::uint64_t bytes) {
      return at.x + width * static_cast<float>(static_cast<double>(bytes) / static_cast<double>(whole));
    };
    auto* const list = ImGui::GetWindowDrawList();
    auto const bottom = at.y + height;
    list->AddRectFilled(at, {at.x + width, bottom}, colours.faint, 3);
    auto const claimed = std::max(figures.claimed.value_or(figures.allocated), figures.allocated);
    if (claimed > figures.allocated) list->AddRectFilled(at, {x(claimed), bottom}, faded(colours.accent, 0.4F), 3);
    auto const level = std::min<std::size_t>(static_cast<std::size_t>(figures.pressure), 4);
    auto const fill = level >= 2 ? colours.pressure.at(level) : colours.accent;
    if (figures.allocated != 0) list->AddRectFilled(at, {std::max(x(figures.allocated), at.x + 2), bottom}, fill, 3);
    if (figures.peak) {
      auto const tick = std::min(x(*figures.peak), at.x + width - 2);
      list->AddRectFilled({tick - 1, at.y - 2}, {tick + 1, bottom + 2}, colours.peak);
    }
    if (figures.limit && *figures.limit < whole) {
      auto const tick = x(*figures.limit);
      list->AddRectFilled({tick - 1, at.y - 3}, {tick + 1, bottom + 3}, colours.limit);
    }
    ImGui::Dummy({width, height});
    ui.tooltip([&] {
      ui.labelled("used", format_bytes_exact(figures.allocated));
      if (claimed > figures.allocated) ui.labelled("claimed, not yet used", format_bytes_exact(claimed - figures.allocated));
      if (figures.peak) ui.labelled("peak, the tick", format_bytes_exact(*figures.peak));
      if (figures.limit) ui.labelled("budget", format_bytes_exact(*figures.limit));
      if (figures.remaining) ui.labelled("room left", format_bytes_exact(*figures.remaining));
    });
  }

  void details(ViewState& state, Ui& ui, HeaderFigures const& figures) {
    auto const& colours = ui.colours();
    first_ = true;
    if (state.cursor) {
      item(ui, "as of", format_instant(*state.model, *state.cursor, 1'000), colours.accent,
           "Panels show what was the case at the cursor of the timeline. Esc ends it.");
    }
    if (figures.peak) item(ui, "peak", format_bytes(*figures.peak), colours.text, "The most that was ever allocated at once.");
    if (figures.remaining) {
      item(ui, "room", format_bytes(*figures.remaining), colours.text, "What the budget would still grant.");
    }
    if (figures.unspent.value_or(0) != 0) {
      item(ui, "reserved", format_bytes(*figures.unspent), colours.text, "Reserved, and not spent yet.");
    }
    if (figures.sentinel.value_or(0) != 0) {
      item(ui, "sentinel", format_bytes(*figures.sentinel), colours.text, "Kept back for the last resort of a guard.");
    }
    if (figures.device_free) {
      item(ui, "device free", format_bytes(*figures.device_free), colours.text, "Free on the whole device, by its driver.");
    }
    if (figures.unattributed_bytes != 0) {
      item(ui, "unattributed", format_bytes(figures.unattributed_bytes), colours.warning,
           "Live, in blocks whose allocation was before what is kept, or lost.");
    }
    if (figures.failures)
      item(ui, "failures", format_count(*figures.failures), *figures.failures != 0 ? colours.bad : colours.text,
           "Requests that were refused (N: next one).");
    if (figures.life == Life::living) {
      auto const rate = rate_.per_second();
      item(ui, "events/s", rate ? format_count(static_cast<std::uint64_t>(std::llround(*rate))) : "\u2013", colours.text,
           "Events read in the last two seconds.");
    }
    if (figures.life != Life::recorded) {
      item(ui, "lost", format_count(figures.lost), figures.lost != 0 ? colours.bad : colours.text,
           "Events that were overwritten before they could be read. Books are exact all the same.");
      item(ui, "refused", format_count(figures.refused), figures.refused != 0 ? colours.bad : colours.text,
           "Events that the program could not write down: no lane, or from within the recorder.");
    }
    if (figures.life == Life::living && figures.idle_ns) {
      item(ui, "last event",
           *figures.idle_ns < 1'000'000'000 ? "now" : format_duration(*figures.idle_ns / 1'000'000'000 * 1'000'000'000) + " ago",
           colours.text, "How long nothing has been allocated, freed or refused.");
    }
  }

  /// Beside the one before, or in a new line where there is no room.
  void item(Ui& ui, std::string_view label, std::string_view figure, ImU32 colour, std::string_view help) {
    auto const size = ImGui::GetFontSize();
    auto const gap = ImGui::GetStyle().ItemInnerSpacing.x;
    auto const width = Ui::width_of(label) + gap + Ui::width_of(figure);
    if (!first_) {
      Ui::same_line(size * 1.2F);
      if (ImGui::GetContentRegionAvail().x < width) ImGui::NewLine();
    }
    first_ = false;
    ImGui::BeginGroup();
    ui.labelled(label, figure, colour);
    ImGui::EndGroup();
    ui.help(help);
  }

  Cached<Key, HeaderFigures> figures_;
  EventRate rate_;
  std::vector<std::string> names_;
  bool first_ = true;
  float controls_width_ = 0;  // of the last frame
};

}  // namespace

std::unique_ptr<Panel> make_header_panel() { return std::make_unique<HeaderPanel>(); }

}  // namespace headroom::viewer
