// Where a list that is being filled will stand, found from the stack: which container below takes it, as which item or under which key,
// and so on to the root. Node::fate says by which kind of opcode each will be put into the next, which the stack alone cannot tell: a
// list above a list may become its item, or both become items of a third.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trace/pickle/assembler.hpp"
#include "trace/pickle/path.hpp"

namespace headroom::trace::pickle {

class PathFinder {
public:
  enum class Answer : std::uint8_t {
    found,
    none,      ///< it, or what it is in, is dropped, or goes into a tuple or a key
    too_deep,  ///< deeper than anything may be
  };

  /// Of the list at stack[at]; marks() are those below it. Cost: a few instructions for each step.
  [[nodiscard]] Answer find(std::span<Value const> stack, std::span<std::uint32_t const> marks, std::size_t at) {
    steps_.clear();
    auto mark = marks.size();
    while (true) {
      auto const& node = Assembler::node_of(stack[at]);
      if (node.sealed) return Answer::none;  // a fetched one: no place of its own
      if (node.fate == Fate::root) break;
      if (node.fate == Fate::unknown) return Answer::none;
      if (steps_.size() + 1 >= kMaxDepth) return Answer::too_deep;
      while (mark > 0 && marks[mark - 1] > at) --mark;
      auto const reach = mark == 0 ? 0 : std::size_t{marks[mark - 1]};  // the lowest place above the last mark
      auto const is_inside = node.fate == Fate::single ? go_to_single(stack, at, reach) : go_to_batch(stack, at, reach);
      if (!is_inside) return Answer::none;
    }
    std::ranges::reverse(steps_);
    return at == 0 ? Answer::found : Answer::none;
  }

  /// Of the last answer. The keys are values of the stack.
  [[nodiscard]] std::vector<Step>& steps() noexcept { return steps_; }

private:
  [[nodiscard]] bool go_to_single(std::span<Value const> stack, std::size_t& at, std::size_t reach) {
    if (at < reach + 1) return false;
    auto const& below = stack[at - 1];
    if (below.is(Type::list)) {
      steps_.push_back({.key = nullptr, .index = Assembler::node_of(below).size});
      at -= 1;
      return true;
    }
    if (at < reach + 2 || !stack[at - 2].is(Type::dict)) return false;
    steps_.push_back({.key = &below});
    at -= 2;
    return true;
  }

  [[nodiscard]] bool go_to_batch(std::span<Value const> stack, std::size_t& at, std::size_t reach) {
    if (reach == 0) return false;
    auto const& taker = stack[reach - 1];
    auto const position = at - reach;
    if (taker.is(Type::list)) {
      steps_.push_back({.key = nullptr, .index = Assembler::node_of(taker).size + position});
    } else if (taker.is(Type::dict) && position % 2 == 1) {
      steps_.push_back({.key = &stack[at - 1]});
    } else {
      return false;
    }
    at = reach - 1;
    return true;
  }

  std::vector<Step> steps_;
};

}  // namespace headroom::trace::pickle
