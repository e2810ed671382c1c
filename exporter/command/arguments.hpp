// headroom: values of command line arguments.
//
// Each function reads one kind of value whole, or says which text was found and what was expected. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/replay.hpp>

namespace headroom::command {

/// Seconds with an optional fraction and unit: `30`, `0.5`, `30s`, `500ms`, `2m`, `1h`. At most a year.
[[nodiscard]] Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// `max` (absent), or a factor above 0, with or without an x: `1x`, `0.1x`, `4`.
[[nodiscard]] Result<std::optional<double>> parse_speed(std::string_view text);

/// A whole number from `least` on.
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t least);

/// What a history's allocations are told apart by: size, thread, stream, recorded or none. The error names the option --tag.
[[nodiscard]] Result<ReplayTags> parse_tags(std::string_view text);

/// Which device of a history: a whole number, or nothing without one. The error names the option --trace-device.
[[nodiscard]] Result<std::optional<std::uint32_t>> parse_trace_device(std::optional<std::string> const& text);

}  // namespace headroom::command
