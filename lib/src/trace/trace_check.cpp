#include <headroom/trace_check.hpp>

#include <array>
#include <charconv>
#include <utility>

#include <headroom/byte_size.hpp>

#include "trace/summarizer.hpp"

namespace headroom {
namespace {

class Findings {
public:
  struct Value {
    std::uint64_t line = 0;
  };
  using Live = trace::LiveBlocks<Value>::Live;

  Findings(std::size_t most, TraceFormat format) : most_{most}, format_{format} {}

  static Value value_of(TraceEvent const& event) noexcept { return {event.line}; }
  void unmatched(TraceEvent const& event) { add(TraceFinding::Kind::unmatched_free, event, {}); }
  void duplicate(TraceEvent const& event) { add(TraceFinding::Kind::duplicate_allocation, event, {}); }
  void mismatch(TraceEvent const& event, Live const& live) { add(TraceFinding::Kind::size_mismatch, event, live); }

  [[nodiscard]] std::vector<TraceFinding> take() noexcept { return std::move(findings_); }

private:
  void add(TraceFinding::Kind kind, TraceEvent const& event, Live const& live) {
    if (findings_.size() == most_) return;
    findings_.push_back({.kind = kind,
                         .line = event.line,
                         .pointer = event.pointer,
                         .bytes = event.bytes,
                         .allocated_bytes = live.bytes,
                         .allocated_line = live.value.line,
                         .device = event.device,
                         .format = format_});
  }

  std::size_t most_;
  TraceFormat format_;
  std::vector<TraceFinding> findings_;
};

[[nodiscard]] std::string address_text(std::uint64_t address) {
  std::array<char, 16> digits{};
  auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), address, 16).ptr;
  return "0x" + std::string{digits.data(), end};
}

[[nodiscard]] std::string allocated_where(TraceFinding const& finding) {
  if (finding.allocated_line == 0) return "before the first " + std::string{record_word(finding.format)};
  auto const* const preposition = finding.format == TraceFormat::rmm_csv ? "on " : "by ";
  return preposition + std::string{record_word(finding.format)} + ' ' + format_count(finding.allocated_line);
}

}  // namespace

std::string to_string(TraceFinding const& finding) {
  auto what = address_text(finding.pointer) + " (" + format_count(finding.bytes) + " bytes)";
  switch (finding.kind) {
    case TraceFinding::Kind::unmatched_free:
      return "free of " + what + " where nothing is live; expected its allocation before it";
    case TraceFinding::Kind::duplicate_allocation:
      return "allocation at " + what + " while another is live there; expected its free before it";
    case TraceFinding::Kind::size_mismatch:
      return "free of " + what + "; expected the " + format_count(finding.allocated_bytes) + " bytes allocated " +
             allocated_where(finding);
  }
  return what;
}

Result<TraceCheck> check_trace(TraceReader& reader, std::size_t most_findings) {
  trace::Summarizer<Findings> summarizer{Findings{most_findings, reader.format()}};
  auto const summary = trace::summarize_rest(reader, summarizer);
  if (!summary) return tl::unexpected{summary.error()};
  return TraceCheck{.summary = *summary, .findings = summarizer.watcher().take()};
}

}  // namespace headroom
