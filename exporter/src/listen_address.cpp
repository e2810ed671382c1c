#include "listen_address.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace headroom::exporter {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view{} : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return port;
}

/// Letters, digits, dots and hyphens: a name or an IPv4 address. Whether it exists is for the resolver to say.
bool may_be_host(std::string_view host) {
  return std::ranges::all_of(host, [](char character) {
    return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
           (character >= 'A' && character <= 'Z') || character == '.' || character == '-' || character == '_';
  });
}

bool may_be_ipv6(std::string_view host) {
  return host.find(':') != std::string_view::npos && host.find_first_of("[] \t") == std::string_view::npos;
}

/// `text` for a message: short, and without bytes that would spoil a terminal.
std::string shown(std::string_view text) {
  constexpr std::size_t kShownBytes = 80;
  std::string result{text.substr(0, kShownBytes)};
  std::ranges::replace_if(result, [](char character) { return character < ' ' || character > '~'; }, '?');
  return text.size() > kShownBytes ? result + "…" : result;
}

}  // namespace

std::string ListenAddress::to_string() const {
  const bool needs_brackets = host.find(':') != std::string::npos;
  return (needs_brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const auto refused = [text](std::string_view why) {
    return fail(ErrorKind::parse, Layer::request,
                std::string{"'"} + shown(text) + "' is no address to listen on: " + std::string{why} +
                    "; expected HOST:PORT, [IPv6]:PORT, :PORT or PORT, such as 127.0.0.1:9478");
  };
  const std::string_view address = trimmed(text);
  if (address.empty()) return refused("it is empty");

  std::string_view host;
  std::string_view port_text = address;
  bool has_host = true;
  if (address.front() == '[') {
    const auto close = address.find(']');
    if (close == std::string_view::npos) return refused("the bracket is not closed");
    host = address.substr(1, close - 1);
    if (!may_be_ipv6(host)) return refused("brackets hold an IPv6 address");
    if (close + 1 >= address.size() || address[close + 1] != ':') return refused("the port is missing");
    port_text = address.substr(close + 2);
  } else if (const auto colon = address.find(':'); colon == std::string_view::npos) {
    host = kLoopback;
    if (!parse_port(address)) {
      const bool is_number = address.find_first_not_of("0123456789") == std::string_view::npos;
      return refused(is_number ? "a port is at most 65535" : "the port is missing");
    }
  } else {
    if (address.find(':', colon + 1) != std::string_view::npos) return refused("an IPv6 address needs brackets");
    host = address.substr(0, colon);
    has_host = !host.empty();
    if (!may_be_host(host)) return refused("the host has characters that no host name has");
    port_text = address.substr(colon + 1);
  }
  const auto port = parse_port(port_text);
  if (!port) return refused("a port is a number from 0 to 65535");
  return ListenAddress{has_host ? std::string{host} : std::string{}, *port};
}

}  // namespace headroom::exporter
