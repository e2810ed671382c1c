// headroom: a line on stderr that says how far long work is; only on a terminal, and only after half a second.
//
// The work itself calls nobody: a thread beside it asks for the line ten times a second. Make one, do the work, let it go out of scope:
// the line is gone before anything else is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "command/source.hpp"

namespace headroom::command {

class Progress {
public:
  /// `line` is called on the progress's own thread; an empty one draws nothing. Without a terminal no thread is started.
  explicit Progress(std::function<std::string()> line);
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;
  ~Progress();

private:
  std::jthread thread_;
};

/// "████░░░░ 3.2 GiB of 9 GiB read"; empty when nobody knows how much there is.
[[nodiscard]] std::string reading_line(Source const& source);
/// "████░░░░ 12 of 34 things".
[[nodiscard]] std::string progress_line(std::uint64_t done, std::uint64_t all, std::string const& things);

}  // namespace headroom::command
