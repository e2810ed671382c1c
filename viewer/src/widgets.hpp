// headroom: how the viewer writes and shows things: the one way for panels to draw text.
//
// A Ui is made once a frame. Panels write through it and never through ImGui::Text and its kin, so that everything that is drawn is also
// recorded (text_recorder.hpp), looks the same everywhere, and that a name from a file can neither break a label nor a line.
//
//   ui.heading("Held at the peak");
//   ui.bytes(state.allocated);                                    // "2.91 GiB", its exact bytes in the tooltip
//   ui.help("Sum of all live allocations of this manager.");      // about the item before
//   if (auto table = ui.table("tags", kColumns)) {                // columns fit, header and sorting included
//     table.rows(tags.size(), [&](std::size_t row) {
//       ui.cell(); ui.tag(tags[row].name);
//       ui.cell(); ui.bytes_right(tags[row].bytes);
//     });
//   }
//
// Thread safety: none. Cost: a few string copies for each text; nothing that is out of sight is recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <imgui.h>

#include <headroom/pressure.hpp>

#include "commands.hpp"
#include "text_recorder.hpp"
#include "theme.hpp"

namespace headroom::viewer {

class Ui;

/// One column of a table.
struct Column {
  char const* title = "";
  float width = 0;   ///< in widths of a digit; 0: shares what is left
  float least = 16;  ///< … and then not less than this
  int rank = 0;      ///< where there is no room for all, the column of the highest goes first; 0: stays
  bool is_right = false;
  bool is_sortable = false;
  char const* help = nullptr;
};

/// A column to sort by, as the person clicked it.
struct SortOrder {
  int column = 0;
  bool is_descending = true;
  friend bool operator==(SortOrder const&, SortOrder const&) = default;
};

/// Open while it lives. Made by Ui::table.
class Table {
public:
  Table(Ui& ui, char const* id, std::span<Column const> columns, float height, SortOrder usual);
  Table(Table const&) = delete;
  Table& operator=(Table const&) = delete;
  ~Table();
  explicit operator bool() const noexcept { return is_open_; }
  /// What the person wants it sorted by; the first time `usual`.
  [[nodiscard]] SortOrder order() const noexcept { return order_; }
  /// Draws those rows that are in sight. Each begins with its first cell(); all are one line high.
  void rows(std::size_t count, std::function<void(std::size_t row)> const& draw);
  /// Puts a row in sight at the next frame.
  void scroll_to(std::size_t row);

private:
  Ui& ui_;
  bool is_open_ = false;
  SortOrder order_;
};

/// Which columns are shown in `room`, where each takes its width and `gap` more, all in widths of a digit.
[[nodiscard]] std::vector<bool> columns_with_room(std::span<Column const> columns, float room, float gap);

class Ui {
public:
  /// `recorder` may be null.
  Ui(ThemeName theme, Fonts const& fonts, TagColours& tags, Commands& commands, TextRecorder* recorder);

  [[nodiscard]] Colours const& colours() const noexcept { return *colours_; }
  [[nodiscard]] ImU32 tag_colour(std::string_view tag) { return tags_->of(tag, theme_); }
  /// True once if the person asked for it in this frame.
  [[nodiscard]] bool asked(Command command) noexcept { return commands_->take(command); }
  /// What follows belongs to this panel, in a recording.
  void section(std::string_view name);
  /// Records the text of the item before, which something else drew (a tab). Nothing if it is out of sight.
  void note(std::string_view text) { record(text); }

  // ── text ── (one line each unless it says otherwise; control characters become blanks)

