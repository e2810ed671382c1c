// headroom: how the panels are laid out in one window, and what the keys do that belong to no panel.
//
// Strip above, timeline below it, and under a splitter the other panels as tabs: side by side where there is room for two.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "panels.hpp"
#include "state.hpp"
#include "widgets.hpp"

namespace headroom::viewer {

class Shell {
public:
  Shell();
  /// Everything, into the current window. Without a model it says what to do.
  void draw(ViewState& state, Ui& ui);
  /// Another model is shown.
  void forget();
  [[nodiscard]] std::vector<std::unique_ptr<Panel>> const& panels() const noexcept { return panels_; }
  /// The panel of that name; null when there is none.
  [[nodiscard]] Panel const* find(std::string_view name) const noexcept;

private:
  void tabs(ViewState& state, Ui& ui, char const* id, bool left, bool right);
  void draw_place(ViewState& state, Ui& ui, Place place);
  void answer(ViewState& state, Ui& ui);
  void help_page(Ui& ui);

  std::vector<std::unique_ptr<Panel>> panels_;
  float timeline_share_ = 0.42F;  ///< of the height below the strip
  bool shows_help_ = false;
};

}  // namespace headroom::viewer
