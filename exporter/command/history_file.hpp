// headroom: loading a recorded history from a FILE argument, with a progress bar where it takes long.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/replay.hpp>

#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {

/// Opens a history, of `device` where that is given. Opening a snapshot reads it twice already. `why_one`: why several devices will not
/// do; "": they will. Errors: as load_history().
[[nodiscard]] Result<TraceReader> open_history(Source& source, std::optional<std::uint32_t> device, std::string_view why_one);

/// `device`: which one of a history of several. Errors: those of Source::history() and TraceHistory::load(), and invalid_argument
/// (`device` has no records; or there are several devices, and none was chosen), which is a matter of the command line.
[[nodiscard]] Result<TraceHistory> load_history(Source& source, std::optional<std::uint32_t> device);

/// What the shell is told when a history could not be loaded.
[[nodiscard]] ExitCode exit_code_for(Error const& error) noexcept;

}  // namespace headroom::command
