// Strict JSON, written as it comes through a small buffer that somebody else owns. Nothing here allocates, throws or waits.
//
// * Whole numbers above 2^53 are strings of digits: a reader that keeps numbers as doubles would change them in silence.
// * Addresses are strings of hexadecimal digits.
// * Texts are any bytes. A byte that is no part of valid UTF-8 becomes the four characters \xHH, and so that this can be undone, a
//   backslash that stands before `x` and two hexadecimal digits already is written as \x5c. (As JSON that backslash is doubled.)
// * There are no fractions but Microseconds, which have three digits of them, so no NaN and no infinity.
//
// Containers are tall, each value on a line of its own, or flat, on one line: dumps are compared line by line.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "dump/byte_sink.hpp"

namespace headroom::dump {

inline constexpr std::uint64_t kLargestNumber = std::uint64_t{1} << 53;

/// An address or another word of which the digits count, not the sum.
struct Hex {
  std::uint64_t value = 0;
};

/// A time or duration that is written in microseconds: 1500 is 1.500.
struct Microseconds {
  std::uint64_t ns = 0;
};

class JsonStream {
public:
  enum class Shape : std::uint8_t { tall, flat };

  /// `buffer` has room for 1 KiB at least.
  JsonStream(ByteSink& sink, std::span<char> buffer) noexcept : sink_{sink}, buffer_{buffer} {}
  JsonStream(JsonStream const&) = delete;
  JsonStream& operator=(JsonStream const&) = delete;

  void begin_object(Shape shape = Shape::tall) noexcept { begin('{', shape); }
  void end_object() noexcept { end('}'); }
  void begin_array(Shape shape = Shape::tall) noexcept { begin('[', shape); }
  void end_array() noexcept { end(']'); }
  void begin_object(std::string_view name, Shape shape = Shape::tall) noexcept { key(name), begin('{', shape); }
  void begin_array(std::string_view name, Shape shape = Shape::tall) noexcept { key(name), begin('[', shape); }

  /// A name of our own: letters and underscores.
  void key(std::string_view name) noexcept;

  template <std::unsigned_integral T>
  void value(T number) noexcept {
    separate();
    put_number(number);
  }
  template <std::signed_integral T>
  void value(T number) noexcept {
    separate();
    put_signed(number);
  }
  void value(bool flag) noexcept { separate(), put(flag ? std::string_view{"true"} : std::string_view{"false"}); }
  void value(Hex word) noexcept;
  void value(Microseconds time) noexcept;
  void value(std::nullptr_t /*null*/) noexcept { separate(), put("null"); }
  /// Bytes from outside, escaped.
  void value(std::string_view text) noexcept;
  void value(char const* text) noexcept { value(std::string_view{text}); }
  template <class T>
  void value(std::optional<T> const& maybe) noexcept {
    maybe ? value(*maybe) : value(nullptr);
  }
  /// A word of our own, which needs no escape.
  void word(std::string_view text) noexcept;

  template <class T>
  void member(std::string_view name, T const& content) noexcept {
    key(name);
    value(content);
  }
  void member_word(std::string_view name, std::string_view content) noexcept { key(name), word(content); }
  /// A thing unknown is absent, not zero.
  template <class T>
  void member_if(std::string_view name, std::optional<T> const& content) noexcept {
    if (content) member(name, *content);
  }
  void member_if_text(std::string_view name, std::string_view content) noexcept {
    if (!content.empty()) member(name, content);
  }

  /// A flat array of at most 17 numbers and words of at most 24 characters, written without asking for room at each: dumps have
  /// 200,000 of them. Nothing else is written while one lives.
  class Row {
  public:
    explicit Row(JsonStream& json) noexcept : json_{json}, at_{json.begin_row(kRowBytes)} {}
    ~Row() {
      at_[-1] = ']';  // in the place of the last comma
      json_.used_ = static_cast<std::size_t>(at_ - json_.buffer_.data());
    }
    Row(Row const&) = delete;
    Row& operator=(Row const&) = delete;

    void number(std::uint64_t value) noexcept {
      at_ = put_digits(at_, value);
      *at_++ = ',';
    }
    void hex(std::uint64_t value) noexcept {
      at_ = put_hex(at_, value);
      *at_++ = ',';
    }
    void word(std::string_view text) noexcept {
      *at_++ = '"';
      at_ = std::ranges::copy(text, at_).out;
      *at_++ = '"';
      *at_++ = ',';
    }
    void null() noexcept {
      for (const char c : {'n', 'u', 'l', 'l', ','}) *at_++ = c;
    }

  private:
    static constexpr std::size_t kRowBytes = 512;
    JsonStream& json_;
    char* at_;
  };

  /// Everything to the sink. The error number of the first failed write, or 0.
  [[nodiscard]] int finish() noexcept;
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return flushed_ + used_; }

private:
  static constexpr std::size_t kDepth = 16;  // dumps are 7 deep
  struct Level {
    Shape shape = Shape::tall;
    bool empty = true;
  };

  void begin(char bracket, Shape shape) noexcept;
  void end(char bracket) noexcept;
  void separate() noexcept;
  void line() noexcept;
  void flush() noexcept;
  void put_escaped(std::string_view text) noexcept;
  void put_long(std::string_view text) noexcept;

  void put(char byte) noexcept {
    if (used_ == buffer_.size()) flush();
    buffer_[used_++] = byte;
  }
  void put(std::string_view text) noexcept {
    if (buffer_.size() - used_ < text.size()) return put_long(text);
    std::memcpy(buffer_.data() + used_, text.data(), text.size());
    used_ += text.size();
  }
  void room_for(std::size_t bytes) noexcept {
    if (buffer_.size() - used_ < bytes) flush();
  }
  /// Where the row's first value goes.
  char* begin_row(std::size_t bytes) noexcept {
    separate();
    room_for(bytes);
    buffer_[used_] = '[';
    return buffer_.data() + used_ + 1;
  }
  void put_number(std::uint64_t number) noexcept {
    room_for(24);
    used_ = static_cast<std::size_t>(put_digits(buffer_.data() + used_, number) - buffer_.data());
  }
  /// At most 22 characters; where the next one goes.
  static char* put_digits(char* at, std::uint64_t number) noexcept {
    const bool quoted = number > kLargestNumber;
    if (quoted) *at++ = '"';
    at = std::to_chars(at, at + 20, number).ptr;
    if (quoted) *at++ = '"';
    return at;
  }
  /// At most 20 characters.
  static char* put_hex(char* at, std::uint64_t number) noexcept {
    constexpr char kDigits[] = "0123456789abcdef";
    *at++ = '"';
    *at++ = '0';
    *at++ = 'x';
    for (int shift = (63 - std::countl_zero(number | 1U)) / 4 * 4; shift >= 0; shift -= 4)
      *at++ = kDigits[(number >> shift) & 15U];
    *at++ = '"';
    return at;
  }
  void put_signed(std::int64_t number) noexcept;

  ByteSink& sink_;
  std::span<char> buffer_;
  std::size_t used_ = 0;
  std::uint64_t flushed_ = 0;
  std::array<Level, kDepth> levels_{};
  std::size_t depth_ = 0;
  bool after_key_ = false;
  int error_ = 0;
};

}  // namespace headroom::dump
