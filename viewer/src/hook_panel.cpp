// Hook lanes: a row for each hook, slices as long as they ran, and the failure that made each of them run.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <headroom/byte_size.hpp>
#include <headroom/follow_words.hpp>

#include "cached.hpp"
#include "figures.hpp"
#include "hook_lanes.hpp"
#include "paced.hpp"
#include "panels.hpp"
#include "timeline_plot.hpp"

namespace headroom::viewer {
namespace {

/// More arrows than these are a thicket.
constexpr std::size_t kMostArrows = 64;

std::string result_in_words(follow::HookTurnStory const& turn) {
  switch (turn.result) {
    case follow::HookResult::ran: return "ran";
    case follow::HookResult::threw: return "ended with an exception";
    case follow::HookResult::skipped_large: return "passed over: it needs " + format_bytes(turn.overhead) + " to run";
    case follow::HookResult::skipped_busy: return "passed over: busy on another thread for too long";
    case follow::HookResult::running: return "its end is not recorded";
    case follow::HookResult::elsewhere: return "ran on another thread, and was waited for";
  }
  return {};
}

class HookPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "hooks",
                                     .title = "Hooks",
                                     .what = "When each hook ran, what it freed, and which failure made it run",
                                     .place = Place::left};
    return kInfo;
  }

  void forget() override {
    lanes_.forget();
    cells_.forget();
  }

  void draw(ViewState& state, Ui& ui) override {
    auto const& lanes = lanes_.get(state.ledger, state.revision, [&] { return hook_lanes(*state.model, state.ledger); });
    if (lanes_.is_behind()) state.touch();
    if (lanes.lanes.empty()) return draw_none(state, ui);
    auto const names = ImGui::GetFontSize() * 13;
    auto const origin = ImGui::GetCursorScreenPos();
    auto const room = ImGui::GetContentRegionAvail();
    PlotArea const area{.left = origin.x + names,
                        .top = origin.y,
                        .right = std::max(origin.x + room.x, origin.x + names + 16),
                        .bottom = origin.y + room.y,
                        .visible = state.visible};
    auto const& cells = cells_.get({.lanes = lanes_.made(), .visible = state.visible, .width = area.width()}, [&] {
      std::vector<std::vector<LaneCell>> all;
      all.reserve(lanes.lanes.size());
      for (auto const& lane : lanes.lanes) all.push_back(cells_of(lane, state.visible, area.width()));
      return all;
    });
    ImGui::BeginChild("lanes");
    draw_failures(state, ui, area, lanes);
    std::size_t arrows = 0;
    for (std::size_t i = 0; i < lanes.lanes.size(); ++i) draw_lane(state, ui, area, lanes.lanes[i], cells[i], arrows);
    if (std::ranges::all_of(cells, [](auto const& of_lane) { return of_lane.empty(); })) {
      ui.soft("No hook ran in the visible range: Home shows all of it");
    }
    ImGui::EndChild();
  }

