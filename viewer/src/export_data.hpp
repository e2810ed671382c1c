// headroom: what is selected, or everything, into a file. No ImGui.
//
// A file is written under another name next to its own and renamed when it is whole; one that is there already is replaced.
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

/// Everything that a file holds, read once more, as a Chrome trace. `title` and `kind` are those of the model's source. Errors: io, parse,
/// unsupported.
[[nodiscard]] Result<ConvertReport> export_trace(std::string const& title, follow::SourceKind kind, std::string const& path,
                                                 std::atomic<std::uint64_t>& progress);

}  // namespace headroom::viewer
