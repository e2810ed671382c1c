#include "timeline_plot.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <headroom/byte_size.hpp>

#include "figures.hpp"

namespace headroom::viewer {
namespace {

/// From bytes to pixels.
struct Scale {
  PlotArea area{};
  std::uint64_t top = 1;
  [[nodiscard]] float y(std::uint64_t bytes) const noexcept {
    return area.bottom - area.height() * static_cast<float>(static_cast<double>(std::min(bytes, top)) / static_cast<double>(top));
  }
};

/// The budget belongs into the picture unless it would press everything else to the ground.
std::uint64_t top_of(TimelineData const& data) {
  auto top = std::max<std::uint64_t>(data.highest, 1);
  for (auto const& limit : data.limits) {
    if (limit.bytes && *limit.bytes < data.highest * 2) top = std::max(top, *limit.bytes);
  }
  return std::max<std::uint64_t>(top + top / 12, 16);
}

void draw_grid(ViewState const& state, Ui& ui, Scale const& scale, bool with_axis) {
  auto const& area = scale.area;
  auto const& colours = ui.colours();
  auto const size = ImGui::GetFontSize();
  auto* const list = ImGui::GetWindowDrawList();
  auto const lines = std::clamp<std::size_t>(static_cast<std::size_t>(area.height() / (size * 2.2F)), 1, 8);
  auto const step = byte_step(scale.top, lines);
  for (std::uint64_t bytes = 0; bytes <= scale.top; bytes += step) {
    auto const y = std::round(scale.y(bytes));
    list->AddLine({area.left, y}, {area.right, y}, bytes == 0 ? colours.line : colours.faint);
    auto const text = format_bytes(bytes);
    if (with_axis) ui.draw_text(list, {area.left - Ui::width_of(text) - size * 0.5F, y - size * 0.55F}, colours.soft, text);
    if (bytes > ~std::uint64_t{0} - step) break;
  }
  // Time, from its origin: lines stay where they are while the picture moves.
  auto const& model = *state.model;
  auto const length_ns = std::max<std::uint64_t>(model.duration_ns(area.visible.length()), 1);
  auto const per_ns = static_cast<double>(area.visible.length()) / static_cast<double>(length_ns);
  auto const most = std::clamp<std::size_t>(static_cast<std::size_t>(area.width() / (size * 8)), 1, 12);
  auto const step_ns = time_step(length_ns, most);
  auto const zero = static_cast<double>(model.origin_ticks());
  auto const first = std::ceil((static_cast<double>(area.visible.begin) - zero) / per_ns / static_cast<double>(step_ns));
  for (std::size_t i = 0; i <= most + 1; ++i) {
    auto const offset_ns = (first + static_cast<double>(i)) * static_cast<double>(step_ns);
    auto const ticks = zero + offset_ns * per_ns;
    if (ticks < 0 || ticks > static_cast<double>(area.visible.end)) continue;
    auto const at = static_cast<std::uint64_t>(std::llround(ticks));
    auto const x = std::round(area.x_of(at));
    list->AddLine({x, area.top}, {x, area.bottom}, colours.faint);
    // The step's own figure: that of the nearest tick may fall short of it by a nanosecond.
    auto const text = format_offset(offset_ns < 0, static_cast<std::uint64_t>(std::llround(std::abs(offset_ns))), step_ns);
    auto const width = Ui::width_of(text);
    auto const text_x = std::clamp(x - width / 2, area.left, std::max(area.left, area.right - width));
    ui.draw_text(list, {text_x, area.bottom + size * 0.2F}, colours.soft, text);
  }
}

/// Rectangles from `low` up to `high` for columns; runs of equal columns at once.
template <typename Low, typename High>
void fill(ImDrawList* list, Scale const& scale, TimelineData const& data, ImU32 colour, Low const& low, High const& high) {
  auto const& area = scale.area;
  auto const begin = area.x_of(data.range.begin);
  auto const wide = (area.x_of(data.range.end) - begin) / static_cast<float>(data.total.size());
  for (std::size_t i = 0; i < data.total.size();) {
    auto const from = low(i);
    auto const to = high(i);
    auto next = i + 1;
    while (next < data.total.size() && low(next) == from && high(next) == to) ++next;
    if (to > from) {
      list->AddRectFilled({begin + static_cast<float>(i) * wide, scale.y(to)},
                          {begin + static_cast<float>(next) * wide, scale.y(from)}, colour);
    }
    i = next;
  }
}

void draw_stack(Ui& ui, Scale const& scale, TimelineData const& data) {
  auto* const list = ImGui::GetWindowDrawList();
  std::vector<std::uint64_t> ground(data.total.size());
  auto const layer = [&](std::vector<std::uint64_t> const& bytes, ImU32 colour) {
    fill(
        list, scale, data, colour, [&](std::size_t i) { return ground[i]; }, [&](std::size_t i) { return ground[i] + bytes[i]; });
    for (std::size_t i = 0; i < ground.size(); ++i) ground[i] += bytes[i];
  };
  for (auto const& one : data.layers) layer(one.bytes, faded(ui.tag_colour(one.tag), 0.85F));
  if (data.has_rest) layer(data.rest, ui.colours().other);
  // The edge: from the lowest to the highest of a column, so that a dip in it is seen.
  auto const& area = scale.area;
  auto const begin = area.x_of(data.range.begin);
  auto const wide = (area.x_of(data.range.end) - begin) / static_cast<float>(data.total.size());
  for (std::size_t i = 0; i < data.total.size(); ++i) {
    auto const& column = data.total[i];
    if (!column.has_value) continue;
    auto const x = begin + static_cast<float>(i) * wide;
    if (column.low != column.high) {
      list->AddRectFilled({x, scale.y(column.high)}, {x + std::max(wide, 1.0F), scale.y(column.low)},
                          faded(ui.colours().window, 0.22F));
    }
  }
}

/// Where nothing is known, hatched: records that are lost, and a past that was forgotten or never recorded.
void draw_unknown(Ui& ui, Scale const& scale, TimelineData const& data) {
  auto const& area = scale.area;
  auto const size = ImGui::GetFontSize();
  auto* const list = ImGui::GetWindowDrawList();
  auto const begin = area.x_of(data.range.begin);
  auto const wide = (area.x_of(data.range.end) - begin) / static_cast<float>(data.total.size());
  enum class Why : std::uint8_t { known, lost, not_kept };
  auto const why = [&](std::size_t i) {
    if (data.total[i].known == follow::Known::gap) return Why::lost;
    return data.total[i].has_value ? Why::known : Why::not_kept;
  };
  for (std::size_t i = 0; i < data.total.size();) {
    auto const reason = why(i);
    auto next = i + 1;
    while (next < data.total.size() && why(next) == reason) ++next;
    if (reason != Why::known) {
      auto const colour = reason == Why::lost ? ui.colours().warning : ui.colours().soft;
      ImVec2 const from{begin + static_cast<float>(i) * wide, area.top};
      ImVec2 const to{std::max(begin + static_cast<float>(next) * wide, from.x + 2), area.bottom};
      list->PushClipRect(from, to, true);
      list->AddRectFilled(from, to, faded(colour, 0.06F));
      for (auto x = from.x - area.height(); x < to.x; x += size * 0.7F) {
        list->AddLine({x, area.bottom}, {x + area.height(), area.top}, faded(colour, 0.12F));
      }
      std::string_view const text = reason == Why::lost ? "records lost" : "not kept";
      if (to.x - from.x > Ui::width_of(text) + size * 2) {
        ui.draw_text(list, {(from.x + to.x - Ui::width_of(text)) / 2, (from.y + to.y) / 2}, colour, text);
      }
      list->PopClipRect();
    }
    i = next;
  }
}

void draw_bands(Ui& ui, Scale const& scale, TimelineData const& data) {
  auto* const list = ImGui::GetWindowDrawList();
  for (auto const& band : data.bands) {
    auto const level = std::min<std::size_t>(static_cast<std::size_t>(band.level), 4);
    auto const x = scale.area.x_of(band.range.begin);
    auto const end = std::max(scale.area.x_of(band.range.end), x + 1);
    list->AddRectFilled({x, scale.area.top}, {end, scale.area.bottom}, ui.colours().pressure_ground.at(level));
    list->AddRectFilled({x, scale.area.top}, {end, scale.area.top + 2}, ui.colours().pressure.at(level));
  }
}

void draw_limits(Ui& ui, Scale const& scale, TimelineData const& data) {
  auto const& area = scale.area;
  auto* const list = ImGui::GetWindowDrawList();
  for (std::size_t i = 0; i < data.limits.size(); ++i) {
    auto const& limit = data.limits[i];
    if (!limit.bytes) continue;
    auto const x = std::max(area.x_of(limit.begin), area.left);
    auto const end = i + 1 < data.limits.size() ? area.x_of(data.limits[i + 1].begin) : area.right;
    auto const is_above = *limit.bytes > scale.top;
    auto const y = is_above ? area.top + 1 : std::round(scale.y(*limit.bytes));
    if (!is_above) list->AddRectFilled({x, y - 1}, {end, y + 1}, ui.colours().limit);
    auto const text = "budget " + format_bytes(*limit.bytes) + (is_above ? " \u2191" : "");
    auto const width = Ui::width_of(text);
    auto const size = ImGui::GetFontSize();
    if (end - x < width + size) continue;
    auto const below = y - area.top < size * 1.3F;
    // Away from the peak, which often touches this line.
    auto const peak_x = data.peak_ticks ? area.x_of(*data.peak_ticks) : end;
    auto const left = peak_x - x > end - peak_x ? x + size * 0.4F : end - width - size * 0.4F;
    ui.draw_text(list, {left, below ? y + 2 : y - size * 1.2F}, ui.colours().limit, text);
  }
}

void draw_marks(Ui& ui, Scale const& scale, TimelineData const& data) {
  auto const& area = scale.area;
  auto const& colours = ui.colours();
  auto const size = ImGui::GetFontSize();
  auto* const list = ImGui::GetWindowDrawList();
  auto last = -1e9F;
  for (auto const& flag : data.failures) {
    auto const x = area.x_of(flag.first_ticks);
    if (x - last < size * 0.35F) continue;  // a flag stands for all that would hide behind it
    last = x;
    list->AddLine({x, area.top}, {x, area.bottom}, faded(colours.bad, 0.55F));
    auto const edge = size * 0.5F;
    list->AddTriangleFilled({x, area.top}, {x + edge, area.top + edge * 0.5F}, {x, area.top + edge}, colours.bad);
  }
  if (data.peak_ticks) {
    auto const x = area.x_of(*data.peak_ticks);
    auto const y = scale.y(data.peak_bytes);
    auto const edge = size * 0.35F;
    list->AddTriangleFilled({x, y}, {x - edge, y - edge * 1.2F}, {x + edge, y - edge * 1.2F}, colours.peak);
    auto const text = "peak " + format_bytes(data.peak_bytes);
    auto const width = Ui::width_of(text);
    auto const is_left = x + edge * 1.5F + width > area.right;
    ui.draw_text(list, {is_left ? x - edge * 1.5F - width : x + edge * 1.5F, std::max(y - size * 1.1F, area.top)}, colours.peak,
                 text);
  }
}

void draw_times(ViewState const& state, Ui& ui, PlotArea const& area) {
  auto const& colours = ui.colours();
  auto const size = ImGui::GetFontSize();
  auto* const list = ImGui::GetWindowDrawList();
  if (state.selected) {
    auto const x = std::clamp(area.x_of(state.selected->begin), area.left, area.right);
    auto const end = std::clamp(area.x_of(state.selected->end), area.left, area.right);
    list->AddRectFilled({x, area.top}, {end, area.bottom}, colours.selection);
    for (auto const edge : {x, end}) list->AddLine({edge, area.top}, {edge, area.bottom}, colours.accent);
    ui.draw_text(list, {x + 4, area.bottom - size * 1.2F}, colours.text,
                 format_between(*state.model, state.selected->begin, state.selected->end) + " selected");
  }
  if (state.cursor && state.visible.contains(*state.cursor)) {
    auto const x = std::round(area.x_of(*state.cursor));
    list->AddRectFilled({x - 1, area.top}, {x + 1, area.bottom}, colours.cursor);
    auto const text = format_instant(*state.model, *state.cursor, state.model->duration_ns(area.ticks_per_pixel()));
    auto const width = Ui::width_of(text) + size * 0.6F;
    auto const left = std::clamp(x - width / 2, area.left, std::max(area.left, area.right - width));
    list->AddRectFilled({left, area.bottom + 1}, {left + width, area.bottom + size * 1.35F}, colours.cursor, 3);
    ui.draw_text(list, {left + size * 0.3F, area.bottom + size * 0.15F}, colours.window, text);
  }
}

}  // namespace

void draw_plot(ViewState const& state, Ui& ui, PlotArea const& area, TimelineData const& data, bool with_axis) {
  auto* const list = ImGui::GetWindowDrawList();
  list->AddRectFilled({area.left, area.top}, {area.right, area.bottom}, ui.colours().card);
  auto const scale = Scale{.area = area, .top = top_of(data)};
  draw_grid(state, ui, scale, with_axis);
  list->PushClipRect({area.left, area.top}, {area.right, area.bottom + 1}, true);
  draw_bands(ui, scale, data);
  if (!data.total.empty()) {
    draw_stack(ui, scale, data);
    draw_unknown(ui, scale, data);
    draw_limits(ui, scale, data);
    draw_marks(ui, scale, data);
  }
  list->PopClipRect();
  draw_times(state, ui, area);
  list->AddRect({area.left, area.top}, {area.right, area.bottom + 1}, ui.colours().line);
}

void draw_overview(Ui& ui, PlotArea const& area, TickRange range, std::span<follow::SeriesColumn const> total, TickRange brush) {
  auto const& colours = ui.colours();
  auto* const list = ImGui::GetWindowDrawList();
  list->AddRectFilled({area.left, area.top}, {area.right, area.bottom}, colours.card);
  TimelineData data;
  data.range = range;
  data.total.assign(total.begin(), total.end());
  std::uint64_t top = 1;
  for (auto const& column : total) top = std::max(top, column.high);
  auto const scale = Scale{.area = area, .top = top};
  fill(
      list, scale, data, faded(colours.accent, 0.55F), [](std::size_t) { return std::uint64_t{0}; },
      [&](std::size_t i) { return total[i].high; });
  auto const x = std::clamp(area.x_of(brush.begin), area.left, area.right);
  auto const end = std::clamp(area.x_of(brush.end), x + 3, std::max(area.right, x + 3));
  for (auto const& [from, to] : {std::pair{area.left, x}, std::pair{end, area.right}}) {
    if (to > from) list->AddRectFilled({from, area.top}, {to, area.bottom}, faded(colours.window, 0.65F));
  }
  list->AddRect({x, area.top}, {end, area.bottom}, colours.accent, 2);
}

}  // namespace headroom::viewer
