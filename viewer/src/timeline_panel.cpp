// Panel 2: use over time, stacked by tag; and the cursor by which one travels in it. What it shows: timeline_data.hpp.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <headroom/byte_size.hpp>

#include "figures.hpp"
#include "paced.hpp"
#include "panels.hpp"
#include "timeline_data.hpp"
#include "timeline_plot.hpp"

namespace headroom::viewer {
namespace {

constexpr PanelInfo kInfo{.name = "timeline",
                          .title = "Timeline",
                          .what = "Use over time, stacked by tag, with the budget, pressure, the peak and failures.",
                          .place = Place::timeline};
constexpr std::size_t kMostTags = 10;
constexpr std::size_t kMostColumns = 1'600;

class TimelinePanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override { return kInfo; }
  void forget() override {
    data_.forget();
    map_.forget();
    drag_ = Drag::none;
  }

  void draw(ViewState& state, Ui& ui) override {
    if (state.model->last_ticks() == 0) {
      return ui.empty("Nothing has happened yet", "Allocations appear here as soon as the program makes its first one.");
    }
    auto const size = ImGui::GetFontSize();
    auto const room = ImGui::GetContentRegionAvail();
    auto const map_height = room.y > size * 11 ? size * 1.6F : 0;
    auto const legend_height = room.y > size * 7 ? size * 1.4F : 0;
    // What comes after the display's clock is not shown, however much of it was read.
    auto const shown = TickRange{.begin = state.visible.begin, .end = std::min(state.visible.end, state.clock + 1)};
    auto const axis = room.x > size * 24 ? size * 4.8F : 0;
    auto const origin = ImGui::GetCursorScreenPos();
    auto const plot = PlotArea{.left = origin.x + axis,
                               .top = origin.y + legend_height,
                               .right = origin.x + room.x,
                               .bottom = origin.y + room.y - map_height - size * 1.5F,
                               .visible = state.visible};
    if (plot.width() < 8 || plot.height() < 8) return;
    auto const share = static_cast<double>(shown.length()) / static_cast<double>(state.visible.length());
    auto const columns =
        std::clamp<std::size_t>(static_cast<std::size_t>(static_cast<double>(plot.width()) * share), 1, kMostColumns);
    auto const& data = data_.get(choice_of(state, state.visible, columns), {.revision = state.revision, .range = shown},
                                 [&] { return timeline_data(*state.model, state.ledger, shown, columns, kMostTags); });
    if (data_.is_behind()) state.touch();
    if (legend_height > 0) legend(state, ui, data);
    draw_plot(state, ui, plot, data, axis > 0);
    interact(state, ui, plot, data);
    if (map_height > 0) overview(state, ui, plot, map_height);
    ImGui::SetCursorScreenPos({origin.x, origin.y + room.y});
    ImGui::Dummy({0, 0});
  }

private:
  /// What the person asked for: a range, or of a display that follows the newest how much of it, or everything. Which ticks that is
  /// changes with each read, and is no more urgent than what was read.
  struct Choice {
    std::uint32_t ledger = 0;
    std::size_t columns = 0;
    bool is_whole = false;
    TickRange range{};         // fixed
    std::uint64_t length = 0;  // following: and how far beyond the clock it ends
    std::uint64_t beyond = 0;
    friend bool operator==(Choice const&, Choice const&) = default;
  };
  struct Version {
    std::uint64_t revision = 0;
    TickRange range{};
    friend bool operator==(Version const&, Version const&) = default;
  };

  static Choice choice_of(ViewState const& state, TickRange range, std::size_t columns) {
    Choice choice{.ledger = state.ledger, .columns = columns};
    auto const whole = state.whole();
    choice.is_whole = range.begin <= whole.begin && range.end == whole.end;
    if (choice.is_whole) return choice;
    if (state.is_live && range.end > state.clock) {
      choice.length = range.length();
      choice.beyond = range.end - state.clock;
    } else {
      choice.range = range;
    }
    return choice;
  }

  struct Overview {
    TickRange range{};
    std::vector<follow::SeriesColumn> total{};
  };
  enum class Drag : std::uint8_t { none, cursor, select, zoom, pan };

