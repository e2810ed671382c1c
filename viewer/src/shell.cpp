#include "shell.hpp"

#include <algorithm>
#include <optional>

#include "peak_data.hpp"
#include "travel.hpp"

namespace headroom::viewer {
namespace {

constexpr float kWideWindow = 84;  // in heights of a line: from here on two panels stand side by side

}  // namespace

Shell::Shell() : panels_{make_panels()} {}

void Shell::forget() {
  for (auto const& panel : panels_) panel->forget();
}

Panel const* Shell::find(std::string_view name) const noexcept {
  auto const found = std::ranges::find(panels_, name, [](auto const& panel) { return panel->info().name; });
  return found != panels_.end() ? found->get() : nullptr;
}

void Shell::draw(ViewState& state, Ui& ui) {
  answer(state, ui);
  if (shows_help_) help_page(ui);
  if (state.model == nullptr) {
    ui.section("viewer");
    ui.empty("Nothing is open", "Ctrl+O lists the processes of this machine; a file can be dropped here.");
    return;
  }
  auto const size = ImGui::GetFontSize();
  draw_place(state, ui, Place::strip);
  auto const room = ImGui::GetContentRegionAvail();
  auto const has_tabs = std::ranges::any_of(panels_, [](auto const& panel) { return panel->info().place >= Place::left; });
  auto const least = std::min(size * 6, room.y);
  auto const split = has_tabs ? std::clamp(room.y * timeline_share_, least, std::max(least, room.y - size * 6)) : room.y;
  ImGui::BeginChild("##timeline", {0, split}, false, ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoScrollbar);
  draw_place(state, ui, Place::timeline);
  ImGui::EndChild();
  if (!has_tabs) return;
  ImGui::InvisibleButton("##splitter", {std::max(room.x, 1.0F), std::max(size * 0.4F, 4.0F)});
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeNS);
  if (ImGui::IsItemActive() && room.y > 0) {
    timeline_share_ = std::clamp(timeline_share_ + ImGui::GetIO().MouseDelta.y / room.y, 0.1F, 0.9F);
    state.touch();
  }
  if (room.x < size * kWideWindow) {
    tabs(state, ui, "##tabs", true, true);
  } else {
    auto const half = (room.x - ImGui::GetStyle().ItemSpacing.x) / 2;
    ImGui::BeginChild("##left", {half, 0});
    tabs(state, ui, "##left tabs", true, false);
    ImGui::EndChild();
    Ui::same_line();
    ImGui::BeginChild("##right", {0, 0});
    tabs(state, ui, "##right tabs", false, true);
    ImGui::EndChild();
  }
  state.asked_panel.clear();
}

void Shell::draw_place(ViewState& state, Ui& ui, Place place) {
  for (auto const& panel : panels_) {
    if (panel->info().place != place) continue;
    ui.section(panel->info().name);
    ImGui::PushID(panel->info().name.data());
    panel->draw(state, ui);
    ImGui::PopID();
  }
}

void Shell::tabs(ViewState& state, Ui& ui, char const* id, bool left, bool right) {
  if (!ImGui::BeginTabBar(id, ImGuiTabBarFlags_FittingPolicyScroll)) return;
  for (auto const& panel : panels_) {
    auto const& info = panel->info();
    if ((!left || info.place != Place::left) && (!right || info.place != Place::right)) continue;
    auto const flags = state.asked_panel == info.name ? ImGuiTabItemFlags_SetSelected : ImGuiTabItemFlags_None;
    ui.section("tabs");
    auto const is_open = ImGui::BeginTabItem(std::string{info.title}.c_str(), nullptr, flags);
    ui.note(info.title);
    ui.help(info.what);
    if (!is_open) continue;
    ui.section(info.name);
    ImGui::BeginChild(info.name.data());
    panel->draw(state, ui);
    ImGui::EndChild();
    ImGui::EndTabItem();
  }
  ImGui::EndTabBar();
}

void Shell::answer(ViewState& state, Ui& ui) {
  if (ui.asked(Command::help)) shows_help_ = !shows_help_;
  if (state.model == nullptr) return;
  if (ui.asked(Command::pause)) state.toggle_pause();
  if (ui.asked(Command::live)) state.go_live();
  if (ui.asked(Command::fit_all)) state.fit_all();
  if (ui.asked(Command::fit_selection) && state.selected) state.fit(*state.selected);
  auto const middle = state.cursor && state.visible.contains(*state.cursor)
                          ? *state.cursor
                          : state.visible.begin + (state.is_live ? state.visible.length() : state.visible.length() / 2);
  if (ui.asked(Command::zoom_in)) state.zoom(1 / 1.5, middle);
  if (ui.asked(Command::zoom_out)) state.zoom(1.5, middle);
  if (ui.asked(Command::pan_left)) state.pan(-0.2);
  if (ui.asked(Command::pan_right)) state.pan(0.2);
  if (ui.asked(Command::peak)) {
    if (auto const peak = peak_ticks(*state.model, state.ledger, state.paused_at())) state.travel_to(*peak);
  }
  if (ui.asked(Command::next_failure)) go_to_failure(state, true);
  if (ui.asked(Command::previous_failure)) go_to_failure(state, false);
  if (ui.asked(Command::next_event)) go_to_event(state, true);
  if (ui.asked(Command::previous_event)) go_to_event(state, false);
  if (ui.asked(Command::filter)) {
    state.ask_for_panel("event-log");
    state.wants_filter = true;
  }
  if (ui.asked(Command::export_selection)) state.ask_for_panel("export");
  if (ui.asked(Command::clear)) {
    // One thing at a time, the innermost first.
    if (shows_help_) {
      shows_help_ = false;
    } else if (state.filter.is_on()) {
      if (ImGui::GetIO().WantTextInput) ImGui::SetWindowFocus(nullptr);  // or the field would bring back what it had
      state.filter = {};
    } else if (state.selected) {
      state.select(std::nullopt);
    } else {
      state.end_travel();
    }
    state.touch();
  }
}

void Shell::help_page(Ui& ui) {
  ImGui::SetNextWindowPos(ImGui::GetIO().DisplaySize, ImGuiCond_Appearing, {1.05F, 1.05F});
  if (ImGui::Begin("Keys and panels", &shows_help_, ImGuiWindowFlags_AlwaysAutoResize | ImGuiWindowFlags_NoSavedSettings)) {
    ui.section("help");
    auto const column = ImGui::GetFontSize() * 7;
    for (auto const& habit : kHabits) {
      ui.text(habit.keys);
      ImGui::SameLine(column);
      ui.soft(habit.what);
    }
    ui.text("Wheel");
    ImGui::SameLine(column);
    ui.soft("zoom at the pointer; with Ctrl finely, with Shift fast");
    ui.text("Drag");
    ImGui::SameLine(column);
    ui.soft("left: look at a moment; right: move; middle: zoom; Ctrl+left: select");
    ImGui::Separator();
    for (auto const& panel : panels_) {
      ui.text(panel->info().title);
      ImGui::SameLine(column);
      ui.soft(panel->info().what);
    }
  }
  ImGui::End();
}

}  // namespace headroom::viewer
