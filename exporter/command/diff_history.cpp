// Who holds memory at the end of a recorded history, or at its peak.
#include <utility>

#include <headroom/replay.hpp>

#include "command/diff_sources.hpp"
#include "command/history_file.hpp"

namespace headroom::command {

Result<Holdings> holdings_of_history(Source& source, HoldingsOptions const& options) {
  auto const history = load_history(source);
  if (!history) return tl::unexpected{history.error()};
  Holdings holdings;
  auto const found = options.at_peak ? history->holders_at_peak(options.tags) : history->holders_at_end(options.tags);
  for (auto const& holder : found) {
    holdings[{.tag = holder.tag.empty() ? "untagged" : holder.tag, .site = {}}] += holder.bytes;
  }
  return holdings;
}

}  // namespace headroom::command
