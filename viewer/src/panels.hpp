// headroom: the panels of the viewer: what each is called and how it is drawn.
//
// To add one: derive from Panel in <name>_panel.cpp, and name its maker in panels.cpp. A panel keeps
// what it worked out (cached.hpp) and what the person chose in it; all else is in ViewState.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "state.hpp"
#include "widgets.hpp"

namespace headroom::viewer {

/// Where a panel stands. Side by side in a wide window; in a narrow one `left` and `right` share one row of tabs.
enum class Place : std::uint8_t {
  strip,     ///< above all others, a few lines
  timeline,  ///< below the strip, over the whole width
  left,      ///< lists
  right,     ///< what explains one thing
};

struct PanelInfo {
  std::string_view name;   ///< as --panel takes it: "event-log"
  std::string_view title;  ///< as a tab shows it: "Event log"
  std::string_view what;   ///< a sentence for its tooltip and the help
  Place place = Place::left;
};

class Panel {
public:
  Panel() = default;
  Panel(Panel const&) = delete;
  Panel& operator=(Panel const&) = delete;
  virtual ~Panel() = default;

  [[nodiscard]] virtual PanelInfo const& info() const noexcept = 0;
  /// Into the current ImGui window, as large as what is left of it. Only called while it is in sight, and with a model.
  virtual void draw(ViewState& state, Ui& ui) = 0;
  /// Another model is shown: forget what was worked out from the one before, and what was chosen about it.
  virtual void forget() {}
};

/// All there are, in the order of their tabs.
[[nodiscard]] std::vector<std::unique_ptr<Panel>> make_panels();

}  // namespace headroom::viewer
