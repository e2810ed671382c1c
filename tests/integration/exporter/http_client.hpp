// A client that says exactly what a test wants it to say, and reads until the server closes or falls silent.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace headroom::test {

using namespace std::chrono_literals;
using Moment = std::chrono::steady_clock::time_point;

class Client {
public:
  explicit Client(std::uint16_t port, bool ipv6 = false)
      : socket_{::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    if (ipv6) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(port);
      address.sin6_addr = in6addr_loopback;
      connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
  }
  Client(Client&& other) noexcept : socket_{std::exchange(other.socket_, -1)}, connected_{other.connected_} {}
  Client(Client const&) = delete;
  Client& operator=(Client const&) = delete;
  Client& operator=(Client&&) = delete;
  ~Client() {
    if (socket_ >= 0) ::close(socket_);
  }

  [[nodiscard]] bool connected() const { return connected_; }
  bool say(std::string_view bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void half_close() const { ::shutdown(socket_, SHUT_WR); }
  void reset_on_close() const {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  /// Everything until the server closes, which it does on its own with whoever is silent, or until `is_enough(bytes)`.
  template <class Enough>
  [[nodiscard]] std::string read_until(Enough&& is_enough) const {
    constexpr int kHung = 240'000;  // milliseconds
    std::string bytes;
    std::array<char, 65536> chunk;
    while (!is_enough(std::as_const(bytes))) {
      pollfd entry{socket_, POLLIN, 0};
      if (::poll(&entry, 1, kHung) <= 0) return bytes;
      const auto count = ::recv(socket_, chunk.data(), chunk.size(), 0);
      if (count <= 0) return bytes;
      bytes.append(chunk.data(), static_cast<std::size_t>(count));
    }
    return bytes;
  }
  [[nodiscard]] std::string read_all() const {
    return read_until([](std::string const&) { return false; });
  }
  [[nodiscard]] bool closed_within(std::chrono::milliseconds patience) const {
    char byte;
    pollfd entry{socket_, POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(patience.count())) > 0 && ::recv(socket_, &byte, 1, 0) <= 0;
  }

private:
  int socket_;
  bool connected_ = false;
};

struct Response {
  int status = 0;  ///< 0: no answer
  std::string head, body;
  [[nodiscard]] bool has(std::string_view header) const { return head.find(header) != std::string::npos; }
};

[[nodiscard]] inline Response parse_response(std::string const& text) {
  Response response;
  const auto end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return response;
  response.status = std::atoi(text.substr(9, 3).c_str());
  response.head = text.substr(0, end + 2);
  response.body = text.substr(end + 4);
  return response;
}

/// A body that came in chunks, as one; what is no chunk ends it.
[[nodiscard]] inline std::string without_chunks(std::string_view body) {
  std::string whole;
  while (!body.empty()) {
    const auto line = body.find("\r\n");
    if (line == std::string_view::npos) return whole;
    const auto size = std::strtoul(std::string{body.substr(0, line)}.c_str(), nullptr, 16);
    if (size == 0 || line + 2 + size + 2 > body.size()) return whole;
    whole += body.substr(line + 2, size);
    body.remove_prefix(line + 2 + size + 2);
  }
  return whole;
}

[[nodiscard]] inline Response ask(std::uint16_t port, std::string const& request, bool ipv6 = false) {
  const Client client{port, ipv6};
  if (!client.connected() || !client.say(request)) return {};
  return parse_response(client.read_all());
}

[[nodiscard]] inline Response get(std::uint16_t port, std::string const& path, std::string const& headers = {}, bool ipv6 = false,
                                  std::string const& method = "GET") {
  return ask(port, method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n", ipv6);
}

}  // namespace headroom::test
