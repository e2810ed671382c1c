// headroom: texts as small numbers. A text gets its number when it is first seen, and keeps it: operations of the past stay named
// after the program has given an id of its directory to something else.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headroom::follow {

/// Number 0 is "". More than `most` different texts share the last number, whose text is "other".
class Names {
public:
  explicit Names(std::uint32_t most) : most_{most} { texts_.emplace_back(); }

  [[nodiscard]] std::uint32_t intern(std::string_view text) {
    if (text.empty()) return 0;
    if (auto const found = numbers_.find(text); found != numbers_.end()) return found->second;
    if (texts_.size() + 1 >= most_) {
      if (texts_.size() < most_) texts_.emplace_back("other");
      return most_ - 1;
    }
    texts_.emplace_back(text);
    auto const number = static_cast<std::uint32_t>(texts_.size() - 1);
    numbers_.emplace(texts_.back(), number);  // a view into the deque, whose elements never move
    return number;
  }

  [[nodiscard]] std::string_view text(std::uint32_t number) const noexcept {
    return number < texts_.size() ? std::string_view{texts_[number]} : std::string_view{};
  }

  /// Absent texts have no number.
  [[nodiscard]] std::uint32_t const* find(std::string_view text) const {
    static constexpr std::uint32_t kEmpty = 0;
    if (text.empty()) return &kEmpty;
    auto const found = numbers_.find(text);
    return found == numbers_.end() ? nullptr : &found->second;
  }

private:
  std::uint32_t most_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

}  // namespace headroom::follow
