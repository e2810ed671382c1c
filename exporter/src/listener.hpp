// headroom: a listening socket.
//
// Our own and not cpp-httplib's: its default options set SO_REUSEPORT, with which a second bind of a taken port succeeds in
// silence, and it offers neither both address families on one socket nor close-on-exec.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <headroom/error.hpp>

#include "listen_address.hpp"

namespace headroom::exporter {

/// Owns a file descriptor.
class FileDescriptor {
public:
  explicit FileDescriptor(int fd = -1) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  void reset() noexcept;
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

private:
  int fd_;
};

struct Listener {
  FileDescriptor socket;    ///< listening, non-blocking, closed on exec
  ListenAddress bound;      ///< what was really bound: numeric host, real port
  bool serves_all = false;  ///< a wildcard address
};

struct ListenFailure {
  int code = 0;  ///< errno; 0: the host is unknown
  std::string message;
  [[nodiscard]] bool is_taken() const noexcept;
};

/// Binds and listens. A host with several addresses takes the first that works; all addresses are one IPv6 socket that takes IPv4
/// too, or an IPv4 socket where there is no IPv6.
[[nodiscard]] tl::expected<Listener, ListenFailure> open_listener(ListenAddress const& address);

}  // namespace headroom::exporter
