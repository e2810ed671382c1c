// The allocation map: blocks to scale by address, and the gaps between them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <headroom/byte_size.hpp>

#include "address_map.hpp"
#include "cached.hpp"
#include "event_words.hpp"
#include "figures.hpp"
#include "paced.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

std::string percent(double share) {
  std::array<char, 16> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f %%", share * 100);  // NOLINT
  return text.data();
}

class MapPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "map",
                                     .title = "Allocation map",
                                     .what = "Where live blocks lie, to scale by address, and the gaps between them",
                                     .place = Place::right};
    return kInfo;
  }

  void forget() override {
    map_.forget();
    layout_.forget();
  }

  void draw(ViewState& state, Ui& ui) override {
    auto const ticks = state.known_instant();
    Version const version{.revision = state.revision, .ticks = ticks};
    auto const& map = map_.get({.ledger = state.ledger, .cursor = state.cursor}, version,
                               [&] { return address_map(*state.model, state.ledger, ticks); });
    if (map_.is_behind()) state.touch();
    if (map.blocks.empty()) {
      if (map.known == follow::Known::not_recorded) {
        return ui.empty("Where blocks lie is not recorded of a device account", "Choose one of its managers in the header");
      }
      return ui.empty("No block was live at this moment", "Click on the timeline to see another one");
    }
    draw_figures(ui, map);
    if (ui.toggle("by tag", !by_age_)) by_age_ = false;
    Ui::same_line();
    if (ui.toggle("by age", by_age_)) by_age_ = true;
    ui.help("Bright is new, dark is old");
    auto const room = ImGui::GetContentRegionAvail();
    auto const label = Ui::width_of("0x000000000000  ");
    auto const width = std::floor(room.x - label - ImGui::GetStyle().ScrollbarSize);
    auto const pitch = std::floor(ImGui::GetFontSize() * 1.25F);
    if (width < 32) return;
    auto const rows = static_cast<std::size_t>(std::clamp(room.y / pitch - 1, 1.0F, 512.0F));
    auto const& layout =
        layout_.get({.map = map_.made(), .rows = rows, .width = width}, [&] { return layout_of(map, rows, width); });
    Ui::same_line();
    ui.soft("a row is " + format_bytes(layout.bytes_per_row));
    draw_map(state, ui, map, layout, label, width, pitch);
  }

