// Who holds memory at the end of a recorded history, or at its peak.
#include <memory>
#include <utility>

#include <headroom/follow_source.hpp>
#include <headroom/replay.hpp>
#include <headroom/trace.hpp>

#include "command/diff_sources.hpp"
#include "command/history_file.hpp"
#include "command/progress.hpp"

namespace headroom::command {
namespace {

/// By tag alone, or by whatever else was asked for.
[[nodiscard]] follow::Holdings holdings_by_tag(TraceHistory const& history, HoldingsOptions const& options) {
  follow::Holdings holdings;
  auto const tags = options.tags.value_or(history.default_tags());
  for (auto const& holder : options.at_peak ? history.holders_at_peak(tags) : history.holders_at_end(tags)) {
    holdings[{.tag = holder.tag.empty() ? "untagged" : holder.tag, .site = {}}] += holder.bytes;
  }
  return holdings;
}

[[nodiscard]] Result<follow::Holdings> holdings_by_site(TraceReader reader) {
  auto const records = follow::history_source(std::move(reader));
  follow::News news;
  while (!news.ended) {
    news.events.clear();
    if (auto const read = records->read(news); !read) return tl::unexpected{read.error()};
  }
  return follow::live_holdings(*records);
}

}  // namespace

Result<follow::Holdings> holdings_of_history(Source& source, HoldingsOptions const& options) {
  Progress const progress{[&source] { return reading_line(source); }};
  // Sites are those of all devices; tags are worked out by a replay, which is of one.
  auto const is_by_tag = options.at_peak || options.tags;
  auto reader = open_history(source, options.trace_device, is_by_tag ? "and of tags alone one is compared" : "");
  if (!reader) return tl::unexpected{std::move(reader.error())};
  if (reader->format() == TraceFormat::torch_snapshot && !is_by_tag) {
    return holdings_by_site(std::move(*reader));
  }
  auto const history = TraceHistory::load(*reader);
  if (!history) return tl::unexpected{history.error()};
  return holdings_by_tag(*history, options);
}

}  // namespace headroom::command
