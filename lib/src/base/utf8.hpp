// Text from outside (tags, thread names, command lines, foreign files) becomes valid UTF-8 before anyone prints it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

/// Bytes of the valid character at the start of `text`, which is not empty; 0: there is none.
[[nodiscard]] std::size_t utf8_character_length(std::string_view text) noexcept;

/// `text` with each invalid byte replaced by U+FFFD, cut before the first NUL, and to at most `max_bytes` at a character's boundary.
[[nodiscard]] std::string valid_utf8(std::string_view text, std::size_t max_bytes = std::string_view::npos);

}  // namespace headroom
