#include "flight/flight_name.hpp"

#include <charconv>
#include <cstdint>
#include <system_error>

#include "base/utf8.hpp"

namespace headroom::flight {
namespace {

constexpr std::string_view kSuffix = ".flight";
constexpr std::size_t kRunDigits = 16;

/// The part behind the last dot, which is cut off together with the dot; nothing when there is no dot.
std::optional<std::string_view> cut_last_part(std::string_view& name) noexcept {
  auto const dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  auto const part = name.substr(dot + 1);
  name = name.substr(0, dot);
  return part;
}

template <class T>
bool is_number(std::string_view text, int base, T& value) noexcept {
  auto const* const end = text.data() + text.size();
  auto const [stop, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc{} && stop == end;
}

}  // namespace

std::optional<FoundFlight> parse_flight_name(std::string_view name) {
  if (name.starts_with('.') || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  auto const run = cut_last_part(name);
  auto const pid = cut_last_part(name);
  if (!run || !pid || name.empty()) return std::nullopt;
  FoundFlight found;
  std::uint64_t run_number = 0;
  if (run->size() != kRunDigits || !is_number(*run, 16, run_number) || !is_number(*pid, 10, found.pid)) return std::nullopt;
  found.program = valid_utf8(name);
  found.run = *run;
  return found;
}

}  // namespace headroom::flight
