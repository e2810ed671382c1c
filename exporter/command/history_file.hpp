// headroom: loading a recorded history from a FILE argument, with a progress bar where it takes long.
#pragma once

#include <headroom/error.hpp>
#include <headroom/replay.hpp>

#include "command/source.hpp"

namespace headroom::command {

/// Errors: those of Source::history() and TraceHistory::load().
[[nodiscard]] Result<TraceHistory> load_history(Source& source);

}  // namespace headroom::command
