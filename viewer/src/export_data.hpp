// headroom: what is selected, or everything, into a file. No ImGui.
//
// A file is there when it is whole, and replaces none (new_file.hpp).
// Thread safety: calls are independent. Cost: a row takes about a microsecond, an event of a trace as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/convert.hpp>
#include <headroom/error.hpp>
#include <headroom/follow.hpp>

#include "state.hpp"

namespace headroom::viewer {

enum class ExportWhat : std::uint8_t { events, live };
enum class ExportFormat : std::uint8_t { csv, json };

/// More rows than that are left out, the oldest first; the result says how many there were.
inline constexpr std::size_t kMostExported = 1'000'000;

struct Exported {
  std::uint64_t rows = 0;      ///< written
  std::uint64_t matching = 0;  ///< of so many
};

/// Events of the selected range (else all) that the filter shows; or what is live at the moment that is looked at. Errors: io.
[[nodiscard]] Result<Exported> export_rows(ViewState const& state, ExportWhat what, ExportFormat format, std::string const& path);

/// What the model reads once more, as `state` opens it. Errors: io, parse, unsupported.
[[nodiscard]] Result<ReadAgain> read_again(ViewState const& state);

/// All of it, as a Chrome trace. Errors: io; those of the source.
[[nodiscard]] Result<ConvertReport> export_trace(ReadAgain again, std::string const& path, std::atomic<std::uint64_t>& progress);

}  // namespace headroom::viewer