  void text(std::string_view text) { text_coloured(text, colours_->text); }
  void soft(std::string_view text) { text_coloured(text, colours_->soft); }
  void good(std::string_view text) { text_coloured(text, colours_->good); }
  void warning(std::string_view text) { text_coloured(text, colours_->warning); }
  void bad(std::string_view text) { text_coloured(text, colours_->bad); }
  void text_coloured(std::string_view text, ImU32 colour);
  void text_right(std::string_view text, std::optional<ImU32> colour = {});  ///< at the right edge of the cell or window
  void strong(std::string_view text);
  void large(std::string_view text);
  void heading(std::string_view text);                                    ///< above a part of a panel
  void wrapped(std::string_view text, std::optional<ImU32> colour = {});  ///< a paragraph
  /// Cut with an ellipsis at `width` pixels (0: the cell or window), whole in the tooltip; `more`: in the tooltip in its place.
  void elided(std::string_view text, float width = 0, std::optional<ImU32> colour = {}, std::string_view more = {});
  /// Into a draw list, for plots.
  void draw_text(ImDrawList* list, ImVec2 position, ImU32 colour, std::string_view text);
  [[nodiscard]] static float width_of(std::string_view text);

  // ── figures ──

  void bytes(std::uint64_t bytes, std::optional<ImU32> colour = {});        ///< "2.91 GiB"; exact bytes in the tooltip
  void bytes_right(std::uint64_t bytes, std::optional<ImU32> colour = {});  ///< … at the right edge of the cell
  void exact_bytes(std::uint64_t bytes);                                    ///< "3,129,743,888 B"
  void count(std::uint64_t count);                                          ///< "1,234,567"
  void count_right(std::uint64_t count);
  void duration_right(std::uint64_t nanoseconds);
  /// "budget   2.83 GiB": a soft word and its figure, in one line.
  void labelled(std::string_view label, std::string_view figure, std::optional<ImU32> colour = {});

  // ── marks ──

  void swatch(ImU32 colour);       ///< a square, one line high
  void tag(std::string_view tag);  ///< its swatch and name; "untagged" for ""
  /// A place in the program: file, line and function (site_words.hpp), as it was recorded in the tooltip. `none`: in place of "".
  void site(std::string_view site, std::string_view none = "\u2014", std::optional<ImU32> colour = {});
  void badge(std::string_view word, ImU32 colour);  ///< a word in a rounded frame
  void pressure(PressureLevel level);               ///< its badge
  /// How full: `share` of 0 … 1 as a bar of the cell's width.
  void share_bar(double share, ImU32 colour, float width = 0);

  // ── saying what is what ──

  /// A tooltip for the item before.
  void help(std::string_view text);
  /// Any tooltip for the item before; `draw` is called only while it shows.
  void tooltip(std::function<void()> const& draw);
  /// In place of a panel's contents: what is not there, and what to do about it.
  void empty(std::string_view what, std::string_view what_to_do);
  /// "showing 100,000 of 1,234,567 rows": nothing where all are shown.
  void showing(std::uint64_t shown, std::uint64_t total, std::string_view things);

  // ── things to click ──

  [[nodiscard]] bool button(std::string_view label);
  [[nodiscard]] bool small_button(std::string_view label);
  [[nodiscard]] bool toggle(std::string_view label, bool is_on);  ///< a button that shows whether it is on
  [[nodiscard]] bool checkbox(std::string_view label, bool& is_on);
  [[nodiscard]] bool input(char const* id, std::string_view hint, std::string& text, float width);
  /// A choice among a few; true when it changed.
  [[nodiscard]] bool choice(char const* id, std::span<std::string const> names, std::size_t& chosen, float width);
  /// Makes the row of a table that was just begun clickable; call it first in the row's first cell. True when clicked.
  [[nodiscard]] bool row_button(std::size_t row, bool is_selected);

  // ── tables ──

  /// `height` 0: what is left of the window.
  [[nodiscard]] Table table(char const* id, std::span<Column const> columns, float height = 0, SortOrder usual = {});
  void cell();  ///< the next cell of the row
  static void same_line(float gap = -1) { ImGui::SameLine(0, gap); }

private:
  friend class Table;
  /// Records the item before if it is in sight.
  void record(std::string_view text);
  void exact_tooltip(std::uint64_t bytes);

  ThemeName theme_;
  Colours const* colours_;
  Fonts fonts_;
  TagColours* tags_;
  Commands* commands_;
  TextRecorder* recorder_;
  bool is_cell_out_of_sight_ = false;  ///< ImGui skips what is drawn into it
};

/// `text` with everything that would break a line or act as a control replaced by blanks.
[[nodiscard]] std::string one_line(std::string_view text);

}  // namespace headroom::viewer
