// headroom: which key asks for what. The list that people read stands in commands.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "commands.hpp"

namespace headroom::viewer {

/// Of a key as GLFW names it, with its modifiers. `is_typing`: a text field has the keyboard, and gets what it can use.
[[nodiscard]] std::optional<Command> command_of(int key, int modifiers, bool is_typing) noexcept;

/// Of a letter, as Unicode has it, wherever on the keyboard it is: what people know by its sign and not by its place.
[[nodiscard]] std::optional<Command> command_of_letter(std::uint32_t letter, bool is_typing) noexcept;

}  // namespace headroom::viewer
