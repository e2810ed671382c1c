// headroom: the values of a pickle: none, booleans, integers, reals, texts, bytes, lists, tuples and dicts.
//
// A Value is 16 bytes. Small values lie in it; texts and containers are nodes that all copies share, counted by reference and freed
// with the last one. Values may outlive the Machine that made them. No value can contain itself, and none is nested deeper than
// kMaxDepth: see machine.hpp.
// Thread safety: one thread at a time for all values of one machine (the counts are plain numbers). Cost: a copy is 16 bytes and an
// increment.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "trace/pickle/node.hpp"

namespace headroom::trace::pickle {

struct Entry;

class Value {
public:
  Value() noexcept = default;
  Value(Value const& other) noexcept : meta_{other.meta_}, payload_{other.payload_} {
    if (has_node()) ++payload_.node->references;
  }
  Value(Value&& other) noexcept : meta_{std::exchange(other.meta_, 0)}, payload_{other.payload_} {}
  Value& operator=(Value const& other) noexcept {
    Value copy{other};
    swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Value taken{std::move(other)};
    swap(taken);
    return *this;
  }
  ~Value() {
    if (has_node() && --payload_.node->references == 0) free_node(payload_.node, type());
  }

  [[nodiscard]] Type type() const noexcept { return static_cast<Type>(meta_ & kTypeMask); }
  [[nodiscard]] bool is(Type type) const noexcept { return this->type() == type; }

  /// False for whatever is no boolean.
  [[nodiscard]] bool boolean() const noexcept { return is(Type::boolean) && payload_.number != 0; }
  /// Integers in [0, 2^64); absent for every other value. (Integers beyond [-2^63, 2^64) are refused when they are read.)
  [[nodiscard]] std::optional<std::uint64_t> unsigned_value() const noexcept {
    return is_unsigned() ? std::optional{payload_.number} : std::nullopt;
  }
  [[nodiscard]] bool is_unsigned() const noexcept { return is(Type::integer) && (meta_ & kNegative) == 0; }
  /// Integers in [-2^63, 2^63); absent for every other value.
  [[nodiscard]] std::optional<std::int64_t> signed_value() const noexcept {
    auto const fits = is(Type::integer) && ((meta_ & kNegative) != 0 || payload_.number >> 63U == 0);
    return fits ? std::optional{static_cast<std::int64_t>(payload_.number)} : std::nullopt;
  }
  /// 0 for whatever is no real. May be infinite or no number.
  [[nodiscard]] double real() const noexcept { return is(Type::real) ? payload_.real : 0.0; }
  /// The bytes of a text or of bytes as they stood in the file: not necessarily valid UTF-8. Empty for every other value.
  [[nodiscard]] std::string_view text() const noexcept {
    if (!is(Type::text) && !is(Type::bytes)) return {};
    return {static_cast<char const*>(payload_.node->content), payload_.node->size};
  }
  /// Of a list or tuple; empty for every other value, and for a list whose items a visitor took.
  [[nodiscard]] std::span<Value const> items() const noexcept;
  /// Of a dict, in the order of the file, equal keys included; empty for every other value.
  [[nodiscard]] std::span<Entry const> entries() const noexcept;
  /// How many items of this list a visitor took; 0 for every other value.
  [[nodiscard]] std::uint64_t taken_items() const noexcept {
    return is(Type::list) && payload_.node->taken ? payload_.node->size : 0;
  }

  /// The value of a dict's text `key`, the last where there are several; null when there is none or this is no dict. Linear.
  [[nodiscard]] Value const* find(std::string_view key) const noexcept;

  /// The same for two values exactly if they share a node (text, bytes, container); null for the others.
  [[nodiscard]] void const* identity() const noexcept { return has_node() ? payload_.node : nullptr; }

  /// A word that the user of the values keeps with a node, such as a number that it gave to this text; 0 at first, and for values
  /// without a node.
  [[nodiscard]] std::uint32_t note() const noexcept { return has_node() ? payload_.node->note : 0; }
  /// No effect on values without a node.
  void set_note(std::uint32_t note) const noexcept {
    if (has_node()) payload_.node->note = note;
  }

  /// Byte of the decompressed pickle at which the opcode stands that made this value: where a text, a number or a container began.
  /// (A tuple, and a list or dict that was made at once, begins where its items end.) 0 for a Value that was not read.
  [[nodiscard]] std::uint64_t offset() const noexcept { return meta_ >> kOffsetShift; }

private:
  friend class Store;      // makes nodes, and frees them
  friend class Assembler;  // makes values and fills containers

  static constexpr std::uint64_t kTypeMask = 0xF;
  static constexpr std::uint64_t kNegative = 0x10;
  static constexpr std::uint32_t kOffsetShift = 16;  // which leaves 48 bits: no pickle is longer (kMaxBytes)

  union Payload {
    std::uint64_t number = 0;  // boolean, integer (two's complement where kNegative is set)
    double real;
    Node* node;
  };

  Value(Type type, std::uint64_t offset, Payload payload, std::uint64_t flags = 0) noexcept
      : meta_{std::uint64_t{static_cast<std::uint8_t>(type)} | flags | offset << kOffsetShift}, payload_{payload} {}

  [[nodiscard]] bool has_node() const noexcept { return (meta_ & kTypeMask) >= static_cast<std::uint8_t>(Type::text); }
  void swap(Value& other) noexcept {
    std::swap(meta_, other.meta_);
    std::swap(payload_, other.payload_);
  }

  std::uint64_t meta_ = 0;
  Payload payload_{};
};
static_assert(sizeof(Value) == 16);

/// One entry of a dict. The key is a text, an integer, or a tuple of such.
struct Entry {
  Value key;
  Value value;
};

inline std::span<Value const> Value::items() const noexcept {
  if ((!is(Type::list) && !is(Type::tuple)) || payload_.node->taken) return {};
  return {static_cast<Value const*>(payload_.node->content), payload_.node->size};
}

inline std::span<Entry const> Value::entries() const noexcept {
  if (!is(Type::dict)) return {};
  return {static_cast<Entry const*>(payload_.node->content), payload_.node->size};
}

inline Value const* Value::find(std::string_view key) const noexcept {
  auto const all = entries();
  for (auto i = all.size(); i-- > 0;) {
    if (all[i].key.is(Type::text) && all[i].key.text() == key) return &all[i].value;
  }
  return nullptr;
}

}  // namespace headroom::trace::pickle
