#include "request_head.hpp"

#include <algorithm>

namespace headroom::exporter {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

char lower(char letter) noexcept { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter | 0x20) : letter; }

bool is_same(std::string_view text, std::string_view lower_case) { return std::ranges::equal(text, lower_case, {}, lower); }

bool is_digit(char letter) noexcept { return letter >= '0' && letter <= '9'; }

/// RFC 9110, 5.6.2.
bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [kMarks](char letter) {
    return is_digit(letter) || (lower(letter) >= 'a' && lower(letter) <= 'z') || kMarks.find(letter) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The target without scheme and host, as clients send it to whom they take for a proxy (RFC 9112, 3.2.2); nothing without a host.
std::optional<std::string> without_host(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!is_same(target.substr(0, scheme.size()), scheme)) continue;
    const auto rest = target.substr(scheme.size());
    const auto path = std::min(rest.find_first_of("/?"), rest.size());
    if (path == 0) return std::nullopt;
    const bool has_path = path < rest.size() && rest[path] == '/';
    return (has_path ? "" : "/") + std::string{rest.substr(path)};
  }
  return std::string{target};
}

/// What is no request line is left to the parser, which refuses it.
std::optional<std::string> plain_request_line(std::string_view line) {
  const auto begin = line.find(' ');
  const auto end = line.rfind(' ');
  if (begin == std::string_view::npos || begin == end) return std::string{line};
  auto target = without_host(line.substr(begin + 1, end - begin - 1));
  if (!target) return std::nullopt;
  return std::string{line.substr(0, begin + 1)} + *target + std::string{line.substr(end)};
}

}  // namespace

std::optional<RequestHead> check_head(std::string_view head) {
  RequestHead checked;
  checked.text.reserve(head.size());
  bool has_length = false;
  bool is_encoded = false;
  for (bool is_first = true; !head.empty(); is_first = false) {
    const auto end = head.find('\n');
    if (end == std::string_view::npos || end == 0 || head[end - 1] != '\r') return std::nullopt;
    const auto line = head.substr(0, end - 1);
    head.remove_prefix(end + 1);
    if (line.find_first_of(std::string_view{"\r\0", 2}) != std::string_view::npos) return std::nullopt;
    if (is_first) {
      const auto request_line = plain_request_line(line);
      if (!request_line) return std::nullopt;
      checked.text.append(*request_line).append(kLineEnd);
      continue;
    }
    if (!line.empty()) {
      const auto colon = line.find(':');
      if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return std::nullopt;
      const auto name = line.substr(0, colon);
      const auto value = trimmed(line.substr(colon + 1));
      // cpp-httplib matches ranges with a recursive std::regex, which a long one drives into the end of the stack; a part of a scrape is
      // of no use to anybody.
      if (is_same(name, "range")) continue;
      if (is_same(name, "content-length")) {
        if (has_length || value.empty() || !std::ranges::all_of(value, is_digit)) return std::nullopt;
        has_length = true;
        checked.has_body = checked.has_body || value.find_first_not_of('0') != std::string_view::npos;
      } else if (is_same(name, "transfer-encoding")) {
        is_encoded = true;
        checked.has_body = true;
      }
    }
    checked.text.append(line).append(kLineEnd);
  }
  if (has_length && is_encoded) return std::nullopt;
  return checked;
}

}  // namespace headroom::exporter
