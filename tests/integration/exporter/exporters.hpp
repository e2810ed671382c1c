// Exporters for tests, on ports that nobody else has.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <headroom/exporter.hpp>

namespace headroom::test {

[[nodiscard]] inline std::string loopback(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

[[nodiscard]] inline Exporter start_on(std::uint16_t port) {
  return Exporter::start({.listen = loopback(port), .policy = BindPolicy::fail}).value();
}
[[nodiscard]] inline Exporter start_anywhere() { return start_on(0); }

/// A port of the loopback address that the system gives to no other process while this lives. It does not listen, so that an exporter
/// may, one after the other; while none does, connections are refused.
class HeldPort {
public:
  HeldPort() : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        ::bind(socket_, reinterpret_cast<sockaddr const*>(&address), size) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error{"no port to be had"};
    }
    port_ = ntohs(address.sin_port);
  }
  HeldPort(HeldPort const&) = delete;
  HeldPort& operator=(HeldPort const&) = delete;
  ~HeldPort() { ::close(socket_); }
  [[nodiscard]] std::uint16_t number() const noexcept { return port_; }

private:
  int socket_;
  std::uint16_t port_ = 0;
};

}  // namespace headroom::test
