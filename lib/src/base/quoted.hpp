// headroom: values from outside in error messages.
//
// A message must name the value that was wrong, and must not let it break a terminal, a log line or the reader's patience.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

/// `text` in single quotes: control characters and bytes outside ASCII as \xNN, cut to about `max_length` characters.
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t max_length = 60);

}  // namespace headroom
