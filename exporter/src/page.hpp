// headroom: the page for people, as bytes in the binary. It is page/status.html, put into a source file by CMake.
//
// Whoever serves it puts a fresh nonce in the place of each kNonceMark and names it in the Content-Security-Policy: that is what allows
// the page's own style and script, and nothing else, from anywhere.
#pragma once

#include <optional>
#include <string_view>

#include "http.hpp"

namespace headroom::exporter {

inline constexpr std::string_view kNonceMark = "NONCE-OF-THIS-ANSWER";

/// Generated: the file as it is.
[[nodiscard]] std::string_view status_page_source() noexcept;

/// The page with its headers, ready to be sent.
[[nodiscard]] Reply status_page();
/// The same, for whoever would rather have HTML than plain text; nothing for everybody else.
[[nodiscard]] std::optional<Reply> status_page_if_preferred(Request const& request);

}  // namespace headroom::exporter
