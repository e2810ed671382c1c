// headroom: which key asks for what. The list that people read stands in commands.hpp.
#pragma once

#include <optional>

#include "commands.hpp"

namespace headroom::viewer {

/// Of a key as GLFW names it, with its modifiers. `is_typing`: a text field has the keyboard, and gets what it can use.
[[nodiscard]] std::optional<Command> command_of(int key, int modifiers, bool is_typing) noexcept;

}  // namespace headroom::viewer
