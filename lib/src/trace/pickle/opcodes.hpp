// The opcodes of pickles: what follows each in the file, and what it does to the stack.
//
// Sources: the documentation of Python's module pickletools. Protocols 2 to 5, the ones that are in use for twenty years.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace headroom::trace::pickle {

/// Those that make plain values. Every other byte is refused before it becomes an Opcode.
enum class Opcode : std::uint8_t {
  proto = 0x80,
  frame = 0x95,
  stop = '.',
  mark = '(',
  pop = '0',
  pop_mark = '1',
  dup = '2',
  none = 'N',
  new_true = 0x88,
  new_false = 0x89,
  bin_int = 'J',
  bin_int1 = 'K',
  bin_int2 = 'M',
  long1 = 0x8A,
  long4 = 0x8B,
  bin_float = 'G',
  short_bin_unicode = 0x8C,
  bin_unicode = 'X',
  bin_unicode8 = 0x8D,
  short_bin_string = 'U',
  bin_string = 'T',
  short_bin_bytes = 'C',
  bin_bytes = 'B',
  bin_bytes8 = 0x8E,
  byte_array8 = 0x96,
  empty_list = ']',
  append = 'a',
  appends = 'e',
  list = 'l',
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_dict = '}',
  dict = 'd',
  set_item = 's',
  set_items = 'u',
  bin_put = 'q',
  long_bin_put = 'r',
  memoize = 0x94,
  bin_get = 'h',
  long_bin_get = 'j',
};

/// What follows an opcode in the file. Numbers are little-endian but for the real.
enum class Argument : std::uint8_t {
  unknown,  // no opcode at all
  refused,  // executes something, or makes what is no plain value
  refused_with_line,
  refused_with_two_lines,
  old,  // of protocols 0 and 1: written as text
  none,
  unsigned1,
  unsigned2,
  unsigned4,
  signed4,
  real8,
  integer1,  // a length of 1 or 4 bytes, and a two's complement number of so many bytes
  integer4,
  text1,  // a length of so many bytes, and so many bytes
  text4,
  text4_signed,
  text8,
  version,
  frame_length,
};

/// What an opcode does to the stack.
enum class StackUse : std::uint8_t {
  plain,          // takes and leaves a fixed number of values
  to_mark,        // takes everything above the last mark, and the mark
  pairs_to_mark,  // likewise, and they must be pairs
  mark,
  pop,
  pop_mark,
  put,
  get,
  stop,
};

struct OpcodeTraits {
  std::string_view name{};
  Argument argument = Argument::unknown;
  StackUse use = StackUse::plain;
  std::uint8_t needs = 0;  // values above the last mark; to_mark: below the mark that it takes, above the one before
  std::int8_t change = 0;  // of the stack's height; to_mark: against the height below its items
};

using OpcodeTable = std::array<OpcodeTraits, 256>;
extern OpcodeTable const opcode_table;

[[nodiscard]] inline OpcodeTraits const& traits_of(Opcode opcode) noexcept {
  return opcode_table[static_cast<std::uint8_t>(opcode)];
}

}  // namespace headroom::trace::pickle
