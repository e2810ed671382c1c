// Text from outside (tags, thread names, command lines, foreign files) becomes valid UTF-8 before anyone prints it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

/// `text` with each invalid byte replaced by U+FFFD, cut before the first NUL, and to at most `max_bytes` at a character's boundary.
[[nodiscard]] std::string valid_utf8(std::string_view text, std::size_t max_bytes = std::string_view::npos);

}  // namespace headroom
