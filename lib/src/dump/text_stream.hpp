// Plain text through a buffer of fixed size to a sink. After an error everything goes nowhere, as in JsonStream. Thread safety: none.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dump/byte_sink.hpp"

namespace headroom::dump {

class TextStream {
public:
  explicit TextStream(ByteSink& sink) : sink_{sink}, buffer_(kBufferBytes) {}
  TextStream(TextStream const&) = delete;
  TextStream& operator=(TextStream const&) = delete;

  void put(std::string_view text) noexcept {
    while (!text.empty()) {
      if (used_ == buffer_.size()) flush();
      auto const taken = text.copy(buffer_.data() + used_, buffer_.size() - used_);
      used_ += taken;
      text.remove_prefix(taken);
    }
  }
  void number(std::uint64_t value) noexcept {
    char digits[20];
    put({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  /// Everything to the sink. The error number of the first failed write, or 0.
  [[nodiscard]] int finish() noexcept {
    flush();
    return error_;
  }
  [[nodiscard]] int error() const noexcept { return error_; }

private:
  static constexpr std::size_t kBufferBytes = std::size_t{64} << 10U;

  void flush() noexcept {
    if (error_ == 0 && used_ != 0) error_ = sink_.write(std::span<char const>{buffer_}.first(used_));
    used_ = 0;
  }

  ByteSink& sink_;
  std::vector<char> buffer_;
  std::size_t used_ = 0;
  int error_ = 0;
};

}  // namespace headroom::dump
