#include <headroom/viewer.hpp>

#include "commands.hpp"
#include "shell.hpp"
#include "state.hpp"
#include "theme.hpp"
#include "widgets.hpp"

namespace headroom {

struct Viewer::Impl {
  viewer::ViewState state;
  viewer::Shell shell;
  viewer::TagColours tags;
  viewer::Commands commands;
  bool has_news = false;
};

Viewer::Viewer() : impl_{std::make_unique<Impl>()} {}
Viewer::~Viewer() = default;

void Viewer::show(follow::Model* model) {
  impl_->state.show(model);
  impl_->shell.forget();
}

void Viewer::note_news() { impl_->has_news = true; }

void Viewer::draw() {
  auto& state = impl_->state;
  state.follow(impl_->has_news);
  impl_->has_news = false;
  state.is_stale = false;
  // The host's ground says which colours can be read on it.
  auto const ground = ImGui::GetStyle().Colors[ImGuiCol_WindowBg];
  auto const is_light = 0.3F * ground.x + 0.6F * ground.y + 0.1F * ground.z > 0.5F;
  state.theme = is_light ? viewer::ThemeName::light : viewer::ThemeName::dark;
  viewer::Ui ui{state.theme, {}, impl_->tags, impl_->commands, nullptr};
  impl_->shell.draw(state, ui);
}

bool Viewer::is_stale() const noexcept { return impl_->state.is_stale; }

}  // namespace headroom
