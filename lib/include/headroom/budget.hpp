// headroom: memory budgets.
// Layer: ledger
//
// A budget is a limit in bytes and what to do at it: refuse (with_limit), only count what would have been refused (observe), or
// nothing (unlimited). An exact fit is admitted, the next byte refused. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom {

class MemoryBudget {
public:
  /// Refuses whatever would lift the claimed bytes above `bytes`. 0 allows nothing.
  [[nodiscard]] static constexpr MemoryBudget with_limit(std::uint64_t bytes) noexcept { return {bytes, Mode::enforce}; }
  /// Refuses nothing (but requests above 16 TiB − 1, which no ledger can hold).
  [[nodiscard]] static constexpr MemoryBudget unlimited() noexcept { return {0, Mode::none}; }
  /// Refuses nothing; counts, shows and records what with_limit(bytes) would have refused, and judges pressure by `bytes`.
  [[nodiscard]] static constexpr MemoryBudget observe(std::uint64_t bytes) noexcept { return {bytes, Mode::observe}; }
  /// with_limit(80 % of `total_bytes`), rounded down.
  [[nodiscard]] static constexpr MemoryBudget from_device_memory(std::uint64_t total_bytes) noexcept {
    return with_limit(total_bytes / 5 * 4 + total_bytes % 5 * 4 / 5);
  }

  /// Absent when unlimited.
  [[nodiscard]] constexpr std::optional<std::uint64_t> limit_bytes() const noexcept {
    return mode_ == Mode::none ? std::nullopt : std::optional{bytes_};
  }
  [[nodiscard]] constexpr bool is_unlimited() const noexcept { return mode_ == Mode::none; }
  /// False for unlimited and observe.
  [[nodiscard]] constexpr bool enforces() const noexcept { return mode_ == Mode::enforce; }
  /// "8 GiB", "observe 8 GiB" or "unlimited".
  [[nodiscard]] std::string to_string() const;

  friend constexpr bool operator==(MemoryBudget const&, MemoryBudget const&) = default;

private:
  enum class Mode : std::uint8_t { enforce, observe, none };
  constexpr MemoryBudget(std::uint64_t bytes, Mode mode) noexcept : bytes_(bytes), mode_(mode) {}
  std::uint64_t bytes_;
  Mode mode_;
};

}  // namespace headroom
