// headroom: where to listen, from the text that people write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom::exporter {

struct ListenAddress {
  std::string host;  ///< without brackets; empty: all addresses, IPv6 and IPv4
  std::uint16_t port = 0;

  /// HOST:PORT with brackets where an IPv6 address needs them; ":PORT" for all addresses.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(ListenAddress const&, ListenAddress const&) = default;
};

/// Reads HOST:PORT, [IPv6]:PORT, :PORT and PORT alone (127.0.0.1). Blanks around it are ignored. Errors: parse; the message
/// names the text and what was expected.
[[nodiscard]] Result<ListenAddress> parse_listen_address(std::string_view text);

}  // namespace headroom::exporter
