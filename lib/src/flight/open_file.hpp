// A file that somebody else may change: held open for as long as a scope lasts, and read without being mapped. A read of a file that
// was cut off comes back short, where a mapping would end the program with SIGBUS.
//
// Thread safety: none needed, plain system calls. Cost: theirs.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <unistd.h>

namespace headroom::flight {

/// Closes on every way out until somebody takes it.
class Descriptor {
public:
  explicit Descriptor(int fd) noexcept : fd_{fd} {}
  Descriptor(Descriptor const&) = delete;
  Descriptor& operator=(Descriptor const&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int take() noexcept { return std::exchange(fd_, -1); }

private:
  int fd_;
};

/// All of `into` from byte `at` on; false with errno, or with errno 0 when the file ends before.
[[nodiscard]] inline bool read_at(int fd, std::uint64_t at, std::span<std::byte> into) noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    auto const got = ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(at + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      errno = 0;
      return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace headroom::flight
