// headroom: places in a program as people read them. No ImGui. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace headroom::viewer {

/// "replay_player.hpp:87 Player::allocate" of "replay_player.hpp:87 void headroom::trace::Player::allocate(const headroom::trace::Step&,":
/// the place, and of a C++ function its name and class, without what it returns and takes. A flight file cuts long sites: where that
/// cost a part of the name, "…" stands for it. Sites of other languages stay as they are.
[[nodiscard]] std::string site_in_words(std::string_view site);

}  // namespace headroom::viewer
