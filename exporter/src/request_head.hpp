// headroom: whether the head of a request says one thing only, and the same to everybody.
//
// A proxy in front of the exporter and cpp-httplib behind it must agree where a request ends, or the body of one becomes the next
// (RFC 9112, 11.2). So whatever could be read in two ways is refused before the parser sees it.
//
// Pure functions. Cost: one pass over the head.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headroom::exporter {

struct RequestHead {
  std::string text;       ///< for the parser: the target has no scheme and host, and there is no `Range`
  bool has_body = false;  ///< which nobody reads: the connection must end with the answer
};

/// `head`: a request up to its empty line. Nothing for a line that ends in a bare newline, a carriage return or NUL within one, a header
/// without a colon or with anything but a token before it (so also blanks, and a line that continues the one before), more than one
/// Content-Length or one that is no number, a Content-Length beside a Transfer-Encoding, and http:// without a host.
[[nodiscard]] std::optional<RequestHead> check_head(std::string_view head);

}  // namespace headroom::exporter
