// headroom: every text that a frame drew, so that figures on a screen can be compared with figures worked out (--dump-text).
//
// Texts that stand in one line of one section become one line, with tabs between them. Thread safety: none. Cost: none while off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::viewer {

class TextRecorder {
public:
  void begin_frame();
  /// Of what is drawn from here on: a panel's name.
  void section(std::string_view name);
  /// `y`: where on the screen, in pixels; what differs by less than `height` / 2 is one line.
  void add(std::string_view text, float y, float height);

  /// "[timeline]", then a line for each line on the screen. UTF-8; ends in a line end unless empty.
  [[nodiscard]] std::string text() const;

private:
  struct Line {
    std::string section, text;
    float y = 0;
  };
  std::string section_;
  std::vector<Line> lines_;
};

}  // namespace headroom::viewer
