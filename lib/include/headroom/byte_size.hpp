// headroom: sizes as people write and read them.
// Layer: base
//
// parse_byte_size() reads what stands on a command line or in a variable ("4Gi", "1.5G", "50%"), parse_budget() the same plus
// the word `unlimited`. A text is either understood whole or refused: nothing is guessed, cut off or rounded. Integer arithmetic
// only, so that 24 × 2000 MiB never become 23.4 of something.
//
// Thread safety: pure functions. Cost: parsing allocates only for an error; formatting returns a string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom {

/// Reads a size in bytes.
///
/// * Plain digits are bytes; leading zeros mean nothing (`08G` is 8 × 10^9, never octal).
/// * Decimal units: `k M G T` in either case, `kB MB GB TB` in exactly this case; a k is 1000.
/// * Binary units: `Ki Mi Gi Ti` and `KiB MiB GiB TiB` in exactly this case; a Ki is 1024.
/// * A fraction (up to 18 digits, not counting zeros at its end) is fine where the result is whole bytes: `1.5G`, not `0.1Ki`.
/// * `50%` is a share of `device_total` (bytes), rounded down to whole bytes, at most `100%`; an error where no total is given.
/// * Blanks, tabs and line ends around the text are ignored; within it they are errors, as are signs and exponents.
/// * `0` is 0. A zero with a unit (`0m`, `0G`, `0%`) is an error: it is almost always another thing meant (Kubernetes writes
///   thousandths as `m`), and a budget of nothing is serious enough to be written plainly.
///
/// Errors: parse (anything else than the above), overflow (more than 2^64 − 1 bytes). The message names the text and what was
/// expected. Sizes above 16 TiB − 1 are read like any other; a ledger refuses them as budgets, with its own words.
[[nodiscard]] Result<std::uint64_t> parse_byte_size(std::string_view text, std::optional<std::uint64_t> device_total = {});

/// A budget as text: `bytes` has no meaning (and is 0) where `unlimited` is set.
struct BudgetText {
  bool unlimited = false;
  std::uint64_t bytes = 0;
  friend bool operator==(BudgetText const&, BudgetText const&) = default;
};

/// Reads a budget: the word `unlimited` (in this case only), or a size as parse_byte_size reads it. `0` is a budget of nothing;
/// no number, `-1` included, means "no budget". Errors as for parse_byte_size.
[[nodiscard]] Result<BudgetText> parse_budget(std::string_view text, std::optional<std::uint64_t> device_total = {});

/// For people: binary units and three digits, rounded to the nearest: "0 B", "512 MiB", "7.8 GiB", "1023 KiB".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// As format_bytes, followed by the exact number where that was rounded: "512 MiB", "7.8 GiB (8,375,186,227 B)".
[[nodiscard]] std::string format_bytes_exact(std::uint64_t bytes);

/// Thousands separators: "1,234,567".
[[nodiscard]] std::string format_count(std::uint64_t count);

}  // namespace headroom
