#include "figures.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <string>

namespace headroom::viewer {
namespace {

constexpr std::uint64_t kMicrosecond = 1'000;
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;

template <typename... Arguments>
std::string printed(char const* format, Arguments... arguments) {
  std::array<char, 96> text{};
  auto const length = std::snprintf(text.data(), text.size(), format, arguments...);  // NOLINT
  return {text.data(), std::min(static_cast<std::size_t>(std::max(length, 0)), text.size() - 1)};
}

/// Three digits of it in all.
std::string three_digits(double value, char const* unit) {
  return printed("%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit);
}

}  // namespace

std::string format_duration(std::uint64_t nanoseconds) {
  auto const value = static_cast<double>(nanoseconds);
  if (nanoseconds < kMicrosecond) return printed("%u ns", static_cast<unsigned>(nanoseconds));
  if (value < 999.5 * kMicrosecond) return three_digits(value / kMicrosecond, "\u00b5s");
  if (value < 999.5 * kMillisecond) return three_digits(value / kMillisecond, "ms");
  if (value < 59.95 * kSecond) return three_digits(value / kSecond, "s");
  auto const seconds = (nanoseconds + kSecond / 2) / kSecond;
  auto const parts = [](std::uint64_t number) { return static_cast<unsigned long long>(number); };
  if (seconds < 3'600) return printed("%llu min %02llu s", parts(seconds / 60), parts(seconds % 60));
  if (seconds < 86'400) return printed("%llu h %02llu min", parts(seconds / 3'600), parts(seconds / 60 % 60));
  return printed("%llu d %llu h", parts(seconds / 86'400), parts(seconds / 3'600 % 24));
}

std::string format_instant(follow::Model const& model, std::uint64_t ticks, std::uint64_t resolution_ns) {
  auto const first = model.origin_ticks();
  return format_offset(ticks < first, model.duration_ns(ticks >= first ? ticks - first : first - ticks), resolution_ns);
}

std::string format_offset(bool before, std::uint64_t distance, std::uint64_t resolution_ns) {
  auto text = std::string{before ? "\u2212" : "+"};
  auto const seconds = distance / kSecond;
  if (seconds >= 3'600) text += printed("%llu:", static_cast<unsigned long long>(seconds / 3'600));
  if (seconds >= 60) {
    text += printed(seconds >= 3'600 ? "%02u:" : "%u:", static_cast<unsigned>(seconds / 60 % 60));
    text += printed("%02u", static_cast<unsigned>(seconds % 60));
  } else {
    text += printed("%u", static_cast<unsigned>(seconds));
  }
  auto fraction = distance % kSecond;
  auto step = kSecond;
  // In groups of three, as far as two neighbouring pixels differ.
  for (auto group = 0; group < 3 && step > std::max<std::uint64_t>(resolution_ns, 1); ++group) {
    step /= 1'000;
    text += printed(group == 0 ? ".%03u" : " %03u", static_cast<unsigned>(fraction / step));
    fraction %= step;
  }
  return seconds >= 60 ? text : text + " s";
}

std::string format_wall_clock(follow::Model const& model, std::uint64_t ticks) {
  if (model.source().kind() == follow::SourceKind::history) return {};
  auto const realtime = model.realtime_ns(ticks);
  auto const seconds = static_cast<std::time_t>(realtime / kSecond);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return {};
  return printed("%04d-%02d-%02d %02d:%02d:%02d.%06u UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                 parts.tm_min, parts.tm_sec, static_cast<unsigned>(realtime % kSecond / kMicrosecond));
}

std::string format_between(follow::Model const& model, std::uint64_t one, std::uint64_t other) {
  return format_duration(model.duration_ns(std::max(one, other) - std::min(one, other)));
}

}  // namespace headroom::viewer
