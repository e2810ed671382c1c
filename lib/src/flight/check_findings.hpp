// headroom: what the parts of check_flight() share: the file that is looked at, and what was found.
//
// Thread safety: none, one check is one thread's. Cost: texts are made only for findings that are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <headroom/flight_check.hpp>

#include "base/quoted.hpp"
#include "base/utf8.hpp"
#include "flight/mapping.hpp"

namespace headroom::flight {

class CheckFindings {
public:
  CheckFindings(MappedFlight const& mapped, std::size_t most) noexcept
      : start_{reinterpret_cast<std::byte const*>(&mapped.header())}, most_{most} {}

  /// `at`: the word that is judged; what() names it, with its value, and says what was expected.
  template <class What>
  void expect(bool good, void const* at, What&& what) {
    if (good) [[likely]]
      return;
    ++check_.found;
    if (check_.findings.size() == most_) return;
    auto const offset = static_cast<std::uint64_t>(static_cast<std::byte const*>(at) - start_);
    check_.findings.push_back({.offset = offset, .text = std::forward<What>(what)()});
  }

  /// A number that must be at most `most`.
  void expect_at_most(std::uint64_t value, std::uint64_t most, void const* at, std::string_view name) {
    expect(value <= most, at,
           [&] { return std::string{name} + " is " + std::to_string(value) + "; expected at most " + std::to_string(most); });
  }

  /// Zero-padded UTF-8 that ends within its field.
  void expect_text(std::string_view field, void const* at, std::string_view name) {
    auto const end = field.find('\0');
    auto const text = field.substr(0, end);
    expect(end != std::string_view::npos && valid_utf8(text) == text, at, [&] {
      return std::string{name} + " is " + in_quotes(text) +
             (end == std::string_view::npos ? " without an end; expected a zero at its end" : "; expected valid UTF-8");
    });
  }

  [[nodiscard]] FlightCheck& result() noexcept { return check_; }

private:
  std::byte const* start_;
  std::size_t most_;
  FlightCheck check_;
};

/// Ledgers, live allocations, and the balance between them.
void check_books(MappedFlight const& mapped, CheckFindings& findings);
/// Lanes: rings, records, operations under way.
void check_lanes(MappedFlight const& mapped, CheckFindings& findings);

}  // namespace headroom::flight