  /// The tags of the stack, with what each holds at the moment shown.
  void legend(ViewState& state, Ui& ui, TimelineData const& data) {
    auto const then = state.model->state_at(state.ledger, state.instant());
    auto const size = ImGui::GetFontSize();
    auto is_first = true;
    std::uint64_t told = 0;
    auto const entry = [&](std::string_view name, ImU32 colour, std::uint64_t bytes) {
      auto const text = format_bytes(bytes);
      auto const width = size * 2.4F + Ui::width_of(name) + Ui::width_of(text);
      if (!is_first) {
        Ui::same_line(size);
        if (ImGui::GetContentRegionAvail().x < width) return false;
      }
      is_first = false;
      ui.swatch(colour);
      Ui::same_line(size * 0.3F);
      ui.soft(name);
      Ui::same_line(size * 0.4F);
      ui.text(text);
      ui.help(format_count(bytes) + " bytes at the moment shown");
      return true;
    };
    for (auto const& layer : data.layers) {
      auto const found = std::ranges::find(then.tags, layer.tag, &follow::TagFigures::name);
      auto const bytes = found != then.tags.end() ? found->bytes : 0;
      told += bytes;
      if (!entry(layer.tag.empty() ? "untagged" : layer.tag, ui.tag_colour(layer.tag), bytes)) return;
    }
    if (data.has_rest) entry("other", ui.colours().other, then.allocated - std::min(told, then.allocated));
  }

  void interact(ViewState& state, Ui& ui, PlotArea const& plot, TimelineData const& data) {
    ImGui::SetCursorScreenPos({plot.left, plot.top});
    ImGui::InvisibleButton(
        "##plot", {plot.width(), plot.height()},
        ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight | ImGuiButtonFlags_MouseButtonMiddle);
    auto const is_hovered = ImGui::IsItemHovered();
    auto const& io = ImGui::GetIO();
    auto const at = plot.ticks_of(io.MousePos.x);
    if (is_hovered && io.MouseWheel != 0) {
      auto const step = io.KeyCtrl ? 1.05 : io.KeyShift ? 2.0 : 1.2;
      state.zoom(std::pow(step, -static_cast<double>(io.MouseWheel)), at);
    }
    if (ImGui::IsItemActivated()) begin_drag(io, at);
    if (drag_ != Drag::none && !ImGui::IsItemActive()) end_drag(state, at);
    go_on(state, plot, io, at);
    if (drag_ == Drag::select || drag_ == Drag::zoom) {
      auto* const list = ImGui::GetWindowDrawList();
      auto const x = std::clamp(plot.x_of(from_), plot.left, plot.right);
      auto const now = std::clamp(io.MousePos.x, plot.left, plot.right);
      list->AddRectFilled({std::min(x, now), plot.top}, {std::max(x, now), plot.bottom}, ui.colours().selection);
      ui.draw_text(list, {std::min(x, now) + 4, plot.top + 2}, ui.colours().text, format_between(*state.model, from_, at));
    }
    if (is_hovered && drag_ == Drag::none) hover(state, ui, plot, data, at);
  }

  void begin_drag(ImGuiIO const& io, std::uint64_t at) {
    from_ = at;
    if (ImGui::IsMouseDown(1)) {
      drag_ = Drag::pan;
    } else if (ImGui::IsMouseDown(2)) {
      drag_ = Drag::zoom;
    } else {
      drag_ = io.KeyCtrl ? Drag::select : Drag::cursor;
    }
  }

  void go_on(ViewState& state, PlotArea const& plot, ImGuiIO const& io, std::uint64_t at) const {
    if (drag_ == Drag::cursor) {
      state.travel_to(at);
    } else if (drag_ == Drag::pan && io.MouseDelta.x != 0) {
      state.pan(-static_cast<double>(io.MouseDelta.x) / static_cast<double>(plot.width()));
    } else if (drag_ == Drag::select || drag_ == Drag::zoom) {
      state.touch();
    }
  }

