// libFuzzer: whatever bytes a memory snapshot of PyTorch has, TraceReader opens it or says why not, and what it then tells is a history
// that holds together: devices one after the other, each with what is from before first and its entries in their order, whose sums are
// those of the books of a model that follows it. Reading it in another way, packed or resumed, tells the same.
//
// The first byte says what else is done: 1 gzip, 2 resume (the next byte says where), 4 a model, 8 a replay's history of each device.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/fit.hpp>
#include <headroom/follow.hpp>
#include <headroom/torch_snapshot.hpp>
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

void check_error(Error const& error, std::string const& name) {
  expect(error.message.starts_with(name), "the message does not begin with the file: " + error.message);
  expect(headroom::valid_utf8(error.message) == error.message, "a message that is no valid UTF-8");
  auto const known = error.kind == ErrorKind::parse || error.kind == ErrorKind::io || error.kind == ErrorKind::overflow;
  expect(known, "an error of an unexpected kind: " + error.message);
}

struct Told {
  std::vector<TraceEvent> events;
  std::string error;
};

Told read_all(headroom::Result<TraceReader> reader, std::string const& name) {
  Told told;
  if (!reader) {
    check_error(reader.error(), name);
    told.error = reader.error().message;
    return told;
  }
  while (true) {
    auto const batch = reader->next_batch();
    if (!batch) {
      check_error(batch.error(), name);
      told.error = batch.error().message;
      break;
    }
    if (batch->empty()) break;
    told.events.insert(told.events.end(), batch->begin(), batch->end());
  }
  auto const devices = reader->devices();
  for (auto const& event : told.events) {
    expect(std::ranges::find(devices, event.device) != devices.end(), "a record of a device that has none");
    expect(event.thread == 0, "a thread");
    expect(reader->format() == headroom::TraceFormat::rmm_csv || event.from_before == (event.line == 0), "a record of no entry");
    auto const name_of_site = reader->name_of(event.site);
    expect(name_of_site.size() <= 300 && headroom::valid_utf8(name_of_site) == name_of_site, "the name of a site");
    static_cast<void>(reader->stack_of(event.site));
  }
  if (auto const* const state = reader->snapshot()) {
    for (auto const& figures : cache_figures(*state))
      expect(figures.allocated_bytes <= figures.active_bytes, "figures of the cache");
    auto const before = std::ranges::count_if(told.events, [](TraceEvent const& event) { return event.from_before; });
    expect(static_cast<std::uint64_t>(before) == state->from_before_allocations || !told.error.empty(),
           "other blocks from before");
  }
  return told;
}

/// Sums agree with what was told, however they are made.
void check_sums(std::string const& path, Told const& told) {
  auto const summary = headroom::summarize_trace(path);
  if (!summary) {
    check_error(summary.error(), path);
    expect(summary.error().kind == ErrorKind::overflow || summary.error().message == told.error, "a summary's own error");
    return;
  }
  expect(summary->events + summary->from_before_allocations == told.events.size(), "a summary of another history");
  std::uint64_t peaks = 0;
  std::uint64_t live = 0;
  for (auto const& device : summary->devices) {
    peaks += device.peak_bytes;
    live += device.live_bytes;
    expect(device.live_bytes <= device.peak_bytes, "live above the peak");
  }
  expect(peaks == summary->peak_bytes && live == summary->live_bytes, "sums that are none");
}

void check_histories(std::string const& path) {
  auto const all = TraceReader::open(path);
  if (!all) return;
  for (auto const device : all->devices()) {
    auto reader = TraceReader::open(path);
    expect(reader.has_value() && reader->only_device(device).has_value(), "a device that cannot be chosen");
    auto const history = headroom::TraceHistory::load(*reader);
    if (!history) continue;
    auto const found = headroom::fit(*history, {.points = 3});
    expect(found.smallest_budget_bytes.has_value() == (found.refused_at_best == 0), "a budget that is enough and is not");
    static_cast<void>(history->holders_at_peak(history->default_tags()));
  }
}

void check_model(std::string const& path) {
  auto model = headroom::follow::Model::open_history(path, {.memory_bytes = std::size_t{1} << 20U});
  if (!model) return;
  if (auto const done = model->catch_up(); !done) {
    check_error(done.error(), path);
    return;
  }
  for (auto const& ledger : model->ledgers()) {
    expect(model->state_at(ledger.cell, ~std::uint64_t{0}).allocated == ledger.allocated, "a model with other books");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 2) return 0;
  auto const how = data[0];
  std::string const content{reinterpret_cast<char const*>(data) + 2, size - 2};
  MemoryFile const file{(how & 1U) != 0 ? gzip(content) : content};
  auto const told = read_all(TraceReader::open(file.path()), file.path());
  check_sums(file.path(), told);
  if ((how & 2U) != 0) {
    auto const first = file.take(data[1] % (TraceReader::kMaxFirstBytes + 1));
    auto const resumed = read_all(TraceReader::resume(file.descriptor(), first, file.path()), file.path());
    expect(resumed.events == told.events && resumed.error == told.error, "resumed, it is another history");
  }
  if ((how & 4U) != 0) check_model(file.path());
  if ((how & 8U) != 0) check_histories(file.path());
  return 0;
}