private:
  struct Choice {
    std::uint32_t ledger = 0;
    std::optional<std::uint64_t> cursor{};
    friend bool operator==(Choice const&, Choice const&) = default;
  };
  struct Version {
    std::uint64_t revision = 0, ticks = 0;
    friend bool operator==(Version const&, Version const&) = default;
  };
  struct LayoutKey {
    std::uint64_t map = 0;  // how often it was worked out
    std::size_t rows = 0;
    float width = 0;
    friend bool operator==(LayoutKey const&, LayoutKey const&) = default;
  };

  static void draw_figures(Ui& ui, AddressMap const& map) {
    auto const& holes = map.fragmentation;
    ui.labelled("live", format_bytes(map.bytes) + " in " + format_count(map.blocks.size()) +
                            (map.blocks.size() == 1 ? " block" : " blocks"));
    Ui::same_line(ImGui::GetFontSize() * 1.5F);
    ui.labelled("gaps", format_bytes(holes.free_bytes) + " in " + format_count(holes.holes));
    ui.help(map.are_regions_known
                ? "Of the regions that the source knows, what is in no block"
                : "Between live blocks. The source does not tell the device's regions, so gaps at their ends are not seen");
    Ui::same_line(ImGui::GetFontSize() * 1.5F);
    ui.labelled("largest gap", format_bytes(holes.largest_hole));
    ui.help("The largest request that would still fit between them, before rounding");
    Ui::same_line(ImGui::GetFontSize() * 1.5F);
    ui.labelled("fragmentation", holes.fragmentation ? percent(*holes.fragmentation) : "none: no gap");
    ui.help(
        "1 \u2212 largest gap \u00f7 all gaps: 0 % when what is free lies in one piece, near 100 % when it lies in splinters");
    if (!map.are_regions_known && map.regions.size() > 1) {
      ui.soft(format_count(map.regions.size()) + " stretches, far apart from each other");
    }
    if (holes.bytes_outside != 0) ui.warning(format_bytes(holes.bytes_outside) + " lie outside of the known regions");
  }

  [[nodiscard]] ImU32 colour_of(Ui& ui, AddressMap const& map, follow::LiveBlock const& block) const {
    if (!by_age_) return ui.tag_colour(block.tag);
    auto const length = static_cast<double>(std::max<std::uint64_t>(map.newest_ticks - map.oldest_ticks, 1));
    auto const age = block.ticks ? static_cast<double>(map.newest_ticks - *block.ticks) / length : 1.0;
    return faded(ui.colours().accent, static_cast<float>(1.0 - 0.75 * age));
  }

  void draw_map(ViewState& state, Ui& ui, AddressMap const& map, MapLayout const& layout, float label, float width, float pitch) {
    ImGui::BeginChild("map");
    auto* const list = ImGui::GetWindowDrawList();
    auto const origin = ImGui::GetCursorScreenPos();
    auto const bar = pitch * 0.8F;
    auto const y_of = [&](std::size_t row) { return origin.y + static_cast<float>(row) * pitch; };
    auto const top = ImGui::GetScrollY();
    auto const first = static_cast<std::size_t>(std::max(top / pitch, 0.0F));
    auto const last = std::min(layout.rows, first + static_cast<std::size_t>(ImGui::GetWindowHeight() / pitch) + 2);
    for (auto row = first; row < last; ++row) {
      list->AddRectFilled({origin.x + label, y_of(row)}, {origin.x + label + layout.row_ends[row], y_of(row) + bar},
                          ui.colours().faint);
      auto const is_begin = std::ranges::binary_search(layout.begins, row, {}, &MapBegin::row);
      auto const address = address_at(map, layout, row, 0, width);
      ui.draw_text(list, {origin.x, y_of(row) + (bar - ImGui::GetFontSize()) / 2},
                   is_begin ? ui.colours().text : ui.colours().soft, address_in_words(address));
    }
    auto cell = std::ranges::lower_bound(layout.cells, first, {}, &MapCell::row);
    for (; cell != layout.cells.end() && cell->row < last; ++cell)
      draw_cell(ui, list, map, *cell, origin.x + label, y_of(cell->row), bar);
    ImGui::Dummy({label + width, static_cast<float>(layout.rows) * pitch});
    if (ImGui::IsItemHovered()) {
      auto const mouse = ImGui::GetMousePos();
      auto const row = static_cast<std::size_t>(std::max((mouse.y - origin.y) / pitch, 0.0F));
      explain(state, ui, map, address_at(map, layout, row, mouse.x - origin.x - label, width));
    }
    ImGui::EndChild();
  }

  void draw_cell(Ui& ui, ImDrawList* list, AddressMap const& map, MapCell const& cell, float left, float y, float bar) const {
    auto const& block = map.blocks[cell.first];
    auto const end = left + cell.end;
    list->AddRectFilled({left + cell.begin, y}, {end, y + bar}, colour_of(ui, map, block));
    auto const width = cell.end - cell.begin;
    // Neighbours of one tag stay apart by a hair, where there is room for one.
    if (width > 3) list->AddLine({end - 0.5F, y}, {end - 0.5F, y + bar}, ui.colours().window);
    auto const name = block.tag.empty() ? kUntagged : std::string_view{block.tag};
    // Measuring a text costs more than drawing a block: most are too narrow for any.
    auto const may_fit = !by_age_ && width > 2 * ImGui::GetFontSize();
    if (may_fit && width > Ui::width_of(name) + 8 && bar > ImGui::GetFontSize() * 0.9F) {
      ui.draw_text(list, {left + cell.begin + 4, y + (bar - ImGui::GetFontSize()) / 2}, ui.colours().window, name);
    }
  }

  /// The block at an address, or the gap there.
  static void explain(ViewState const& state, Ui& ui, AddressMap const& map, std::uint64_t address) {
    if (address == 0) return;
    auto const after = std::ranges::upper_bound(map.blocks, address, {}, &follow::LiveBlock::address);
    auto const* const before = after == map.blocks.begin() ? nullptr : &*std::prev(after);
    ui.tooltip([&] {
      if (before != nullptr && address - before->address < before->bytes) {
        ui.tag(before->tag);
        ui.text(format_bytes_exact(before->bytes) + " at " + address_in_words(before->address));
        if (before->ticks)
          ui.soft("for " + format_between(*state.model, *before->ticks, state.instant()) + ", by thread " +
                  std::to_string(state.model->source().thread_id(before->thread)));
        if (!before->site.empty()) ui.soft(before->site);
        return;
      }
      ui.text("gap");
      if (before != nullptr && after != map.blocks.end()) {
        ui.text(format_bytes_exact(after->address - before->address - before->bytes) + " from " +
                address_in_words(before->address + before->bytes));
      }
    });
  }

  Paced<Choice, Version, AddressMap> map_;
  Cached<LayoutKey, MapLayout> layout_;
  bool by_age_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_map_panel() { return std::make_unique<MapPanel>(); }

}  // namespace headroom::viewer
