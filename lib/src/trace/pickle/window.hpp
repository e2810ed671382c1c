// A window over a byte source, for a reader that asks for so many bytes in one piece. It is as large as one read, and grows where a
// long text needs more; never beyond kMaxPiece and one read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "trace/byte_source.hpp"
#include "trace/pickle/limits.hpp"

namespace headroom::trace::pickle {

class Window {
public:
  /// The most that has() may be asked for: a text with its opcode and length.
  static constexpr std::size_t kMaxPiece = kMaxTextBytes + 16;

  explicit Window(ByteSource& source)
      : source_{&source}, buffer_{std::make_unique_for_overwrite<char[]>(kReadBytes)}, next_{buffer_.get()}, filled_{next_} {}

  /// Whether `count` bytes lie at data(). False: the source ends before, or failed: error(). What data() showed before is gone.
  [[nodiscard]] bool has(std::size_t count) { return available() >= count || fill(count); }
  [[nodiscard]] char const* data() const noexcept { return next_; }
  [[nodiscard]] std::size_t available() const noexcept { return static_cast<std::size_t>(filled_ - next_); }
  /// At most available() bytes; they stay where they are until the next has().
  void consume(std::size_t count) noexcept { next_ += count; }

  /// Of data() in the whole.
  [[nodiscard]] std::uint64_t offset() const noexcept { return read_ - available(); }
  [[nodiscard]] std::optional<Error> const& error() const noexcept { return error_; }

private:
  /// A read is no larger: the bytes are consumed while they are in the second-level cache.
  static constexpr std::size_t kReadBytes = std::size_t{128} * 1024;

  [[nodiscard]] bool fill(std::size_t count);

  ByteSource* source_;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = kReadBytes;
  char* next_;    // first byte not consumed
  char* filled_;  // behind the last byte read
  std::uint64_t read_ = 0;
  std::optional<Error> error_;
  bool over_ = false;
};

}  // namespace headroom::trace::pickle
