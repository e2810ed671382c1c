// Where the bytes of a post-mortem go: a descriptor, or what a test puts in its place.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include <poll.h>
#include <unistd.h>

namespace headroom::dump {

class ByteSink {
public:
  ByteSink() = default;
  ByteSink(ByteSink const&) = delete;
  ByteSink& operator=(ByteSink const&) = delete;
  /// All of it, or an error number (of errno.h): then nothing more is asked.
  [[nodiscard]] virtual int write(std::span<char const> bytes) noexcept = 0;

protected:
  ~ByteSink() = default;
};

/// Goes on after interruptions and half writes, and waits where there is no room yet. The descriptor stays its owner's.
class DescriptorSink final : public ByteSink {
public:
  explicit DescriptorSink(int descriptor) noexcept : descriptor_{descriptor} {}
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && waits_for_room()) continue;
      if (written < 0) return errno;
      if (written == 0) return EIO;  // POSIX leaves it open for files that are not regular: it would go on for ever
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return 0;
  }

private:
  /// Of a descriptor that is not to block, such as a terminal that another program left so. What is wrong with it, write() says.
  [[nodiscard]] bool waits_for_room() const noexcept {
    pollfd waiting{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    return poll(&waiting, 1, -1) >= 0 || errno == EINTR;
  }

  int descriptor_;
};

}  // namespace headroom::dump
