// headroom: what a panel worked out, kept until something it depends on changes.
//
//   struct Key { std::uint64_t revision; TickRange visible; friend bool operator==(Key const&, Key const&) = default; };
//   Cached<Key, Rows> rows_;
//   auto const& rows = rows_.get({state.revision, state.visible}, [&] { return rows_of(*state.model, state.visible); });
//
// Thread safety: none. Cost: a comparison of keys a frame.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace headroom::viewer {

template <typename Key, typename Value>
class Cached {
public:
  /// The value made under an equal key, or a new one. Good until the next call.
  template <typename Make>
  Value const& get(Key const& key, Make&& make) {
    if (!value_ || !(key_ == key)) {
      value_.reset();  // the old one's memory goes before the new one's is asked for
      value_.emplace(std::forward<Make>(make)());
      key_ = key;
      ++made_;
    }
    return *value_;
  }
  void forget() { value_.reset(); }
  /// How often it was worked out: for tests of what is idle.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

private:
  Key key_{};
  std::optional<Value> value_{};
  std::uint64_t made_ = 0;
};

}  // namespace headroom::viewer
