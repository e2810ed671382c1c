// headroom: which rows of a list a person has picked: one by a click, a stretch of them by Shift. No ImGui. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace headroom::viewer {

/// Rows are counted from the first that ever was, so that they keep their numbers while a list grows at its end and is cut at its begin.
class RowSelection {
public:
  void pick(std::uint64_t row, bool extends) noexcept {
    if (!extends || !anchor_) anchor_ = row;
    row_ = row;
  }
  void clear() noexcept {
    anchor_.reset();
    row_.reset();
  }
  [[nodiscard]] bool has(std::uint64_t row) const noexcept { return anchor_ && row >= range().first && row <= range().second; }
  [[nodiscard]] bool empty() const noexcept { return !anchor_; }
  /// The one that was picked last.
  [[nodiscard]] std::optional<std::uint64_t> row() const noexcept { return row_; }
  /// First and last; only of what is not empty.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> range() const noexcept {
    return std::minmax(anchor_.value_or(0), row_.value_or(0));
  }

private:
  std::optional<std::uint64_t> anchor_, row_;
};

}  // namespace headroom::viewer
