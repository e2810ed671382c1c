// Takes a pickle apart into opcodes and their arguments, and refuses whatever is not an opcode of plain values.
//
// Knows nothing of the stack. An error is kept here, so that the way of each opcode through the reader is a bool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/pickle/opcodes.hpp"
#include "trace/pickle/window.hpp"

namespace headroom::trace::pickle {

struct Instruction {
  Opcode opcode = Opcode::stop;
  bool negative = false;     // number is a two's complement number below 0
  bool is_first = true;      // opcodes that put a memo entry: none was put under this number before
  std::uint64_t offset = 0;  // of the opcode
  std::uint64_t number = 0;  // an integer, or the number of a memo entry
  double real = 0;
  std::string_view text{};  // within the window: valid until the next instruction
  std::size_t base = 0;     // opcodes that go to a mark: the height of the stack below their items
};

class Decoder {
public:
  Decoder(ByteSource& source, std::string name) : window_{source}, name_{std::move(name)} {}

  /// False: error(). Only members that belong to the opcode are set. Not to be called after an error, or after STOP.
  [[nodiscard]] bool next(Instruction& in);
  /// After STOP: false with error() where bytes follow, or where a frame promised more.
  [[nodiscard]] bool finish();

  [[nodiscard]] std::uint64_t offset() const noexcept { return window_.offset(); }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] Error const& error() const noexcept { return error_; }
  /// Always false, for `return refuse(…)`. `what`: what was there; expected what.
  bool refuse(std::uint64_t offset, std::string const& what);

private:
  [[nodiscard]] bool begin();
  [[nodiscard]] bool can_go_on(Instruction& in);
  template <std::size_t Bytes>
  [[nodiscard]] bool take_unsigned(Instruction& in);
  [[nodiscard]] bool take_signed(Instruction& in);
  [[nodiscard]] bool take_real(Instruction& in);
  [[nodiscard]] bool is_length(Instruction& in);
  template <std::size_t LengthBytes>
  [[nodiscard]] bool take_text(Instruction& in);
  template <std::size_t LengthBytes>
  [[nodiscard]] bool take_integer(Instruction& in);
  [[nodiscard]] bool take_version(Instruction& in);
  [[nodiscard]] bool take_frame(Instruction& in);
  [[nodiscard]] bool refuse_integer(Instruction const& in, std::uint64_t length);
  [[nodiscard]] bool refuse_opcode(Instruction const& in, OpcodeTraits const& traits);
  [[nodiscard]] bool cut_short(Instruction const& in, std::size_t needed);
  [[nodiscard]] std::string lines(std::size_t count);

  Window window_;
  std::string name_;
  Error error_;
  std::uint64_t frame_offset_ = 0;  // the frame that reaches furthest
  std::uint64_t frame_end_ = 0;
  bool begun_ = false;
};

}  // namespace headroom::trace::pickle
