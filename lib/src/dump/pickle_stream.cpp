#include "dump/pickle_stream.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/utf8.hpp"

namespace headroom::dump {
namespace {

// The opcodes of Python's pickletools, by their names there.
constexpr char kProto = '\x80', kMark = '(', kStop = '.', kMemoize = '\x94', kBinget = 'h', kLongBinget = 'j';
constexpr char kShortBinunicode = '\x8c', kBinunicode = 'X', kTuple2 = '\x86';
constexpr char kBinint1 = 'K', kBinint2 = 'M', kBinint = 'J', kLong1 = '\x8a', kBinfloat = 'G';
constexpr char kSetitems = 'u';
constexpr char kEmptyDict = '}';

constexpr bool is_hex_digit(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// What dump::unescaped() would take for an escape.
constexpr bool looks_like_escape(std::string_view text) noexcept {
  return text.size() >= 4 && text[0] == '\\' && text[1] == 'x' && is_hex_digit(text[2]) && is_hex_digit(text[3]);
}

void append_escape(std::string& text, char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  auto const bits = static_cast<unsigned char>(byte);
  text += "\\x";
  text += kDigits[bits >> 4U];
  text += kDigits[bits & 15U];
}

/// Bytes at the start that a pickle takes as they are.
std::size_t plain_length(std::string_view text) noexcept {
  std::size_t length = 0;
  while (length < text.size() && !looks_like_escape(text.substr(length))) {
    std::size_t const character = utf8_character_length(text.substr(length));
    if (character == 0) break;
    length += character;
  }
  return length;
}

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t const plain = plain_length(text);
    result += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    append_escape(result, text.front());
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace

PickleStream::PickleStream(ByteSink& sink, std::span<char> buffer) noexcept : sink_{sink}, buffer_{buffer} {
  put(kProto);
  put('\x04');
}

void PickleStream::begin(char opcode) noexcept {
  item();
  put(opcode);
  if (depth_ + 1 < kDepth) ++depth_;
  levels_[depth_] = {.keyed = opcode == kEmptyDict, .batch = 0};
}

void PickleStream::end(char opcode) noexcept {
  if (levels_[depth_].batch != 0) put(opcode);
  if (depth_ > 0) --depth_;
}

// Before every value: the mark that it is filled in from. In a dict the key has brought it.
void PickleStream::item() noexcept {
  if (depth_ > 0 && !levels_[depth_].keyed) count_item(levels_[depth_]);
}

void PickleStream::count_item(Level& level) noexcept {
  if (level.batch == kBatch) {
    put(level.keyed ? kSetitems : 'e');
    level.batch = 0;
  }
  if (level.batch == 0) put(kMark);
  ++level.batch;
}

void PickleStream::key(std::string_view name) {
  count_item(levels_[depth_]);
  put_text(name);
}

void PickleStream::value(std::string_view text) {
  item();
  put_text(text);
}

void PickleStream::value(double number) noexcept {
  item();
  put(kBinfloat);
  auto const bits = std::bit_cast<std::uint64_t>(number);
  for (unsigned shift = 64; shift != 0;) put(static_cast<char>(bits >> (shift -= 8)));  // the only number that is big-endian
}

void PickleStream::pair(std::uint64_t first, std::uint64_t second) noexcept {
  item();
  put_number(first);
  put_number(second);
  put(kTuple2);
}

void PickleStream::put_text(std::string_view text) {
  if (auto const found = memo_.find(text); found != memo_.end()) {
    auto const number = found->second;
    put(number < 256 ? kBinget : kLongBinget);
    return put_little_endian(number, number < 256 ? 1 : 4);
  }
  if (plain_length(text) == text.size()) {
    put_plain_text(text);
  } else {
    put_plain_text(escaped(text));
  }
  if (memo_.size() == kMostTexts || text.size() > kMostTextBytes - memo_bytes_) return;
  memo_.emplace(text, static_cast<std::uint32_t>(memo_.size()));
  memo_bytes_ += text.size();
  put(kMemoize);
}

void PickleStream::put_plain_text(std::string_view text) noexcept {
  bool const is_short = text.size() < 256;
  put(is_short ? kShortBinunicode : kBinunicode);
  put_little_endian(text.size(), is_short ? 1 : 4);
  put(text);
}

void PickleStream::put_number(std::uint64_t number) noexcept {
  if (number < 0x100) {
    put(kBinint1);
    put_little_endian(number, 1);
  } else if (number < 0x1'0000) {
    put(kBinint2);
    put_little_endian(number, 2);
  } else if (number < 0x8000'0000) {
    put(kBinint);
    put_little_endian(number, 4);
  } else {
    // Two's complement of as few bytes as show that it is positive: nine where bit 63 is set.
    std::size_t const bytes = static_cast<std::size_t>(std::bit_width(number)) / 8 + 1;
    put(kLong1);
    put(static_cast<char>(bytes));
    put_little_endian(number, std::min<std::size_t>(bytes, 8));
    if (bytes == 9) put('\0');
  }
}

void PickleStream::put_signed(std::int64_t number) noexcept {
  if (number >= 0) return put_number(static_cast<std::uint64_t>(number));
  auto const bits = static_cast<std::uint64_t>(number);
  if (number >= INT32_MIN) {
    put(kBinint);
    return put_little_endian(bits, 4);
  }
  std::size_t const bytes = static_cast<std::size_t>(std::bit_width(~bits)) / 8 + 1;
  put(kLong1);
  put(static_cast<char>(bytes));
  put_little_endian(bits, bytes);
}

void PickleStream::put_little_endian(std::uint64_t number, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) put(static_cast<char>(number >> (8 * i)));
}

void PickleStream::put(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    if (used_ == buffer_.size()) flush();
    std::string_view const piece = bytes.substr(0, buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, piece.data(), piece.size());
    used_ += piece.size();
    bytes.remove_prefix(piece.size());
  }
}

// After an error everything goes nowhere: whoever writes on need not ask at every value.
void PickleStream::flush() noexcept {
  if (error_ == 0) error_ = sink_.write(buffer_.first(used_));
  flushed_ += used_;
  used_ = 0;
}

int PickleStream::finish() noexcept {
  put(kStop);
  flush();
  return error_;
}

}  // namespace headroom::dump
