#include "widgets.hpp"

#include <algorithm>
#include <string>

#include <imgui_stdlib.h>

#include <headroom/byte_size.hpp>

#include "figures.hpp"
#include "site_words.hpp"

namespace headroom::viewer {
namespace {

char const* end_of(std::string_view text) { return text.data() + text.size(); }

void unformatted(std::string_view text) { ImGui::TextUnformatted(text.data(), end_of(text)); }

/// Where the cell or window ends, from the cursor on.
float room() { return std::max(ImGui::GetContentRegionAvail().x, 0.0F); }

}  // namespace

std::string one_line(std::string_view text) {
  std::string line{text};
  std::ranges::replace_if(line, [](char one) { return static_cast<unsigned char>(one) < 0x20 || one == 0x7f; }, ' ');
  return line;
}

Ui::Ui(ThemeName theme, Fonts const& fonts, TagColours& tags, Commands& commands, TextRecorder* recorder)
    : theme_{theme}, colours_{&colours_of(theme)}, fonts_{fonts}, tags_{&tags}, commands_{&commands}, recorder_{recorder} {}

void Ui::section(std::string_view name) {
  if (recorder_ != nullptr) recorder_->section(name);
}

void Ui::record(std::string_view text) {
  if (recorder_ == nullptr || is_cell_out_of_sight_ || text.empty() || !ImGui::IsItemVisible()) return;
  auto const at = ImGui::GetItemRectMin();
  auto const size = ImGui::GetItemRectSize();
  recorder_->add(text, {.x = at.x, .y = at.y, .width = size.x, .height = size.y});
}

// ── text ──

void Ui::text_coloured(std::string_view text, ImU32 colour) {
  auto const line = one_line(text);
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  unformatted(line);
  ImGui::PopStyleColor();
  record(line);
}

void Ui::text_right(std::string_view text, std::optional<ImU32> colour) {
  auto const line = one_line(text);
  auto const shift = room() - width_of(line);
  if (shift > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + shift);
  text_coloured(line, colour.value_or(colours_->text));
}

void Ui::strong(std::string_view text) {
  if (fonts_.strong != nullptr) ImGui::PushFont(fonts_.strong);
  text_coloured(text, colours_->text);
  if (fonts_.strong != nullptr) ImGui::PopFont();
}

void Ui::large(std::string_view text) {
  if (fonts_.large != nullptr) ImGui::PushFont(fonts_.large);
  text_coloured(text, colours_->text);
  if (fonts_.large != nullptr) ImGui::PopFont();
}

void Ui::heading(std::string_view text) {
  strong(text);
  ImGui::Separator();
}

void Ui::wrapped(std::string_view text, std::optional<ImU32> colour) {
  ImGui::PushStyleColor(ImGuiCol_Text, colour.value_or(colours_->text));
  ImGui::PushTextWrapPos(0);
  unformatted(text);
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
  record(one_line(text));
}

void Ui::elided(std::string_view text, float width, std::optional<ImU32> colour, std::string_view more) {
  auto const line = one_line(text);
  auto const most = width > 0 ? width : room();
  auto const shown = colour.value_or(colours_->text);
  if (width_of(line) <= most) {
    text_coloured(line, shown);
    if (!more.empty()) help(more);
    return;
  }
  constexpr std::string_view kDots = "\u2026";
  auto const left = most - width_of(kDots);
  // By halving: a name may be thousands of bytes long.
  std::size_t fits = 0;
  std::size_t too_long = line.size();
  while (fits + 1 < too_long) {
    auto const middle = fits + (too_long - fits) / 2;
    (width_of(std::string_view{line}.substr(0, middle)) <= left ? fits : too_long) = middle;
  }
  while (fits > 0 && (static_cast<unsigned char>(line[fits]) & 0xC0U) == 0x80U) --fits;  // no part of a character
  text_coloured(line.substr(0, fits).append(kDots), shown);
  help(more.empty() ? text : more);
}

void Ui::draw_text(ImDrawList* list, ImVec2 position, ImU32 colour, std::string_view text) {
  auto const line = one_line(text);
  list->AddText(position, colour, line.data(), end_of(line));
  if (recorder_ != nullptr && !line.empty() && ImGui::IsRectVisible(position, {position.x + 1, position.y + 1})) {
    recorder_->add(line, {.x = position.x, .y = position.y, .width = width_of(line), .height = ImGui::GetFontSize()});
  }
}

float Ui::width_of(std::string_view text) { return ImGui::CalcTextSize(text.data(), end_of(text)).x; }

// ── figures ──

void Ui::exact_tooltip(std::uint64_t bytes) {
  if (ImGui::IsItemHovered()) help(format_count(bytes) + " bytes");
}

void Ui::bytes(std::uint64_t bytes, std::optional<ImU32> colour) {
  text_coloured(format_bytes(bytes), colour.value_or(colours_->text));
  exact_tooltip(bytes);
}

void Ui::bytes_right(std::uint64_t bytes, std::optional<ImU32> colour) {
  text_right(format_bytes(bytes), colour);
  exact_tooltip(bytes);
}

void Ui::exact_bytes(std::uint64_t bytes) { text(format_count(bytes) + " B"); }

void Ui::count(std::uint64_t count) { text(format_count(count)); }

void Ui::count_right(std::uint64_t count) { text_right(format_count(count)); }

void Ui::duration_right(std::uint64_t nanoseconds) { text_right(format_duration(nanoseconds)); }

void Ui::labelled(std::string_view label, std::string_view figure, std::optional<ImU32> colour) {
  soft(label);
  same_line(ImGui::GetStyle().ItemInnerSpacing.x);
  text_coloured(figure, colour.value_or(colours_->text));
}

// ── marks ──

void Ui::swatch(ImU32 colour) {
  auto const size = ImGui::GetFontSize();
  auto const at = ImGui::GetCursorScreenPos();
  auto const edge = size * 0.72F;
  auto const top = at.y + (size - edge) / 2;
  ImGui::GetWindowDrawList()->AddRectFilled({at.x, top}, {at.x + edge, top + edge}, colour, size * 0.16F);
  ImGui::Dummy({edge, size});
}

void Ui::tag(std::string_view tag) {
  swatch(tag_colour(tag));
  same_line(ImGui::GetStyle().ItemInnerSpacing.x);
  elided(tag.empty() ? "untagged" : tag);
}

void Ui::site(std::string_view site, std::string_view none, std::optional<ImU32> colour) {
  if (site.empty()) return elided(none, 0, colours_->soft);
  elided(site_in_words(site), 0, colour, site);
}

void Ui::badge(std::string_view word, ImU32 colour) {
  auto const line = one_line(word);
  auto const size = ImGui::GetFontSize();
  auto const at = ImGui::GetCursorScreenPos();
  auto const width = width_of(line) + size * 0.8F;
  auto* const list = ImGui::GetWindowDrawList();
  list->AddRectFilled(at, {at.x + width, at.y + size}, faded(colour, 0.18F), size * 0.25F);
  list->AddText({at.x + size * 0.4F, at.y}, colour, line.data(), end_of(line));
  ImGui::Dummy({width, size});
  record(line);
}

void Ui::pressure(PressureLevel level) {
  auto const index = std::min<std::size_t>(static_cast<std::size_t>(level), colours_->pressure.size() - 1);
  badge(to_string(level), colours_->pressure.at(index));
}

void Ui::share_bar(double share, ImU32 colour, float width) {
  auto const size = ImGui::GetFontSize();
  auto const at = ImGui::GetCursorScreenPos();
  auto const whole = width > 0 ? width : std::max(room(), 1.0F);
  auto const part = whole * static_cast<float>(std::clamp(share, 0.0, 1.0));
  auto* const list = ImGui::GetWindowDrawList();
  auto const top = at.y + size * 0.2F;
  auto const bottom = at.y + size * 0.8F;
  list->AddRectFilled({at.x, top}, {at.x + whole, bottom}, colours_->faint, size * 0.15F);
  if (part > 0) list->AddRectFilled({at.x, top}, {at.x + std::max(part, 1.0F), bottom}, colour, size * 0.15F);
  ImGui::Dummy({whole, size});
}

// ── saying what is what ──

void Ui::tooltip(std::function<void()> const& draw) {
  if (is_cell_out_of_sight_ || !ImGui::IsItemHovered()) return;
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(ImGui::GetFontSize() * 28);
  draw();
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void Ui::help(std::string_view text) {
  tooltip([&] {
    unformatted(text);
    record(one_line(text));
  });
}

void Ui::empty(std::string_view what, std::string_view what_to_do) {
  auto const height = ImGui::GetContentRegionAvail().y;
  ImGui::Dummy({0, std::clamp(height * 0.3F - ImGui::GetFontSize(), 0.0F, 200.0F)});
  for (auto const line : {what, what_to_do}) {
    if (line.empty()) continue;
    auto const width = width_of(line);
    if (width < room()) {
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + (room() - width) / 2);
      line.data() == what.data() ? text(line) : soft(line);
    } else {
      wrapped(line, line.data() == what.data() ? colours_->text : colours_->soft);
    }
  }
}

void Ui::showing(std::uint64_t shown, std::uint64_t total, std::string_view things) {
  if (shown >= total) return;
  warning("showing " + format_count(shown) + " of " + format_count(total) + " " + std::string{things});
}

// ── things to click ──

bool Ui::button(std::string_view label) {
  auto const line = one_line(label);
  auto const was = ImGui::Button(line.c_str());
  record(line.substr(0, line.find("##")));
  return was;
}

bool Ui::small_button(std::string_view label) {
  auto const line = one_line(label);
  auto const was = ImGui::SmallButton(line.c_str());
  record(line.substr(0, line.find("##")));
  return was;
}

bool Ui::toggle(std::string_view label, bool is_on) {
  if (is_on) ImGui::PushStyleColor(ImGuiCol_Button, colours_->accent_ground);
  auto const was = button(label);
  if (is_on) ImGui::PopStyleColor();
  return was;
}

bool Ui::checkbox(std::string_view label, bool& is_on) {
  auto const line = one_line(label);
  auto const was = ImGui::Checkbox(line.c_str(), &is_on);
  record((is_on ? "\u2611 " : "\u2610 ") + line.substr(0, line.find("##")));
  return was;
}

bool Ui::input(char const* id, std::string_view hint, std::string& text, float width) {
  ImGui::SetNextItemWidth(width);
  auto const was = ImGui::InputTextWithHint(id, std::string{hint}.c_str(), &text);
  record(text.empty() ? hint : std::string_view{text});
  return was;
}

bool Ui::choice(char const* id, std::span<std::string const> names, std::size_t& chosen, float width) {
  auto const before = chosen;
  auto const shown = chosen < names.size() ? one_line(names[chosen]) : std::string{};
  ImGui::SetNextItemWidth(width);
  auto const is_open = ImGui::BeginCombo(id, shown.c_str());
  if (!is_open) record(shown);
  if (is_open) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      ImGui::PushID(static_cast<int>(i));
      auto const at = ImGui::GetCursorScreenPos();
      if (ImGui::Selectable("##choice", i == chosen)) chosen = i;
      draw_text(ImGui::GetWindowDrawList(), at, colours_->text, names[i]);
      ImGui::PopID();
    }
    ImGui::EndCombo();
  }
  return chosen != before;
}

