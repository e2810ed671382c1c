// Makes values and fills containers, by the rules that keep them without cycles and no deeper than kMaxDepth.
//
// machine.hpp says why no cycle can come about; here is where it is kept: hand_over() and seal() set Node::sealed, and append(), set()
// and take() look at it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/pickle/store.hpp"
#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

/// Why a value could not be made or put somewhere.
enum class Obstacle : std::uint8_t {
  none,
  too_much,   // kMaxRetainedBytes
  too_deep,   // kMaxDepth
  sealed,     // the container may not change any more
  key,        // neither a text nor an integer nor a tuple of them
  other_run,  // a container leaves the stack in another way than in the first pass
};

class Assembler {
public:
  Assembler() : store_{Store::make()} {}

  [[nodiscard]] Store& store() noexcept { return *store_; }
  [[nodiscard]] Store const& store() const noexcept { return *store_; }

  [[nodiscard]] static Value none(std::uint64_t offset) noexcept { return {Type::none, offset, {}}; }
  [[nodiscard]] static Value boolean(bool value, std::uint64_t offset) noexcept {
    return {Type::boolean, offset, {.number = value ? 1U : 0U}};
  }
  [[nodiscard]] static Value integer(std::uint64_t number, bool negative, std::uint64_t offset) noexcept {
    return {Type::integer, offset, {.number = number}, negative ? Value::kNegative : 0};
  }
  [[nodiscard]] static Value real(double value, std::uint64_t offset) noexcept { return {Type::real, offset, {.real = value}}; }

  /// Each puts what it makes into `made`. `type`: text or bytes.
  [[nodiscard]] Obstacle text(Type type, std::string_view bytes, std::uint64_t offset, Value& made);
  /// `type`: list or dict, empty.
  [[nodiscard]] Obstacle container(Type type, Fate fate, std::uint64_t offset, Value& made);
  [[nodiscard]] Obstacle tuple(std::span<Value> items, std::uint64_t offset, Value& made);

  // The items move from the stack into the container; `fate` is by what kind of opcode.
  [[nodiscard]] Obstacle append(Value& list, std::span<Value> items, Fate fate);
  /// Keys and values in turn. Obstacle::key: nothing has moved.
  [[nodiscard]] Obstacle set(Value& dict, std::span<Value> pairs, Fate fate);
  /// Counts an item of a list that a visitor takes; it stays where it is.
  [[nodiscard]] static Obstacle take(Value& list, Value& item, Fate fate) noexcept;

  /// From now on others than the stack can reach it.
  static void seal(Value const& value) noexcept {
    if (is_container(value)) node_of(value).sealed = true;
  }
  [[nodiscard]] static bool is_container(Value const& value) noexcept { return value.is(Type::list) || value.is(Type::dict); }
  [[nodiscard]] static bool is_key(Value const& value) noexcept;
  /// Of a value that has one.
  [[nodiscard]] static Node& node_of(Value const& value) noexcept { return *value.payload_.node; }

private:
  [[nodiscard]] static Obstacle hand_over(Node& to, Value const& item, Fate fate) noexcept;
  template <class Element>
  [[nodiscard]] bool reserve(Node& node, std::size_t more);

  Store::Owner store_;
};

}  // namespace headroom::trace::pickle
