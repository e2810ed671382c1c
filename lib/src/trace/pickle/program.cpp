#include "trace/pickle/program.hpp"

namespace headroom::trace::pickle {
namespace {

std::string counted_values(std::size_t count) { return std::to_string(count) + (count == 1 ? " value" : " values"); }

}  // namespace

bool Program::use_stack(Instruction& in, OpcodeTraits const& traits) {
  switch (traits.use) {
    case StackUse::plain:
    case StackUse::get: break;  // next() has done these
    case StackUse::put: return put(in);
    case StackUse::mark:
      marks_.push_back(static_cast<std::uint32_t>(height_));
      last_mark_ = height_;
      return is_low_enough(in);
    case StackUse::to_mark:
    case StackUse::pairs_to_mark: return go_to_mark(in, traits);
    case StackUse::pop: return pop(in);
    case StackUse::pop_mark:
      if (marks_.empty()) return no_mark(in);
      height_ = last_mark_;
      take_mark();
      return true;
    case StackUse::stop: return stop(in);
  }
  return true;
}

void Program::take_mark() noexcept {
  marks_.pop_back();
  last_mark_ = marks_.empty() ? 0 : marks_.back();
}

bool Program::too_high(Instruction const& in) {
  return refuse(in, " beyond " + counted_values(kMaxStack) + " and marks on the stack; expected at most as many");
}

bool Program::too_few(Instruction const& in, std::size_t needed) {
  return refuse(in, " with " + counted_values(in_reach()) + (marks_.empty() ? " on the stack" : " above the last mark") +
                        "; expected at least " + std::to_string(needed));
}

bool Program::no_mark(Instruction const& in) { return refuse(in, " without a mark on the stack; expected a MARK before it"); }

bool Program::go_to_mark(Instruction& in, OpcodeTraits const& traits) {
  if (marks_.empty()) return no_mark(in);
  in.base = last_mark_;
  auto const items = height_ - in.base;
  take_mark();
  height_ = in.base;
  if (in_reach() < traits.needs) return refuse(in, " with nothing below its mark; expected what takes the items");
  if (traits.use == StackUse::pairs_to_mark && items % 2 != 0) {
    return refuse(in, " with " + counted_values(items) + " above its mark; expected pairs of a key and a value");
  }
  height_ += static_cast<std::size_t>(traits.change);
  return true;
}

bool Program::pop(Instruction const& in) {
  if (in_reach() != 0) {
    --height_;
  } else if (!marks_.empty()) {
    take_mark();  // POP takes a mark away where one is the topmost thing
  } else {
    return too_few(in, 1);
  }
  return true;
}

bool Program::put(Instruction& in) {
  if (in_reach() == 0) return too_few(in, 1);
  if (in.opcode == Opcode::memoize) {
    in.number = memo_.count();
  } else if (in.number > in.offset) {
    // Numbers count what was put before, and each of those took a byte: this bounds what the sets of numbers take.
    return refuse(in, " of memo entry " + std::to_string(in.number) + "; expected at most " + std::to_string(in.offset) +
                          ", the bytes before it");
  }
  in.is_first = memo_.put(in.number);
  if (memo_.count() <= kMaxMemoEntries) return true;
  return refuse(in, " of one memo entry too many; expected at most " + std::to_string(kMaxMemoEntries));
}

bool Program::not_put(Instruction const& in) {
  return refuse(in, " of memo entry " + std::to_string(in.number) + ", which was not put; expected one of the " +
                        std::to_string(memo_.count()) + " that were");
}

bool Program::stop(Instruction const& in) {
  if (!marks_.empty()) return refuse(in, " with a mark on the stack; expected one value, the result");
  if (height_ != 1) return refuse(in, " with " + counted_values(height_) + " on the stack; expected one, the result");
  return decoder_.finish();
}

}  // namespace headroom::trace::pickle
