#include "trace/pickle/decoder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"
#include "base/quoted.hpp"

namespace headroom::trace::pickle {
namespace {

constexpr std::size_t kMaxQuotedBytes = 60;
constexpr std::string_view kOnlyPlain = "; expected plain dicts, lists, strings and numbers: nothing in a snapshot is executed";

inline std::uint64_t little_endian(char const* from, std::size_t bytes) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i) number |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  return number;
}

std::string in_hexadecimal(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte >> 4U], kDigits[byte & 0xFU]};
}

std::string more_bytes(std::uint64_t count) { return std::to_string(count) + (count == 1 ? " more byte" : " more bytes"); }

}  // namespace

bool Decoder::refuse(std::uint64_t offset, std::string const& what) {
  error_ = make_error(ErrorKind::parse, Layer::request, name_ + ": byte " + std::to_string(offset) + ": " + what);
  return false;
}

bool Decoder::cut_short(Instruction const& in, std::size_t needed) {
  if (window_.error()) {
    error_ = *window_.error();
    return false;
  }
  auto const end = window_.offset() + window_.available();
  return refuse(in.offset, std::string{traits_of(in.opcode).name} + " is cut short at byte " + std::to_string(end) +
                               "; expected " + more_bytes(needed - window_.available()));
}

bool Decoder::begin() {
  begun_ = true;
  if (!window_.has(1)) {
    if (window_.error()) {
      error_ = *window_.error();
      return false;
    }
    return refuse(0, "the pickle is empty; expected PROTO (0x80)");
  }
  auto const first = static_cast<std::uint8_t>(window_.data()[0]);
  if (first == static_cast<std::uint8_t>(Opcode::proto)) return true;
  return refuse(0, in_hexadecimal(first) + "; expected PROTO (0x80), which begins a pickle of protocol 2 or above");
}

bool Decoder::next(Instruction& in) {
  if (!window_.has(1) || !begun_ || window_.offset() >= kMaxBytes) [[unlikely]] {
    if (!can_go_on(in)) return false;
  }
  in.offset = window_.offset();
  auto const byte = static_cast<std::uint8_t>(window_.data()[0]);
  in.opcode = static_cast<Opcode>(byte);
  auto const& traits = opcode_table[byte];
  switch (traits.argument) {
    case Argument::none: window_.consume(1); return true;
    case Argument::unsigned1: return take_unsigned<1>(in);
    case Argument::unsigned2: return take_unsigned<2>(in);
    case Argument::unsigned4: return take_unsigned<4>(in);
    case Argument::signed4: return take_signed(in);
    case Argument::real8: return take_real(in);
    case Argument::integer1: return take_integer<1>(in);
    case Argument::integer4: return take_integer<4>(in);
    case Argument::text1: return take_text<1>(in);
    case Argument::text4: return take_text<4>(in);
    case Argument::text4_signed: return is_length(in) && take_text<4>(in);
    case Argument::text8: return take_text<8>(in);
    case Argument::version: return take_version(in);
    case Argument::frame_length: return take_frame(in);
    case Argument::unknown:
    case Argument::refused:
    case Argument::refused_with_line:
    case Argument::refused_with_two_lines:
    case Argument::old: break;
  }
  return refuse_opcode(in, traits);
}

/// What next() asks for seldom: at the beginning and at an end.
bool Decoder::can_go_on(Instruction& in) {
  if (!begun_ && !begin()) return false;
  in.offset = window_.offset();
  if (in.offset >= kMaxBytes) return refuse(in.offset, "a pickle without end; expected at most 2^48 bytes");
  if (window_.has(1)) return true;
  if (window_.error()) {
    error_ = *window_.error();
    return false;
  }
  return refuse(in.offset, "the pickle is cut short at byte " + std::to_string(in.offset) + "; expected an opcode, at last STOP");
}

bool Decoder::take_version(Instruction& in) {
  if (in.offset != 0) return refuse(in.offset, "PROTO again; expected it once, at the beginning");
  if (!take_unsigned<1>(in)) return false;
  if (in.number >= 2 && in.number <= 5) return true;
  return refuse(in.offset, "PROTO " + std::to_string(in.number) + "; expected protocol 2 to 5");
}

template <std::size_t Bytes>
bool Decoder::take_unsigned(Instruction& in) {
  if (!window_.has(1 + Bytes)) return cut_short(in, 1 + Bytes);
  in.number = little_endian(window_.data() + 1, Bytes);
  in.negative = false;
  window_.consume(1 + Bytes);
  return true;
}

bool Decoder::take_signed(Instruction& in) {
  if (!take_unsigned<4>(in)) return false;
  auto const number = static_cast<std::int32_t>(static_cast<std::uint32_t>(in.number));
  in.number = static_cast<std::uint64_t>(std::int64_t{number});
  in.negative = number < 0;
  return true;
}

bool Decoder::take_real(Instruction& in) {
  if (!window_.has(9)) return cut_short(in, 9);
  std::uint64_t bits = 0;
  for (std::size_t i = 1; i <= 8; ++i) bits = bits << 8U | static_cast<unsigned char>(window_.data()[i]);
  in.real = std::bit_cast<double>(bits);
  window_.consume(9);
  return true;
}