private:
  struct CellKey {
    std::uint64_t lanes = 0;  // how often they were worked out
    TickRange visible{};
    float width = 0;
    friend bool operator==(CellKey const&, CellKey const&) = default;
  };

  static void draw_none(ViewState const& state, Ui& ui) {
    if (state.model->source().kind() == follow::SourceKind::history) {
      return ui.empty("A recorded history has no hooks",
                      "Replay it under a guard: headroom replay FILE --budget 5GiB --hook cache:128MiB:1");
    }
    auto const hooks = state.model->source().hooks();
    if (hooks.empty())
      return ui.empty("This program has registered no hook",
                      "MemoryGuard::register_hook lets it free memory before a request fails");
    ui.empty(format_count(hooks.size()) + (hooks.size() == 1 ? " hook is registered" : " hooks are registered") +
                 ", and none has run for this manager",
             "They run when a request does not fit");
  }

  /// Where requests failed: what arrows come from.
  void draw_failures(ViewState& state, Ui& ui, PlotArea const& area, HookLanes const& lanes) {
    auto const line = ImGui::GetTextLineHeightWithSpacing();
    auto const at = ImGui::GetCursorScreenPos();
    failures_y_ = at.y + line * 0.8F;
    ui.soft("failures");
    auto* const list = ImGui::GetWindowDrawList();
    auto const first = std::ranges::lower_bound(lanes.failures, state.visible.begin);
    float drawn = -1;
    for (auto failure = first; failure != lanes.failures.end() && *failure < state.visible.end; ++failure) {
      auto const x = area.x_of(*failure);
      if (x - drawn < 1) continue;
      drawn = x;
      list->AddTriangleFilled({x - 4, at.y + 3}, {x + 4, at.y + 3}, {x, failures_y_}, ui.colours().bad);
    }
    list->AddLine({area.left, failures_y_}, {area.right, failures_y_}, ui.colours().line);
  }

  void draw_lane(ViewState& state, Ui& ui, PlotArea const& area, HookLane const& lane, std::vector<LaneCell> const& cells,
                 std::size_t& arrows) const {
    auto const size = ImGui::GetFontSize();
    auto const height = size * 2.2F;
    auto const at = ImGui::GetCursorScreenPos();
    auto* const list = ImGui::GetWindowDrawList();
    ui.draw_text(list, at, ui.colours().text, lane.name);
    auto totals = "freed " + format_bytes(lane.freed) + " in " + format_count(lane.runs);
    if (lane.skipped != 0) totals += ", skipped " + format_count(lane.skipped);
    ui.draw_text(list, {at.x, at.y + size}, lane.threw != 0 ? ui.colours().bad : ui.colours().soft, totals);
    auto const bar_top = at.y + size * 0.35F;
    auto const bar_bottom = bar_top + size * 1.4F;
    list->AddLine({area.left, bar_bottom + 2}, {area.right, bar_bottom + 2}, ui.colours().line);
    list->PushClipRect({area.left, at.y}, {area.right, at.y + height}, true);
    for (auto const& cell : cells) draw_cell(ui, list, area, lane, cell, bar_top, bar_bottom);
    list->PopClipRect();
    for (auto const& cell : cells) {
      auto const& slice = lane.slices[cell.first];
      if (cell.count != 1 || slice.cause == HookCause::unknown || arrows >= kMostArrows) continue;
      if (!state.visible.contains(slice.cause_ticks)) continue;
      ++arrows;
      draw_arrow(list, {area.x_of(slice.cause_ticks), failures_y_}, {area.left + cell.begin, bar_top},
                 faded(slice.cause == HookCause::failure ? ui.colours().bad : ui.colours().warning, 0.55F));
    }
    ImGui::PushID(lane.name.c_str());
    ImGui::InvisibleButton("lane", {std::max(area.right - at.x, 1.0F), height});
    ImGui::PopID();
    answer_mouse(state, ui, area, lane, cells);
  }

  static void draw_cell(Ui& ui, ImDrawList* list, PlotArea const& area, HookLane const& lane, LaneCell const& cell, float top,
                        float bottom) {
    auto const left = area.left + cell.begin;
    auto const right = std::max(area.left + cell.end, left + 2);
    auto const& colours = ui.colours();
    if (!cell.has_run) {  // a hollow frame: it was asked, and did not run
      list->AddRect({left, top}, {std::max(right, left + 5), bottom}, colours.warning);
      return;
    }
    list->AddRectFilled({left, top}, {right, bottom}, cell.is_bad ? colours.bad : ui.tag_colour(lane.name));
    if (cell.is_bad) list->AddLine({left, top}, {right, bottom}, colours.window, 1.5F);  // not by colour alone
    if (cell.has_skip) list->AddRect({left, top}, {right, bottom}, colours.warning);
    auto const label = cell.count == 1 ? format_bytes(cell.freed) : format_bytes(cell.freed) + " in " + format_count(cell.count);
    if (right - left > Ui::width_of(label) + 6) {
      ui.draw_text(list, {left + 3, (top + bottom - ImGui::GetFontSize()) / 2}, colours.window, label);
    }
  }

  static void draw_arrow(ImDrawList* list, ImVec2 from, ImVec2 to, ImU32 colour) {
    list->AddBezierCubic(from, {from.x, to.y}, {to.x, from.y}, to, colour, 1.2F);
    list->AddTriangleFilled({to.x - 3, to.y - 5}, {to.x + 3, to.y - 5}, to, colour);
  }

  static void answer_mouse(ViewState& state, Ui& ui, PlotArea const& area, HookLane const& lane,
                           std::vector<LaneCell> const& cells) {
    if (!ImGui::IsItemHovered()) return;
    auto const x = ImGui::GetMousePos().x - area.left;
    auto const found = std::ranges::find_if(
        cells, [x](LaneCell const& cell) { return x >= cell.begin - 2 && x <= std::max(cell.end, cell.begin + 5); });
    if (found == cells.end()) return;
    auto const& slice = lane.slices[found->first];
    ui.tooltip([&] {
      ui.text(lane.name);
      if (found->count > 1) {
        ui.text(format_count(found->count) + " turns freed " + format_bytes_exact(found->freed));
        ui.soft("closer (W) tells them apart");
        return;
      }
      ui.text_coloured(result_in_words(slice.turn) + (slice.turn.overran ? ", longer than its limit" : ""),
                       slice.is_bad() ? ui.colours().bad : ui.colours().text);
      if (slice.has_run()) {
        ui.text("freed " + format_bytes_exact(slice.turn.freed));
        ui.soft("said " + format_bytes(slice.turn.reported) + ", expected " + format_bytes(slice.turn.estimate));
      }
      if (slice.turn.duration_ns != 0)
        ui.soft("took " + format_duration(slice.turn.duration_ns) + " on thread " + std::to_string(slice.thread));
      if (slice.failure != 0) ui.soft("for failure " + std::to_string(slice.failure) + ": a click shows it");
      if (slice.cause == HookCause::pressure) ui.soft("after pressure rose; the failure itself is not recorded any more");
    });
    if (!ImGui::IsItemClicked()) return;
    if (found->count == 1 && slice.failure != 0) {
      state.failure = slice.failure;
      state.ask_for_panel("failure");
    }
    state.travel_to(slice.begin);
  }

  Paced<std::uint32_t, std::uint64_t, HookLanes> lanes_;
  Cached<CellKey, std::vector<std::vector<LaneCell>>> cells_;
  float failures_y_ = 0;
};

}  // namespace

std::unique_ptr<Panel> make_hook_panel() { return std::make_unique<HookPanel>(); }

}  // namespace headroom::viewer
