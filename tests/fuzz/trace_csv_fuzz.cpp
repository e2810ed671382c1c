// libFuzzer: whatever bytes a recorded history has (CSV, .xz, .gz, none of them), TraceReader delivers the records before the first
// bad place and then one error, again and again; what replays, checks and fits a history gets on with whatever was delivered.
//
// The bytes go through a memfd, which is a file like any other to the reader and never touches a disk. The first byte says how they
// are packed (0: as they are, 1: gzip, 2: xz; + 4: read it in two ways), so that lines within compressed data are fuzzed too, and not only the containers.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/fit.hpp>
#include <headroom/replay.hpp>
#include <headroom/trace.hpp>
#include <headroom/trace_check.hpp>

#include "base/utf8.hpp"
#include "packed_file.hpp"

namespace {

using headroom::Error;
using headroom::ErrorKind;
using headroom::TraceEvent;
using headroom::TraceReader;
using headroom::fuzz::expect;
using headroom::fuzz::gzip;
using headroom::fuzz::MemoryFile;
using headroom::fuzz::xz;

struct Outcome {
  std::vector<TraceEvent> events;
  std::string error;
};

void check_error(Error const& error, std::string const& path) {
  expect(error.message.starts_with(path), "the message does not begin with the file: " + error.message);
  expect(error.message.size() > path.size() + 2, "a message without a reason");
  expect(headroom::valid_utf8(error.message) == error.message, "a message that is no valid UTF-8");
  expect(error.kind == ErrorKind::parse || error.kind == ErrorKind::io, "an error of an unexpected kind");
}

/// Everything, by batches or one by one.
Outcome read_all(headroom::Result<TraceReader> reader, std::string const& path, bool by_batches) {
  Outcome outcome;
  if (!reader) {
    check_error(reader.error(), path);
    outcome.error = reader.error().message;
    return outcome;
  }
  while (true) {
    auto const before = outcome.events.size();
    if (by_batches) {
      auto const batch = reader->next_batch();
      if (!batch) {
        outcome.error = batch.error().message;
        check_error(batch.error(), path);
        break;
      }
      outcome.events.insert(outcome.events.end(), batch->begin(), batch->end());
    } else {
      TraceEvent event;
      auto const more = reader->next(event);
      if (!more) {
        outcome.error = more.error().message;
        check_error(more.error(), path);
        break;
      }
      if (*more) outcome.events.push_back(event);
    }
    if (outcome.events.size() == before) break;  // over
  }
  // The answer stays: an error as well as an end.
  auto const again = reader->next_batch();
  expect(again.has_value() ? outcome.error.empty() && again->empty() : again.error().message == outcome.error,
         "the answer changed");
  for (auto const& event : outcome.events) {
    expect(event.thread < reader->thread_ids().size(), "a thread without a number");
    expect(event.line >= 2, "a record in the header");
  }
  return outcome;
}

/// The smallest budget refuses nothing, the next smaller one does, and budgets of the curve are filled.
void check_fit(std::string const& path) {
  auto const history = headroom::TraceHistory::load(path);
  expect(history.has_value(), "a history that was read and cannot be loaded");
  auto const found = headroom::fit(*history, {.points = 3});
  expect(found.smallest_budget_bytes.has_value() == (found.refused_at_best == 0), "a budget that is enough and is not");
  for (auto const& point : found.curve) {
    auto const outcome = headroom::outcome_under(*history, point.budget_bytes);
    expect(outcome.refused == point.refused && outcome.peak_bytes == point.budget_bytes, "a point of the curve that is none");
  }
  if (found.smallest_budget_bytes.value_or(0) == 0) return;
  expect(headroom::outcome_under(*history, *found.smallest_budget_bytes - 1).refused != 0, "a smaller budget that is enough too");
}

/// Agrees with what was read about where the history ends, and how.
void check_check(std::string const& path, Outcome const& outcome) {
  auto reader = TraceReader::open(path);
  if (!reader) return;
  auto const check = headroom::check_trace(*reader, 3);
  if (!check) {
    expect(check.error().message == outcome.error || check.error().kind == ErrorKind::overflow,
           "a check with an error of its own");
    return;
  }
  expect(outcome.error.empty() && check->summary.events == outcome.events.size(), "a check of another history");
  expect(check->findings.size() == std::min<std::uint64_t>(check->found(), 3), "findings that were neither kept nor capped");
  for (auto const& finding : check->findings) {
    expect(finding.line >= 2 && finding.allocated_line < finding.line && !to_string(finding).empty(), "a finding of no line");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) return 0;
  auto const how = data[0] % 4;
  std::string const content{reinterpret_cast<char const*>(data) + 1, size - 1};
  MemoryFile const file{how == 1 ? gzip(content) : how == 2 ? xz(content) : content};
  auto const by_batches = read_all(TraceReader::open(file.path()), file.path(), true);
  for (std::size_t i = 1; i < by_batches.events.size(); ++i) {
    expect(by_batches.events[i - 1].line < by_batches.events[i].line, "records out of order");
  }
  // The fresh window of 1 MiB that every reader has is most of the time of a run: not always two of them.
  if ((data[0] & 4U) == 0) return 0;
  check_check(file.path(), by_batches);
  if (by_batches.error.empty()) check_fit(file.path());
  // One by one, and from where somebody else began to read.
  auto const first = file.take(data[0] >> 3U);
  auto const one_by_one = read_all(TraceReader::resume(file.descriptor(), first, file.path()), file.path(), false);
  expect(by_batches.events == one_by_one.events, "next() and next_batch() disagree about the records");
  expect(by_batches.error == one_by_one.error, "next() and next_batch() disagree about the error");
  return 0;
}
