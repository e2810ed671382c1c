#include "command/history_file.hpp"

#include <utility>

#include "command/progress.hpp"

namespace headroom::command {

Result<TraceHistory> load_history(Source& source) {
  auto reader = source.history();
  if (!reader) return tl::unexpected{std::move(reader.error())};
  Progress const progress{[&source] { return reading_line(source); }};
  return TraceHistory::load(*reader);
}

}  // namespace headroom::command
