// headroom: every text that a frame drew, so that figures on a screen can be compared with figures worked out (--dump-text), and that a
// test finds what it wants to click (--dump-places).
//
// Texts that stand in one line of one section become one line, with tabs between them. Thread safety: none. Cost: none while off.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::viewer {

/// In pixels, from the window's upper left corner.
struct TextPlace {
  float x = 0, y = 0, width = 0, height = 0;
};

class TextRecorder {
public:
  void begin_frame();
  /// Of what is drawn from here on: a panel's name.
  void section(std::string_view name);
  /// What differs in `y` by less than half of its height is one line.
  void add(std::string_view text, TextPlace const& place);

  /// "[timeline]", then a line for each line on the screen. UTF-8; ends in a line end unless empty.
  [[nodiscard]] std::string text() const;
  /// A line for each text: section, x, y, width, height (whole pixels) and the text, with tabs between them.
  [[nodiscard]] std::string places() const;

private:
  struct Piece {
    std::size_t section = 0;
    std::string text;
    TextPlace place;
  };
  std::vector<std::string> sections_{std::string{}};
  std::vector<Piece> pieces_;
};

}  // namespace headroom::viewer
