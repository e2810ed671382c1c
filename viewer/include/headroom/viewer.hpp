// headroom: the viewer's panels in a window of your own program.
// Layer: viewer
//
// For a program that draws with Dear ImGui (1.86 or newer) already: an engine, a profiler, a tool. Everybody else runs headroom-viewer.
//
//   auto model = headroom::follow::Model::open_flight(path).value();
//   headroom::Viewer viewer;
//   viewer.show(&model);
//   …
//   if (model.poll().value_or(false)) viewer.note_news();       // as often as you like; 10 times a second is plenty
//   ImGui::Begin("memory");
//   viewer.draw();                                              // between NewFrame() and Render()
//   ImGui::End();
//
// Colours and fonts of text are the host's style where it sets them; sizes follow the host's font. Keys are the host's affair: draw() reads
// the mouse alone.
//
// Ownership: the model is yours, and must outlive its being shown. Thread safety: the thread of the ImGui context alone. Errors: none.
// Cost: nothing that grows with the number of events in a frame in which nothing was new.
#pragma once

#include <memory>

namespace headroom {
namespace follow {
class Model;
}

class Viewer {
public:
  Viewer();
  Viewer(Viewer const&) = delete;
  Viewer& operator=(Viewer const&) = delete;
  ~Viewer();

  /// What it shows from here on; null: nothing, and panels say so.
  void show(follow::Model* model);
  /// The model has read something since the last frame.
  void note_news();
  /// All panels, into the current ImGui window, in what is left of it.
  void draw();
  /// True when the last draw() changed something that the next one will show: for a host that sleeps between frames.
  [[nodiscard]] bool is_stale() const noexcept;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom
