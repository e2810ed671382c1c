// headroom: one frame of `headroom top`, as text.
#pragma once

#include <cstdint>
#include <string>

#include "command/top_processes.hpp"

namespace headroom::command {

enum class TopSort : std::uint8_t { tag, size, allocations };

struct TopOptions {
  TopSort sort = TopSort::size;
  bool is_paused = false;
  bool shows_keys = true;
  std::size_t rows = 24;  ///< of the terminal: decides how much of each list is shown
};

/// Lines that end in '\n', coloured where stdout wants colours. Reads the books of what it shows.
[[nodiscard]] std::string top_frame(TopProcesses& processes, TopOptions const& options);

}  // namespace headroom::command
