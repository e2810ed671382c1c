// Frames of Dear ImGui without any window or graphics: the layout and the draw lists are real, nothing is rasterised.
//
//   NullFrames frames{1280, 720};
//   auto const text = frames.draw(state, panel);            // 120 frames; all texts of the last one
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include <imgui.h>

#include "panels.hpp"
#include "text_recorder.hpp"
#include "theme.hpp"
#include "widgets.hpp"

namespace headroom::viewer {

class NullFrames {
public:
  static constexpr int kFrames = 120;

  NullFrames(float width, float height) : context_{ImGui::CreateContext()} {
    auto& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.DisplaySize = {width, height};
    io.DeltaTime = 1.0F / 60;
    io.MousePos = {-1, -1};
    io.Fonts->AddFontDefault();
    unsigned char* pixels = nullptr;
    int columns = 0;
    int rows = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &columns, &rows);
  }
  NullFrames(NullFrames const&) = delete;
  NullFrames& operator=(NullFrames const&) = delete;
  ~NullFrames() { ImGui::DestroyContext(context_); }

  /// One frame, in one window over the whole display.
  template <typename Draw>
  void frame(ThemeName theme, Draw&& draw) {
    apply_style(ImGui::GetStyle(), theme, 1);
    ImGui::NewFrame();
    recorder_.begin_frame();
    Ui ui{theme, {}, tags_, commands, &recorder_};
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
    ImGui::Begin("test", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoSavedSettings);
    draw(ui);
    ImGui::End();
    ImGui::Render();
    commands.clear();
  }

  /// Many frames of a panel; the texts of the last one.
  std::string draw(ViewState& state, Panel& panel, int count = kFrames) {
    for (auto i = 0; i < count; ++i) {
      frame(state.theme, [&](Ui& ui) {
        ui.section(panel.info().name);
        panel.draw(state, ui);
      });
    }
    return text();
  }

  [[nodiscard]] std::string text() const { return recorder_.text(); }
  /// Of the first text of the last frame that is exactly this; without width where there is none.
  [[nodiscard]] TextPlace place_of(std::string_view text) const {
    std::istringstream lines{recorder_.places()};
    for (std::string line; std::getline(lines, line);) {
      if (!line.ends_with('\t' + std::string{text})) continue;
      std::istringstream fields{line.substr(line.find('\t') + 1)};
      TextPlace place;
      fields >> place.x >> place.y >> place.width >> place.height;
      return place;
    }
    return {};
  }
  /// What the last frame would draw: 0 = nothing.
  [[nodiscard]] static int vertices() { return ImGui::GetDrawData()->TotalVtxCount; }

  /// The mouse, as the next frame sees it.
  static void point_at(float x, float y) { ImGui::GetIO().MousePos = {x, y}; }
  static void hold(int button, bool is_down) { ImGui::GetIO().MouseDown[button] = is_down; }

  Commands commands;  ///< given to the next frame

private:
  ImGuiContext* context_;
  TextRecorder recorder_;
  TagColours tags_;
};

}  // namespace headroom::viewer
