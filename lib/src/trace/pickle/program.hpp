// The opcodes of a pickle one after another, each checked as far as that is possible without values: its argument, the heights of the
// stack and of its marks, the numbers of memo entries, and that the pickle ends with its STOP.
//
// Both passes run on it, so they refuse the same pickles in the same words. What only values tell (an APPEND to a text, a list as a
// key) the second pass adds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/pickle/decoder.hpp"
#include "trace/pickle/memo_numbers.hpp"

namespace headroom::trace::pickle {

class Program {
public:
  Program(ByteSource& source, std::string name) : decoder_{source, std::move(name)} {}

  /// The next opcode, which the caller then carries out: height() is that after it. False: error(). Not to be called after STOP.
  [[nodiscard]] bool next(Instruction& in) {
    if (!decoder_.next(in)) return false;
    auto const& traits = traits_of(in.opcode);
    if (traits.use == StackUse::get) return get(in);
    if (traits.use != StackUse::plain) return use_stack(in, traits);
    if (in_reach() < traits.needs) return too_few(in, traits.needs);
    height_ = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(height_) + traits.change);
    return is_low_enough(in);
  }

  [[nodiscard]] std::size_t height() const noexcept { return height_; }
  /// The heights of the stack at its marks, lowest first.
  [[nodiscard]] std::span<std::uint32_t const> marks() const noexcept { return marks_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return decoder_.offset(); }
  [[nodiscard]] std::string const& name() const noexcept { return decoder_.name(); }
  [[nodiscard]] Error const& error() const noexcept { return decoder_.error(); }

  /// Always false, for `return refuse(in, …)`: the opcode's name and `what`.
  bool refuse(Instruction const& in, std::string const& what) {
    return decoder_.refuse(in.offset, std::string{traits_of(in.opcode).name} + what);
  }

private:
  /// Values below the last mark are out of an opcode's reach.
  [[nodiscard]] std::size_t in_reach() const noexcept { return height_ - last_mark_; }
  [[nodiscard]] bool is_low_enough(Instruction const& in) { return height_ + marks_.size() <= kMaxStack || too_high(in); }
  [[nodiscard]] bool get(Instruction const& in) {
    ++height_;
    return memo_.has(in.number) ? is_low_enough(in) : not_put(in);
  }
  [[nodiscard]] bool use_stack(Instruction& in, OpcodeTraits const& traits);
  void take_mark() noexcept;
  [[nodiscard]] bool too_high(Instruction const& in);
  [[nodiscard]] bool too_few(Instruction const& in, std::size_t needed);
  [[nodiscard]] bool no_mark(Instruction const& in);
  [[nodiscard]] bool go_to_mark(Instruction& in, OpcodeTraits const& traits);
  [[nodiscard]] bool pop(Instruction const& in);
  [[nodiscard]] bool put(Instruction& in);
  [[nodiscard]] bool not_put(Instruction const& in);
  [[nodiscard]] bool stop(Instruction const& in);

  Decoder decoder_;
  std::size_t height_ = 0;
  std::size_t last_mark_ = 0;  // 0 without marks
  std::vector<std::uint32_t> marks_;
  MemoNumbers memo_;
};

}  // namespace headroom::trace::pickle
