#include <array>
#include <utility>

#include <headroom/byte_size.hpp>

#include "base/checked.hpp"
#include "base/quoted.hpp"

namespace headroom {
namespace {

constexpr std::string_view kExpected =
    "expected digits and, if wanted, a unit: k M G T kB MB GB TB (powers of 1000) or Ki Mi Gi Ti KiB MiB GiB TiB (powers of "
    "1024)";
constexpr std::size_t kMaxFractionDigits = 18;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::array<Unit, 21> kUnits{{
    {"", 1},
    {"k", kKilo},
    {"K", kKilo},
    {"m", kKilo* kKilo},
    {"M", kKilo* kKilo},
    {"g", kKilo* kKilo* kKilo},
    {"G", kKilo* kKilo* kKilo},
    {"t", kKilo* kKilo* kKilo* kKilo},
    {"T", kKilo* kKilo* kKilo* kKilo},
    {"kB", kKilo},
    {"MB", kKilo* kKilo},
    {"GB", kKilo* kKilo* kKilo},
    {"TB", kKilo* kKilo* kKilo* kKilo},
    {"Ki", std::uint64_t{1} << 10U},
    {"Mi", std::uint64_t{1} << 20U},
    {"Gi", std::uint64_t{1} << 30U},
    {"Ti", std::uint64_t{1} << 40U},
    {"KiB", std::uint64_t{1} << 10U},
    {"MiB", std::uint64_t{1} << 20U},
    {"GiB", std::uint64_t{1} << 30U},
    {"TiB", std::uint64_t{1} << 40U},
}};

tl::unexpected<Error> refuse(ErrorKind kind, std::string_view text, std::string_view why) {
  return fail(kind, Layer::request, "size " + in_quotes(text) + ": " + std::string{why});
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  auto const first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view take_digits(std::string_view& text) {
  auto const digits = text.substr(0, text.find_first_not_of("0123456789"));
  text.remove_prefix(digits.size());
  return digits;
}

/// The value of `digits`, or 2^64 for everything that is larger: later steps refuse both alike.
uint128 to_number(std::string_view digits) {
  uint128 value = 0;
  for (char const digit : digits) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value > kMaxUint64) return static_cast<uint128>(kMaxUint64) + 1;
  }
  return value;
}

/// A decimal number: whole + fraction / scale, with scale = 10^(digits of the fraction).
struct Number {
  uint128 whole = 0;
  uint128 fraction = 0;
  uint128 scale = 1;

  [[nodiscard]] bool is_zero() const { return whole == 0 && fraction == 0; }
};

/// Takes the number off the front of `rest`, so that the unit is left.
Result<Number> take_number(std::string_view text, std::string_view& rest) {
  auto const digits = take_digits(rest);
  if (digits.empty()) return refuse(ErrorKind::parse, text, kExpected);
  Number number{.whole = to_number(digits)};
  if (!rest.starts_with('.')) return number;
  rest.remove_prefix(1);
  auto fraction = take_digits(rest);
  if (fraction.empty()) return refuse(ErrorKind::parse, text, "expected digits after the point");
  fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  if (fraction.size() > kMaxFractionDigits) return refuse(ErrorKind::parse, text, "expected at most 18 digits after the point");
  number.fraction = to_number(fraction);
  for (std::size_t i = 0; i < fraction.size(); ++i) number.scale *= 10;
  return number;
}

Result<std::uint64_t> share_of(std::optional<std::uint64_t> device_total, Number const& number, std::string_view text) {
  if (!device_total) {
    return refuse(ErrorKind::parse, text, "a percentage needs a device whose total memory is known; expected a size in bytes");
  }
  if (number.is_zero()) return refuse(ErrorKind::parse, text, "a budget of nothing is written 0, without a unit");
  if (number.whole > 100 || (number.whole == 100 && number.fraction != 0)) {
    return refuse(ErrorKind::parse, text, "expected at most 100% of the device's memory");
  }
  // total × whole and total × fraction both stay below 2^64 × 10^18 < 2^124. The rests of the two divisions are brought together,
  // so that the sum is rounded down once.
  auto const of_fraction = static_cast<uint128>(*device_total) * number.fraction;
  auto const hundredths = static_cast<uint128>(*device_total) * number.whole + of_fraction / number.scale;
  return static_cast<std::uint64_t>(hundredths / 100);
}

}  // namespace

Result<std::uint64_t> parse_byte_size(std::string_view text, std::optional<std::uint64_t> device_total) {
  auto rest = trimmed(text);
  if (rest.empty()) return refuse(ErrorKind::parse, text, std::string{"it is empty; "} + std::string{kExpected});
  if (rest.starts_with('-')) return refuse(ErrorKind::parse, text, std::string{"it is negative; "} + std::string{kExpected});
  auto const number = take_number(text, rest);
  if (!number) return tl::unexpected{number.error()};
  if (rest == "%") return share_of(device_total, *number, text);
  for (auto const& unit : kUnits) {
    if (unit.name != rest) continue;
    if (number->is_zero() && !rest.empty()) {
      return refuse(ErrorKind::parse, text, "a budget of nothing is written 0, without a unit");
    }
    // fraction < 10^18 and unit ≤ 2^40: the product fits 128 bits; so does 2^64 × 2^40.
    auto const of_fraction = number->fraction * unit.bytes;
    if (of_fraction % number->scale != 0) return refuse(ErrorKind::parse, text, "expected a whole number of bytes");
    auto const bytes = number->whole * unit.bytes + of_fraction / number->scale;
    if (bytes > kMaxUint64) {
      return refuse(ErrorKind::overflow, text, "expected at most 18,446,744,073,709,551,615 bytes (2^64 - 1)");
    }
    return static_cast<std::uint64_t>(bytes);
  }
  return refuse(ErrorKind::parse, text, "unknown unit " + in_quotes(rest) + "; " + std::string{kExpected});
}

Result<BudgetText> parse_budget(std::string_view text, std::optional<std::uint64_t> device_total) {
  if (trimmed(text) == "unlimited") return BudgetText{.unlimited = true, .bytes = 0};
  auto bytes = parse_byte_size(text, device_total);
  if (bytes) return BudgetText{.unlimited = false, .bytes = *bytes};
  bytes.error().message += "; for no budget write unlimited";
  return tl::unexpected{std::move(bytes.error())};
}

}  // namespace headroom
