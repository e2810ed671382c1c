#include "listener.hpp"

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace headroom::exporter {
namespace {

constexpr int kBacklog = 128;

struct Addresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list{nullptr, &freeaddrinfo};
  std::string error;
};

Addresses resolve(std::string const& host, std::uint16_t port, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  Addresses addresses;
  addresses.list.reset(code == 0 ? found : nullptr);
  if (code != 0) addresses.error = gai_strerror(code);
  return addresses;
}

void set_option(int socket, int level, int option, int value) {
  // What cannot be set shows in what bind() says.
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

/// Host and port as the kernel bound them.
ListenAddress bound_address(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "0";
  if (getsockname(socket, address, &length) == 0) {
    (void)getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  }
  return {host, static_cast<std::uint16_t>(std::stoul(port))};
}

/// 0, or errno.
int listen_on(addrinfo const& info, bool both_families, Listener& listener) {
  FileDescriptor socket{::socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info.ai_protocol)};
  if (socket.get() < 0) return errno;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // or a restart would wait for connections in TIME_WAIT
  if (info.ai_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  if (bind(socket.get(), info.ai_addr, info.ai_addrlen) != 0) return errno;
  // Another socket may be bound and not yet listening: then it is listen() that finds the port taken.
  if (listen(socket.get(), kBacklog) != 0) return errno;
  listener.bound = bound_address(socket.get());
  listener.serves_all = listener.bound.host == "::" || listener.bound.host == "0.0.0.0";
  listener.socket = std::move(socket);
  return 0;
}

}  // namespace

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void FileDescriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool ListenFailure::is_taken() const noexcept { return code == EADDRINUSE; }

tl::expected<Listener, ListenFailure> open_listener(ListenAddress const& address) {
  const auto text = [&address] { return "cannot listen on '" + address.to_string() + "': "; };
  int code = EAFNOSUPPORT;
  std::string resolver_error;
  bool found_any = false;
  for (const int family : {AF_INET6, AF_INET}) {
    const bool all = address.host.empty();
    // A named host is resolved once, in the order that the resolver prefers; only "all addresses" tries IPv6 first.
    const auto addresses = resolve(address.host, address.port, all ? family : AF_UNSPEC);
    if (!addresses.list) resolver_error = addresses.error;
    for (const addrinfo* info = addresses.list.get(); info != nullptr; info = info->ai_next) {
      found_any = true;
      Listener listener;
      code = listen_on(*info, all, listener);
      if (code == 0) return listener;
    }
    if (!all || code == EADDRINUSE) break;  // a port taken on IPv6 must not be half served on IPv4
  }
  if (!found_any) return tl::unexpected(ListenFailure{0, text() + resolver_error});
  return tl::unexpected(ListenFailure{code, text() + std::generic_category().message(code)});
}

}  // namespace headroom::exporter
