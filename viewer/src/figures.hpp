// headroom: times as the viewer writes them. Bytes and counts: byte_size.hpp.
//
// Thread safety: pure functions. No ImGui.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/follow.hpp>

namespace headroom::viewer {

/// Three digits and a unit: "812 ns", "1.25 ms", "3.20 s", "4 min 10 s", "3 h 05 min", "2 d 4 h".
[[nodiscard]] std::string format_duration(std::uint64_t nanoseconds);
/// An instant of a model, from its origin on (Model::origin_ticks): "+12.345 678 s", with as many digits as `resolution_ns` (a pixel,
/// say) deserves; "−" before it.
[[nodiscard]] std::string format_instant(follow::Model const& model, std::uint64_t ticks, std::uint64_t resolution_ns);
/// The same of a distance from the origin in nanoseconds, before it or after it.
[[nodiscard]] std::string format_offset(bool before, std::uint64_t distance, std::uint64_t resolution_ns);
/// By the clock on the wall, in UTC: "2026-03-01 12:34:56.789012 UTC". Where the source has no such clock (histories), "".
[[nodiscard]] std::string format_wall_clock(follow::Model const& model, std::uint64_t ticks);
/// Like a clock: how long one instant is before another, "1.25 ms"; whichever is first.
[[nodiscard]] std::string format_between(follow::Model const& model, std::uint64_t one, std::uint64_t other);

}  // namespace headroom::viewer
