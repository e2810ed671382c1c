// The limit of an account whose budget takes the device itself into account, and the line that its requests may not cross.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <headroom/budget.hpp>
#include <headroom/device_account.hpp>
#include <headroom/error.hpp>

#include "ledger/device_terms.hpp"

namespace headroom::device {

/// from − bytes, never below 0.
[[nodiscard]] constexpr std::uint64_t less(std::uint64_t from, std::uint64_t bytes) noexcept {
  return from > bytes ? from - bytes : 0;
}

/// min(budget − outside, total − outside − N), as far as the options ask for it. A budget without a limit gets one from N; one that only
/// observes keeps observing, since the line holds without it.
[[nodiscard]] MemoryBudget limit_in_force(MemoryBudget budget, DeviceBudgetOptions const& options, std::uint64_t total,
                                          std::uint64_t outside) noexcept;

/// Why options make no sense for a device, if they make none: before anything is opened …
[[nodiscard]] std::optional<Error> unusable(DeviceBudgetOptions const& options, MemoryInfo const& memory);
/// … and by the first user of an account, when they leave nothing that could ever be allocated.
[[nodiscard]] std::optional<Error> nothing_left(GlobalDeviceBudget::Terms const& terms, std::uint64_t total,
                                                std::uint64_t outside);

/// "1 GiB kept free, context included"; empty without options.
[[nodiscard]] std::string options_text(DeviceBudgetOptions const& options);

/// A request that is about to take memory of the device; see ledger/device_terms.hpp for why the order of the two looks matters.
class Taking {
public:
  Taking(ledger::DeviceTerms& terms, std::uint64_t bytes) noexcept
      : terms_(terms), bytes_(bytes), sum_(terms.begin_taking(bytes)) {}
  ~Taking() { terms_.end_taking(bytes_); }
  Taking(Taking const&) = delete;
  Taking& operator=(Taking const&) = delete;

  /// With everyone who is about to.
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }

private:
  ledger::DeviceTerms& terms_;
  std::uint64_t const bytes_;
  std::uint64_t const sum_;
};

}  // namespace headroom::device
