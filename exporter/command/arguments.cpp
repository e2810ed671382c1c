#include "command/arguments.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "command/output.hpp"

namespace headroom::command {
namespace {

[[nodiscard]] tl::unexpected<Error> refuse(std::string_view text, std::string_view expected) {
  return fail(ErrorKind::invalid_argument, Layer::request, '\'' + printable(text) + "'; expected " + std::string{expected});
}

/// Digits with an optional fraction at the start of `text`, which is left with the rest. No sign, exponent, inf or nan.
[[nodiscard]] std::optional<double> take_number(std::string_view& text) {
  auto const end = text.find_first_not_of("0123456789.");
  auto const digits = text.substr(0, end);
  auto number = 0.0;
  auto const [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || stopped != digits.data() + digits.size() || !std::isfinite(number)) return std::nullopt;
  text.remove_prefix(digits.size());
  return number;
}

}  // namespace

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kExpected = "a time such as 30, 0.5, 30s, 500ms, 2m or 1h, at most a year";
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}}};
  constexpr double kYear = 365.25 * 86'400;
  auto rest = text;
  if (auto const number = take_number(rest)) {
    for (auto const& [unit, seconds] : kUnits) {
      if (rest == unit && *number * seconds <= kYear) {
        return std::chrono::nanoseconds{static_cast<std::int64_t>(*number * seconds * 1e9)};
      }
    }
  }
  return refuse(text, kExpected);
}

Result<std::optional<double>> parse_speed(std::string_view text) {
  if (text == "max") return std::optional<double>{};
  auto rest = text;
  auto const number = take_number(rest);
  auto const is_factor = number && (rest.empty() || rest == "x") && *number > 0;
  if (!is_factor) return refuse(text, "max, or a factor above 0 such as 1x or 0.1x");
  return number;
}

Result<ReplayTags> parse_tags(std::string_view text) {
  for (auto const tags : {ReplayTags::size, ReplayTags::thread, ReplayTags::stream, ReplayTags::recorded, ReplayTags::none}) {
    if (text == to_string(tags)) return tags;
  }
  auto refused = refuse(text, "size or thread or stream or recorded or none");
  refused.value().message.insert(0, "--tag ");
  return refused;
}

Result<std::optional<std::uint32_t>> parse_trace_device(std::optional<std::string> const& text) {
  if (!text) return std::optional<std::uint32_t>{};
  auto const device = parse_count(*text, 0);
  if (device && *device <= UINT32_MAX) return std::optional{static_cast<std::uint32_t>(*device)};
  auto refused = refuse(*text, "the number of a device in the history, such as 0");
  refused.value().message.insert(0, "--trace-device ");
  return refused;
}

Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t least) {
  std::uint64_t count = 0;
  auto const [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || stopped != text.data() + text.size() || count < least) {
    return refuse(text, "a whole number from " + std::to_string(least) + " on");
  }
  return count;
}

}  // namespace headroom::command