/// BINSTRING has a signed length.
bool Decoder::is_length(Instruction& in) {
  if (!window_.has(5)) return cut_short(in, 5);
  auto const length = static_cast<std::int32_t>(static_cast<std::uint32_t>(little_endian(window_.data() + 1, 4)));
  if (length >= 0) return true;
  return refuse(in.offset,
                "BINSTRING of " + std::to_string(length) + " bytes; expected at most " + std::to_string(kMaxTextBytes));
}

template <std::size_t LengthBytes>
bool Decoder::take_text(Instruction& in) {
  constexpr auto kHeader = 1 + LengthBytes;
  if (!window_.has(kHeader)) return cut_short(in, kHeader);
  auto const length = little_endian(window_.data() + 1, LengthBytes);
  // Before anything is read or made for it: a length may say 2^63.
  if (length > kMaxTextBytes) {
    return refuse(in.offset, std::string{traits_of(in.opcode).name} + " of " + std::to_string(length) +
                                 " bytes; expected at most " + std::to_string(kMaxTextBytes));
  }
  if (!window_.has(kHeader + length)) return cut_short(in, kHeader + length);
  in.text = {window_.data() + kHeader, length};
  window_.consume(kHeader + length);
  return true;
}

template <std::size_t LengthBytes>
bool Decoder::take_integer(Instruction& in) {
  constexpr auto kHeader = 1 + LengthBytes;
  if (!window_.has(kHeader)) return cut_short(in, kHeader);
  auto const length = little_endian(window_.data() + 1, LengthBytes);
  if (length > kMaxIntegerBytes) return refuse_integer(in, length);
  if (!window_.has(kHeader + length)) return cut_short(in, kHeader + length);
  auto const* const bytes = window_.data() + kHeader;
  in.number = little_endian(bytes, std::min<std::size_t>(length, 8));
  in.negative = length != 0 && (static_cast<unsigned char>(bytes[length - 1]) & 0x80U) != 0;
  if (in.negative && length < 8) in.number |= kMaxUint64 << (8 * length);
  if (length > 8) {
    // Beyond 8 bytes there may only be the sign; a negative number has it in the 64th bit too.
    auto const sign = static_cast<char>(in.negative ? 0xFF : 0);
    auto const is_sign = [&](char byte) { return byte == sign; };
    auto const fits = std::all_of(bytes + 8, bytes + length, is_sign) && (!in.negative || in.number >> 63U != 0);
    if (!fits) return refuse_integer(in, length);
  }
  window_.consume(kHeader + length);
  return true;
}

bool Decoder::refuse_integer(Instruction const& in, std::uint64_t length) {
  return refuse(in.offset, std::string{traits_of(in.opcode).name} + " of " + std::to_string(length) +
                               " bytes is beyond 64 bits; expected an integer in [-2^63, 2^64)");
}

bool Decoder::take_frame(Instruction& in) {
  if (!take_unsigned<8>(in)) return false;
  // How frames follow each other is of no interest here; what they promise must be there.
  auto const end = checked_add(window_.offset(), in.number).value_or(kMaxUint64);
  if (end > frame_end_) {
    frame_end_ = end;
    frame_offset_ = in.offset;
  }
  return true;
}

bool Decoder::finish() {
  auto const end = window_.offset();
  if (window_.has(1)) {
    auto const uncounted = window_.has(kMaxCountedRest + 1);
    auto const count = std::min(window_.available(), kMaxCountedRest);
    if (!window_.error()) {
      return refuse(end, (uncounted ? "more than " : "") + more_bytes(count) + " after the end of the pickle; expected none");
    }
  }
  if (window_.error()) {
    error_ = *window_.error();
    return false;
  }
  if (end >= frame_end_) return true;
  return refuse(frame_offset_,
                "FRAME is cut short at byte " + std::to_string(end) + "; expected " + more_bytes(frame_end_ - end));
}

/// The first lines behind the opcode, with a blank between: what it would have imported. Never long.
std::string Decoder::lines(std::size_t count) {
  constexpr std::size_t kMaxBytesOfLines = 256;
  static_cast<void>(window_.has(1 + kMaxBytesOfLines));
  auto const rest = std::string_view{window_.data(), std::min(window_.available(), 1 + kMaxBytesOfLines)}.substr(1);
  std::string text;
  for (char const c : rest) {
    if (c == '\n' && --count == 0) break;
    text += c == '\n' ? ' ' : c;
  }
  return in_quotes(text, kMaxQuotedBytes);
}

bool Decoder::refuse_opcode(Instruction const& in, OpcodeTraits const& traits) {
  auto const name = std::string{traits.name};
  switch (traits.argument) {
    case Argument::refused: return refuse(in.offset, name + std::string{kOnlyPlain});
    case Argument::refused_with_line: return refuse(in.offset, name + ' ' + lines(1) + std::string{kOnlyPlain});
    case Argument::refused_with_two_lines: return refuse(in.offset, name + ' ' + lines(2) + std::string{kOnlyPlain});
    case Argument::old: return refuse(in.offset, name + ", an opcode of protocols 0 and 1; expected protocol 2 to 5");
    default: break;
  }
  return refuse(in.offset, in_hexadecimal(static_cast<std::uint8_t>(in.opcode)) + "; expected an opcode of protocols 2 to 5");
}

}  // namespace headroom::trace::pickle