  void end_drag(ViewState& state, std::uint64_t at) {
    auto const range = TickRange{.begin = std::min(from_, at), .end = std::max(from_, at)};
    if (drag_ == Drag::select) state.select(range);
    if (drag_ == Drag::zoom && !range.empty()) state.fit(range);
    drag_ = Drag::none;
  }

  static void hover(ViewState const& state, Ui& ui, PlotArea const& plot, TimelineData const& data, std::uint64_t at) {
    auto const x = plot.x_of(at);
    ImGui::GetWindowDrawList()->AddLine({x, plot.top}, {x, plot.bottom}, faded(ui.colours().cursor, 0.35F));
    if (data.total.empty() || !data.range.contains(at)) return;
    ui.tooltip([&] {
      auto const column = data.column_of(at);
      auto const& total = data.total[column];
      ui.strong(format_instant(*state.model, at, state.model->duration_ns(plot.ticks_per_pixel())));
      if (auto const clock = format_wall_clock(*state.model, at); !clock.empty()) ui.soft(clock);
      if (!total.has_value) return ui.soft(std::string{"nothing is known: "} + std::string{follow::to_string(total.known)});
      auto const then = state.model->state_at(state.ledger, at);
      ui.labelled("allocated", format_bytes_exact(then.allocated));
      if (total.low != total.high) {
        ui.labelled("in this pixel", format_bytes(total.low) + " \u2026 " + format_bytes(total.high));
      }
      for (std::size_t i = 0; i < std::min<std::size_t>(then.tags.size(), 6); ++i) {
        if (then.tags[i].bytes == 0) break;
        ui.swatch(ui.tag_colour(then.tags[i].name));
        Ui::same_line();
        ui.labelled(then.tags[i].name.empty() ? "untagged" : then.tags[i].name, format_bytes(then.tags[i].bytes));
      }
      if (then.known != follow::Known::exact) ui.warning("known: " + std::string{follow::to_string(then.known)});
      for (auto const& flag : data.failures) {
        if (flag.column == column)
          ui.bad(format_count(flag.count) + (flag.count == 1 ? " request refused" : " requests refused"));
      }
      ui.soft("click: look at this moment; Ctrl+drag: select");
    });
  }

  /// All that is kept, and a brush for what is visible.
  void overview(ViewState& state, Ui& ui, PlotArea const& plot, float height) {
    auto const whole = state.whole();
    auto const bottom = plot.bottom + ImGui::GetFontSize() * 1.5F + height;
    auto const area =
        PlotArea{.left = plot.left, .top = bottom - height + 3, .right = plot.right, .bottom = bottom, .visible = whole};
    auto const columns = std::clamp<std::size_t>(static_cast<std::size_t>(area.width()), 1, kMostColumns);
    auto const& total = map_.get(choice_of(state, whole, columns), {.revision = state.revision, .range = whole}, [&] {
      return Overview{.range = whole, .total = state.model->series(state.ledger, std::nullopt, whole.begin, whole.end, columns)};
    });
    if (map_.is_behind()) state.touch();
    draw_overview(ui, area, total.range, total.total, state.visible);
    ImGui::SetCursorScreenPos({area.left, area.top});
    ImGui::InvisibleButton("##overview", {area.width(), area.height()});
    ui.help("All that is kept; the brush is what the plot shows. Drag it, or click elsewhere to go there.");
    if (!ImGui::IsItemActive()) return;
    auto const at = area.ticks_of(ImGui::GetIO().MousePos.x);
    if (ImGui::IsItemActivated()) {
      auto const half = state.visible.length() / 2;
      grip_ = state.visible.contains(at) ? at - state.visible.begin : half;
    }
    auto const begin = at - std::min(grip_, at);
    if (begin != state.visible.begin) state.fit({.begin = begin, .end = begin + state.visible.length()});
  }

  Paced<Choice, Version, TimelineData> data_;
  Paced<Choice, Version, Overview> map_;
  Drag drag_ = Drag::none;
  std::uint64_t from_ = 0;  // ticks where a drag began
  std::uint64_t grip_ = 0;  // ticks from the brush's begin to where it is held
};

}  // namespace

std::unique_ptr<Panel> make_timeline_panel() { return std::make_unique<TimelinePanel>(); }

}  // namespace headroom::viewer
