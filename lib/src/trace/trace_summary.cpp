#include <utility>

#include <headroom/trace.hpp>

#include "trace/summarizer.hpp"

namespace headroom {

Result<TraceSummary> summarize_trace(TraceReader& reader) {
  trace::Summarizer<trace::NoWatcher> summarizer;
  return trace::summarize_rest(reader, summarizer);
}

Result<TraceSummary> summarize_trace(std::string path) {
  auto reader = TraceReader::open(std::move(path));
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return summarize_trace(*reader);
}

}  // namespace headroom
