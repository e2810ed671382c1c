// headroom: what the parts of check_flight() share: the file that is looked at, and what was found.
//
// Thread safety: none, one check is one thread's. Cost: texts are made only for findings that are kept.
#pragma once

#include <algorithm>
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

  /// Zero-padded text that ends within its field.
  void expect_end(std::string_view field, void const* at, std::string_view name) {
    expect(field.find('\0') != std::string_view::npos, at,
           [&] { return std::string{name} + " is " + in_quotes(field) + " without an end; expected a zero at its end"; });
  }
  /// Zero-padded UTF-8 that ends within its field.
  void expect_text(std::string_view field, void const* at, std::string_view name) {
    expect_end(field, at, name);
    auto const end = field.find('\0');
    if (end == std::string_view::npos) return;
    auto const text = field.substr(0, end);
    expect(valid_utf8(text) == text, at, [&] { return std::string{name} + " is " + in_quotes(text) + "; expected valid UTF-8"; });
  }

  [[nodiscard]] FlightCheck& result() noexcept { return check_; }

private:
  std::byte const* start_;
  std::size_t most_;
  FlightCheck check_;
};

/// Names are below it, and 0 names nothing. Of the living it grows: whoever holds an id that was published after an older look at this
/// (each is stored release, and after this word) looks again before he judges.
[[nodiscard]] inline std::uint64_t names_in_use(MappedFlight const& mapped) noexcept {
  // Acquire: entries below it were begun before.
  return std::min<std::uint64_t>(StdAtomics::load_acquire(mapped.header().directory_used), mapped.directory().size());
}

/// Ledgers, live allocations, and the balance between them.
void check_books(MappedFlight const& mapped, CheckFindings& findings);
/// Lanes: rings, records, operations under way.
void check_lanes(MappedFlight const& mapped, CheckFindings& findings);

}  // namespace headroom::flight