bool Ui::row_button(std::size_t row, bool is_selected) {
  ImGui::PushID(static_cast<int>(row));
  auto const was =
      ImGui::Selectable("##row", is_selected, ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowItemOverlap);
  ImGui::PopID();
  same_line(0);
  return was;
}

// ── tables ──

Table Ui::table(char const* id, std::span<Column const> columns, float height, SortOrder usual) {
  return {*this, id, columns, height, usual};
}

void Ui::cell() { is_cell_out_of_sight_ = !ImGui::TableNextColumn(); }

std::vector<bool> columns_with_room(std::span<Column const> columns, float room, float gap) {
  std::vector<bool> shown(columns.size(), true);
  auto wanted = 0.0F;
  auto const width_of_column = [gap](Column const& column) { return gap + (column.width > 0 ? column.width : column.least); };
  for (auto const& column : columns) wanted += width_of_column(column);
  while (wanted > room) {
    std::optional<std::size_t> least_important;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      auto const may_go = shown[i] && columns[i].rank > 0;
      if (may_go && (!least_important || columns[i].rank > columns[*least_important].rank)) least_important = i;
    }
    if (!least_important) break;
    shown[*least_important] = false;
    wanted -= width_of_column(columns[*least_important]);
  }
  return shown;
}

Table::Table(Ui& ui, char const* id, std::span<Column const> columns, float height, SortOrder usual) : ui_{ui}, order_{usual} {
  auto const is_sortable = std::ranges::any_of(columns, &Column::is_sortable);
  auto const& style = ImGui::GetStyle();
  auto const digit = Ui::width_of("0");
  auto const is_shown = columns_with_room(columns, (room() - style.ScrollbarSize) / digit, 2 * style.CellPadding.x / digit);
  auto const flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_Resizable | ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersOuterH |
                     ImGuiTableFlags_SizingFixedFit | (is_sortable ? ImGuiTableFlags_Sortable : 0);
  is_open_ = ImGui::BeginTable(id, static_cast<int>(columns.size()), flags, {0, height});
  if (!is_open_) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    auto const& column = columns[i];
    ImGuiTableColumnFlags column_flags = column.width > 0 ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch;
    if (!is_shown[i]) column_flags |= ImGuiTableColumnFlags_Disabled;
    if (!column.is_sortable) column_flags |= ImGuiTableColumnFlags_NoSort;
    if (column.is_sortable && usual.column == static_cast<int>(i)) column_flags |= ImGuiTableColumnFlags_DefaultSort;
    if (column.is_sortable && (usual.column != static_cast<int>(i) || usual.is_descending)) {
      column_flags |= ImGuiTableColumnFlags_PreferSortDescending;
    }
    ImGui::TableSetupColumn(column.title, column_flags, column.width > 0 ? column.width * digit : 0.0F);
  }
  // Headings one by one, each with its help and on the side where its figures stand.
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!ImGui::TableSetColumnIndex(static_cast<int>(i))) continue;
    auto const& column = columns[i];
    ImGui::PushID(static_cast<int>(i));
    auto const shift =
        column.is_right ? room() - Ui::width_of(column.title) - (column.is_sortable ? ImGui::GetFontSize() : 0) : 0;
    if (shift > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + shift);
    ImGui::PushStyleColor(ImGuiCol_Text, ui_.colours().soft);
    ImGui::TableHeader(column.title);
    ImGui::PopStyleColor();
    ui_.record(column.title);
    if (column.help != nullptr) ui_.help(column.help);
    ImGui::PopID();
  }
  if (auto const* const specs = is_sortable ? ImGui::TableGetSortSpecs() : nullptr; specs != nullptr && specs->SpecsCount > 0) {
    order_ = {.column = specs->Specs[0].ColumnIndex,
              .is_descending = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending};
  }
}

Table::~Table() {
  if (!is_open_) return;
  ImGui::EndTable();
  ui_.is_cell_out_of_sight_ = false;
}

void Table::rows(std::size_t count, std::function<void(std::size_t row)> const& draw) {
  if (!is_open_) return;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(std::min<std::size_t>(count, 10'000'000)));  // positions in pixels are floats
  while (clipper.Step()) {
    for (auto row = clipper.DisplayStart; row < clipper.DisplayEnd; ++row) {
      ImGui::TableNextRow();
      draw(static_cast<std::size_t>(row));
    }
  }
}

void Table::scroll_to(std::size_t row) {
  if (!is_open_) return;
  auto const height = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  ImGui::SetScrollY(std::max(0.0F, static_cast<float>(row) * height - ImGui::GetWindowHeight() / 2));
}

}  // namespace headroom::viewer
