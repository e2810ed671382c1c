// Where in a pickle something stands: the keys and indices that lead there from the root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

/// One key of a dict, or one index into a list.
struct Step {
  Value const* key = nullptr;  // null: an index
  std::uint64_t index = 0;
};

/// A view, valid while the visitor is called. size() is 0 for the root.
class Path {
public:
  explicit Path(std::span<Step const> steps) noexcept : steps_{steps} {}

  [[nodiscard]] std::size_t size() const noexcept { return steps_.size(); }
  /// The `i`th step goes into a dict by this text. False also where there is no such step.
  [[nodiscard]] bool is_key(std::size_t i, std::string_view text) const noexcept {
    return i < steps_.size() && steps_[i].key != nullptr && steps_[i].key->is(Type::text) && steps_[i].key->text() == text;
  }
  /// The `i`th step's key; null where it is an index, or where there is no such step.
  [[nodiscard]] Value const* key(std::size_t i) const noexcept { return i < steps_.size() ? steps_[i].key : nullptr; }
  /// The `i`th step goes into a list by this index; absent where it is a key, or where there is no such step.
  [[nodiscard]] std::optional<std::uint64_t> index(std::size_t i) const noexcept {
    return i < steps_.size() && steps_[i].key == nullptr ? std::optional{steps_[i].index} : std::nullopt;
  }

private:
  std::span<Step const> steps_;
};

}  // namespace headroom::trace::pickle
