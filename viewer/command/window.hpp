// headroom: a window with OpenGL and a context of Dear ImGui in it.
//
// One at a time. It sleeps until something happens, and turns keys into commands. Thread safety: the main thread alone.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <headroom/error.hpp>

#include "commands.hpp"
#include "options.hpp"
#include "theme.hpp"

struct GLFWwindow;

namespace headroom::viewer {

class Window {
public:
  /// Of its usual size where that one cannot be had, and where the desktop wants it where `place` is out of sight.
  /// Errors: io, with what the system says: no display, no OpenGL 3.
  [[nodiscard]] static Result<std::unique_ptr<Window>> open(WindowSize size, std::optional<WindowSize> place);
  Window(Window const&) = delete;
  Window& operator=(Window const&) = delete;
  ~Window();

  /// Until something comes from the person or the desktop, or the time is up. True when something came.
  bool wait(std::chrono::milliseconds most);
  [[nodiscard]] bool wants_to_close() const;
  void set_title(std::string const& title);

  /// What was asked for since the last call.
  [[nodiscard]] Commands take_commands();
  /// Files that were dropped on it since the last call.
  [[nodiscard]] std::vector<std::string> take_dropped();

  /// A frame: begin, draw with ImGui, end, which shows it. `scale` comes on top of the display's own.
  void begin_frame(ThemeName theme, float scale);
  void end_frame();
  /// Of the frame between begin and end that was drawn last, into a PNG. Errors: io.
  [[nodiscard]] Result<void> write_picture(std::string const& path) const;

  [[nodiscard]] Fonts const& fonts() const noexcept { return fonts_; }
  [[nodiscard]] WindowSize size() const;
  [[nodiscard]] WindowSize place() const;  ///< of its top left corner

private:
  Window() = default;
  void take_callbacks();
  static Window* of(GLFWwindow* window);

  GLFWwindow* window_ = nullptr;
  bool has_imgui_ = false;
  bool has_backends_ = false;
  bool something_came_ = false;
  Commands commands_;
  std::vector<std::string> dropped_;
  Fonts fonts_;
  float fonts_scale_ = 0;
  std::optional<ThemeName> style_theme_;
};

}  // namespace headroom::viewer
