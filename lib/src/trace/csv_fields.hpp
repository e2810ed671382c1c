// headroom: the columns of RMM's CSV log, one function each.
//
// Every take_… function reads a value at `text`, moves `text` behind it and returns true; it returns false, with `text` anywhere
// within the column, when there is none. What follows the value is the caller's to check. None reads beyond the first byte that
// cannot belong to its value, so that the '\n' of the line is their only bound.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include <headroom/trace.hpp>

#include "base/checked.hpp"

namespace headroom::trace {

[[nodiscard]] inline bool take_decimal(char const*& text, std::uint64_t& value) noexcept {
  auto const digit_at = [](char const* p) { return static_cast<unsigned>(static_cast<unsigned char>(*p)) - '0'; };
  auto digit = digit_at(text);
  if (digit > 9) return false;
  auto const* const first = text;
  std::uint64_t sum = 0;
  do {
    sum = sum * 10 + digit;
    digit = digit_at(++text);
  } while (digit <= 9);
  // 19 digits cannot have wrapped. More are rare enough to be read again with care (zeros in front are legal).
  if (text - first > 19) [[unlikely]] {
    sum = 0;
    for (auto const* p = first; p != text; ++p) {
      auto const tenfold = checked_mul(sum, 10);
      auto const next = tenfold ? checked_add(*tenfold, digit_at(p)) : std::nullopt;
      if (!next) return false;
      sum = *next;
    }
  }
  value = sum;
  return true;
}

/// The value of a hexadecimal digit, 16 for every other byte.
[[nodiscard]] inline unsigned hex_digit(char c) noexcept {
  auto const byte = static_cast<unsigned>(static_cast<unsigned char>(c));
  if (byte - '0' <= 9) return byte - '0';
  auto const letter = (byte | 0x20U) - 'a';
  return letter < 6 ? letter + 10 : 16;
}

/// What follows "0x".
[[nodiscard]] inline bool take_hex_digits(char const*& text, std::uint64_t& value) noexcept {
  auto digit = hex_digit(*text);
  if (digit > 15) return false;
  std::uint64_t sum = 0;
  do {
    if ((sum >> 60U) != 0) return false;
    sum = sum << 4U | digit;
    digit = hex_digit(*++text);
  } while (digit <= 15);
  value = sum;
  return true;
}

[[nodiscard]] inline bool take_hex_prefix(char const*& text) noexcept {
  if (text[0] != '0' || (text[1] | 0x20) != 'x') return false;
  text += 2;
  return true;
}

[[nodiscard]] inline bool take_word(char const*& text, std::string_view word) noexcept {
  // Reads up to the longest word behind the line's end: kReadableSlack.
  if (std::memcmp(text, word.data(), word.size()) != 0) return false;
  text += word.size();
  return true;
}

[[nodiscard]] inline bool take_thread(char const*& text, std::uint64_t& value) noexcept {
  return take_hex_prefix(text) ? take_hex_digits(text, value) : take_decimal(text, value);
}

/// 0x…, (nil), or a bare 0, which is how C++ streams print a null pointer.
[[nodiscard]] inline bool take_pointer(char const*& text, std::uint64_t& value) noexcept {
  if (take_hex_prefix(text)) [[likely]]
    return take_hex_digits(text, value);
  value = 0;
  return take_word(text, "(nil)") || take_word(text, "0");
}

[[nodiscard]] inline bool take_stream(char const*& text, std::uint64_t& value) noexcept {
  value = 0;
  return take_word(text, "(nil)") || take_thread(text, value);
}

[[nodiscard]] inline bool take_action(char const*& text, TraceEvent::Action& action) noexcept {
  // The longest first: "allocate" begins "allocate failure" too, and the byte behind it is the caller's to judge.
  if (take_word(text, "allocate failure")) {
    action = TraceEvent::Action::allocate_failure;
  } else if (take_word(text, "allocate")) {
    action = TraceEvent::Action::allocate;
  } else if (take_word(text, "free")) {
    action = TraceEvent::Action::free;
  } else {
    return false;
  }
  return true;
}

/// `hours` and its digits are behind us, `text` is at the colon: :MM:SS.micro or :MM:SS:micro.
[[nodiscard]] inline bool take_rest_of_time_of_day(char const*& text, std::uint64_t hours, std::uint64_t& time_us) noexcept {
  std::uint64_t minutes = 0;
  std::uint64_t seconds = 0;
  if (hours > 23 || !take_word(text, ":") || !take_decimal(text, minutes) || minutes > 59) return false;
  if (!take_word(text, ":") || !take_decimal(text, seconds) || seconds > 60) return false;  // 60: a leap second
  auto const is_fraction = *text == '.';
  if (!is_fraction && *text != ':') return false;
  auto const* const first = ++text;
  std::uint64_t micros = 0;
  if (!take_decimal(text, micros)) return false;
  auto digits = text - first;
  if (digits > 6) return false;
  // Behind a point stands a fraction of a second (.5 is half of one), behind a colon a number of microseconds.
  for (; is_fraction && digits < 6; ++digits) micros *= 10;
  time_us = ((hours * 60 + minutes) * 60 + seconds) * 1'000'000 + micros;
  return true;
}

[[nodiscard]] inline bool take_time(char const*& text, std::uint64_t& time_us, bool& is_time_of_day) noexcept {
  if (!take_decimal(text, time_us)) return false;
  is_time_of_day = *text == ':';
  return !is_time_of_day || take_rest_of_time_of_day(text, time_us, time_us);
}

}  // namespace headroom::trace
