#include "trace/pickle/opcodes.hpp"

namespace headroom::trace::pickle {
namespace {

constexpr OpcodeTable make_table() {
  using enum Opcode;
  using Use = StackUse;
  OpcodeTable table;
  auto const add = [&](Opcode opcode, OpcodeTraits traits) { table[static_cast<std::uint8_t>(opcode)] = traits; };
  auto const value = [&](Opcode opcode, std::string_view name, Argument argument) {
    add(opcode, {name, argument, Use::plain, 0, 1});
  };
  auto const other = [&](std::uint8_t byte, std::string_view name, Argument argument) { table[byte] = {name, argument}; };

  add(proto, {"PROTO", Argument::version});
  add(frame, {"FRAME", Argument::frame_length});
  add(stop, {"STOP", Argument::none, Use::stop});
  add(mark, {"MARK", Argument::none, Use::mark});
  add(pop, {"POP", Argument::none, Use::pop});
  add(pop_mark, {"POP_MARK", Argument::none, Use::pop_mark});
  add(dup, {"DUP", Argument::none, Use::plain, 1, 1});

  value(none, "NONE", Argument::none);
  value(new_true, "NEWTRUE", Argument::none);
  value(new_false, "NEWFALSE", Argument::none);
  value(bin_int, "BININT", Argument::signed4);
  value(bin_int1, "BININT1", Argument::unsigned1);
  value(bin_int2, "BININT2", Argument::unsigned2);
  value(long1, "LONG1", Argument::integer1);
  value(long4, "LONG4", Argument::integer4);
  value(bin_float, "BINFLOAT", Argument::real8);
  value(short_bin_unicode, "SHORT_BINUNICODE", Argument::text1);
  value(bin_unicode, "BINUNICODE", Argument::text4);
  value(bin_unicode8, "BINUNICODE8", Argument::text8);
  value(short_bin_string, "SHORT_BINSTRING", Argument::text1);
  value(bin_string, "BINSTRING", Argument::text4_signed);
  value(short_bin_bytes, "SHORT_BINBYTES", Argument::text1);
  value(bin_bytes, "BINBYTES", Argument::text4);
  value(bin_bytes8, "BINBYTES8", Argument::text8);
  value(byte_array8, "BYTEARRAY8", Argument::text8);

  value(empty_list, "EMPTY_LIST", Argument::none);
  add(append, {"APPEND", Argument::none, Use::plain, 2, -1});
  add(appends, {"APPENDS", Argument::none, Use::to_mark, 1, 0});
  add(list, {"LIST", Argument::none, Use::to_mark, 0, 1});
  value(empty_tuple, "EMPTY_TUPLE", Argument::none);
  add(tuple, {"TUPLE", Argument::none, Use::to_mark, 0, 1});
  add(tuple1, {"TUPLE1", Argument::none, Use::plain, 1, 0});
  add(tuple2, {"TUPLE2", Argument::none, Use::plain, 2, -1});
  add(tuple3, {"TUPLE3", Argument::none, Use::plain, 3, -2});
  value(empty_dict, "EMPTY_DICT", Argument::none);
  add(dict, {"DICT", Argument::none, Use::pairs_to_mark, 0, 1});
  add(set_item, {"SETITEM", Argument::none, Use::plain, 3, -2});
  add(set_items, {"SETITEMS", Argument::none, Use::pairs_to_mark, 1, 0});

  add(bin_put, {"BINPUT", Argument::unsigned1, Use::put, 1, 0});
  add(long_bin_put, {"LONG_BINPUT", Argument::unsigned4, Use::put, 1, 0});
  add(memoize, {"MEMOIZE", Argument::none, Use::put, 1, 0});
  add(bin_get, {"BINGET", Argument::unsigned1, Use::get, 0, 1});
  add(long_bin_get, {"LONG_BINGET", Argument::unsigned4, Use::get, 0, 1});

  other('c', "GLOBAL", Argument::refused_with_two_lines);
  other(0x93, "STACK_GLOBAL", Argument::refused);
  other('R', "REDUCE", Argument::refused);
  other('b', "BUILD", Argument::refused);
  other('i', "INST", Argument::refused_with_two_lines);
  other('o', "OBJ", Argument::refused);
  other(0x81, "NEWOBJ", Argument::refused);
  other(0x92, "NEWOBJ_EX", Argument::refused);
  other(0x82, "EXT1", Argument::refused);
  other(0x83, "EXT2", Argument::refused);
  other(0x84, "EXT4", Argument::refused);
  other('P', "PERSID", Argument::refused_with_line);
  other('Q', "BINPERSID", Argument::refused);
  other(0x97, "NEXT_BUFFER", Argument::refused);
  other(0x98, "READONLY_BUFFER", Argument::refused);
  other(0x8F, "EMPTY_SET", Argument::refused);
  other(0x90, "ADDITEMS", Argument::refused);
  other(0x91, "FROZENSET", Argument::refused);

  other('I', "INT", Argument::old);
  other('L', "LONG", Argument::old);
  other('F', "FLOAT", Argument::old);
  other('S', "STRING", Argument::old);
  other('V', "UNICODE", Argument::old);
  other('g', "GET", Argument::old);
  other('p', "PUT", Argument::old);
  return table;
}

}  // namespace

constexpr OpcodeTable kTable = make_table();
OpcodeTable const opcode_table = kTable;

}  // namespace headroom::trace::pickle
