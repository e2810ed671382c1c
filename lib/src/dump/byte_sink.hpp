// Where the bytes of a post-mortem go: a descriptor, or what a test puts in its place.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

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

/// Goes on after interruptions and half writes. The descriptor stays its owner's.
class DescriptorSink final : public ByteSink {
public:
  explicit DescriptorSink(int descriptor) noexcept : descriptor_{descriptor} {}
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      if (written == 0) return EIO;  // POSIX leaves it open for files that are not regular: it would go on for ever
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return 0;
  }

private:
  int descriptor_;
};

}  // namespace headroom::dump
