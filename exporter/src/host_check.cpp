#include "host_check.hpp"

#include <algorithm>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace headroom::exporter {
namespace {

constexpr std::string_view kLocalhost = "localhost";
constexpr std::size_t kLongestName = 255;

char lower(char letter) noexcept { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

bool ends_with_localhost(std::string_view name) noexcept {
  if (name.size() < kLocalhost.size()) return false;
  return std::ranges::equal(name.substr(name.size() - kLocalhost.size()), kLocalhost, {}, lower);
}

bool is_port(std::string_view text) noexcept {
  return text.size() <= 5 && std::ranges::all_of(text, [](char digit) { return digit >= '0' && digit <= '9'; });
}

bool is_ipv6(std::string const& text) noexcept {
  in6_addr address{};
  // A zone, as in fe80::1%eth0, is none of the address.
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

}  // namespace

bool is_loopback(std::string const& numeric_host) noexcept {
  in_addr four{};
  if (::inet_pton(AF_INET, numeric_host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24U) == 127;
  in6_addr six{};
  if (::inet_pton(AF_INET6, numeric_host.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool is_local_name(std::string_view host) noexcept {
  if (host.empty()) return true;
  if (host.size() > kLongestName) return false;
  if (host.front() == '[') {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return false;
    const auto rest = host.substr(end + 1);
    return (rest.empty() || (rest.front() == ':' && is_port(rest.substr(1)))) && is_ipv6(std::string{host.substr(1, end - 1)});
  }
  auto name = host;
  if (const auto colon = host.rfind(':'); colon != std::string_view::npos) {
    if (!is_port(host.substr(colon + 1))) return false;
    name = host.substr(0, colon);
  }
  in_addr address{};
  if (::inet_pton(AF_INET, std::string{name}.c_str(), &address) == 1) return true;
  if (name.ends_with('.')) name.remove_suffix(1);  // a name that is complete, as resolvers write it
  if (!ends_with_localhost(name)) return false;
  return name.size() == kLocalhost.size() || name[name.size() - kLocalhost.size() - 1] == '.';
}

}  // namespace headroom::exporter
