#include "dump/json_stream.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace headroom::dump {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

constexpr bool is_hex_digit(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// What a reader would take for one of our own escapes.
constexpr bool looks_like_escape(std::string_view text) noexcept {
  return text.size() >= 4 && text[0] == '\\' && text[1] == 'x' && is_hex_digit(text[2]) && is_hex_digit(text[3]);
}

/// Goes into a string as it is.
constexpr bool is_plain(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

}  // namespace

void JsonStream::begin(char bracket, Shape shape) noexcept {
  separate();
  put(bracket);
  if (depth_ + 1 < kDepth) ++depth_;
  levels_[depth_] = {.shape = shape, .empty = true};
}

void JsonStream::end(char bracket) noexcept {
  const Level closed = levels_[depth_];
  if (depth_ > 0) --depth_;
  if (closed.shape == Shape::tall && !closed.empty) line();
  put(bracket);
}

// Before every value and key: a comma after the one before, and its own line in a tall container.
void JsonStream::separate() noexcept {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  Level& level = levels_[depth_];
  if (!level.empty) put(',');
  if (depth_ > 0 && level.shape == Shape::tall) line();
  level.empty = false;
}

void JsonStream::line() noexcept {
  room_for(kDepth + 1);
  buffer_[used_++] = '\n';
  for (std::size_t i = 0; i < depth_; ++i) buffer_[used_++] = ' ';
}

void JsonStream::key(std::string_view name) noexcept {
  separate();
  put('"');
  put(name);
  put("\":");
  after_key_ = true;
}

void JsonStream::value(Microseconds time) noexcept {
  separate();
  room_for(32);
  char* at = buffer_.data() + used_;
  at = std::to_chars(at, at + 20, time.ns / 1000).ptr;
  const auto rest = time.ns % 1000;
  *at++ = '.';
  *at++ = static_cast<char>('0' + rest / 100);
  *at++ = static_cast<char>('0' + rest / 10 % 10);
  *at++ = static_cast<char>('0' + rest % 10);
  used_ = static_cast<std::size_t>(at - buffer_.data());
}

void JsonStream::value(Hex word) noexcept {
  separate();
  room_for(24);
  used_ = static_cast<std::size_t>(put_hex(buffer_.data() + used_, word.value) - buffer_.data());
}

void JsonStream::word(std::string_view text) noexcept {
  separate();
  put('"');
  put(text);
  put('"');
}

void JsonStream::value(std::string_view text) noexcept {
  separate();
  put('"');
  put_escaped(text);
  put('"');
}

void JsonStream::put_escaped(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
    put(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) return;
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    std::size_t taken = 1;
    if (c == '"') {
      put("\\\"");
    } else if (c == '\\') {
      put(looks_like_escape(text) ? std::string_view{"\\\\x5c"} : std::string_view{"\\\\"});
    } else if (byte < 0x20) {
      put("\\u00");
      put(kDigits[byte >> 4]);
      put(kDigits[byte & 15U]);
    } else if (const std::size_t length = utf8_character_length(text); length != 0) {
      put(text.substr(0, length));
      taken = length;
    } else {
      put("\\\\x");
      put(kDigits[byte >> 4]);
      put(kDigits[byte & 15U]);
    }
    text.remove_prefix(taken);
  }
}

void JsonStream::put_signed(std::int64_t number) noexcept {
  if (number >= 0) return put_number(static_cast<std::uint64_t>(number));
  room_for(24);
  char* at = buffer_.data() + used_;
  const bool quoted = number < -static_cast<std::int64_t>(kLargestNumber);
  if (quoted) *at++ = '"';
  at = std::to_chars(at, at + 20, number).ptr;
  if (quoted) *at++ = '"';
  used_ = static_cast<std::size_t>(at - buffer_.data());
}

void JsonStream::put_long(std::string_view text) noexcept {
  while (!text.empty()) {
    if (used_ == buffer_.size()) flush();
    const std::string_view piece = text.substr(0, buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, piece.data(), piece.size());
    used_ += piece.size();
    text.remove_prefix(piece.size());
  }
}

// After an error everything goes nowhere: whoever writes on need not ask at every value.
void JsonStream::flush() noexcept {
  if (error_ == 0) error_ = sink_.write(buffer_.first(used_));
  flushed_ += used_;
  used_ = 0;
}

int JsonStream::finish() noexcept {
  put('\n');
  flush();
  return error_;
}

}  // namespace headroom::dump
