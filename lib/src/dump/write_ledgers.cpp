// Managers and device accounts with their books and tags.
#include <algorithm>
#include <tuple>

#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/book_sums.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

using flight::EntryKind;
using flight::LedgerSnapshot;

namespace {

std::uint64_t load(flight::Word const& word) noexcept { return StdAtomics::load_relaxed(word); }

constexpr int kGenerationTries = 4;  // a cell that is handed to a new owner while it is read would mix the two
constexpr int kPeakTries = 8;        // likewise tags and a peak that moves

}  // namespace

void Writer::write_ledgers() noexcept {
  std::size_t operations = 0;
  const std::uint32_t lanes =
      std::min<std::uint32_t>(mapped_.lanes_with_books(), static_cast<std::uint32_t>(work_.operations.size()));
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (auto operation = flight::read_in_flight(mapped_, lane)) work_.operations[operations++] = std::move(*operation);
  }
  for (std::size_t rest = operations; rest < work_.operations.size(); ++rest)
    work_.operations[rest].operation = flight::InFlight::none;
  json_.begin_array("ledgers");
  for (std::uint32_t cell = 0; cell < mapped_.ledgers().size(); ++cell) write_ledger(cell);
  json_.end_array();
}

/// False: there is none, or it changed hands at every try, which is counted.
bool Writer::read_ledger(std::uint32_t cell, LedgerSnapshot& ledger, std::size_t& tags) noexcept {
  for (int i = 0; i < kGenerationTries; ++i) {
    ledger = LedgerSnapshot{};
    std::uint64_t left_out = 0;
    if (!flight::read_books(mapped_, cell, ledger)) return false;
    tags = sum_tags_of(ledger, left_out);
    flight::read_words(mapped_, cell, ledger);
    if (!flight::is_same_ledger(mapped_.ledgers()[cell], ledger)) continue;
    tags_left_out_ += left_out;
    return true;
  }
  ++ledgers_left_out_;
  return false;
}

void Writer::write_ledger(std::uint32_t cell) noexcept {
  auto const& words = mapped_.ledgers()[cell];
  LedgerSnapshot ledger;
  std::size_t tags = 0;
  if (!read_ledger(cell, ledger, tags)) return;
  const auto operations = std::ranges::find(work_.operations, flight::InFlight::none, &flight::InFlightOperation::operation);
  ledger.in_flight_bytes = flight::in_flight_bytes(std::span{work_.operations.begin(), operations}, mapped_.ledgers(), cell);

  json_.begin_object();
  json_.member("cell", cell);
  json_.member("id", ledger.directory_id);
  json_.member("generation", ledger.generation);
  json_.member("created_ticks", ledger.created_ticks);
  write_label("name", ledger.directory_id);
  json_.member_word("kind", ledger.is_device_account ? "device_account" : "manager");
  json_.member_word("state", word_of(kLedgerStateWords, ledger.state));
  json_.member_if("parent_cell", ledger.parent_cell);
  write_optional_id("device", static_cast<std::uint32_t>(std::min<std::uint64_t>(load(words.device_id), 0xFFFF'FFFFU)));
  write_books(ledger);
  write_tallies(ledger);
  write_guard(ledger.guard);
  write_counters(ledger.counters);
  write_tags(tags, ledger.peak);
  json_.end_object();
}

void Writer::write_books(LedgerSnapshot const& ledger) noexcept {
  json_.begin_object("budget", Shape::flat);
  json_.member_word("mode", !ledger.limit ? "unlimited" : ledger.enforcing ? "enforce" : "observe");
  json_.member_if("limit_bytes", ledger.limit);
  json_.end_object();
  json_.member("allocated_bytes", ledger.allocated);
  json_.member("claimed_bytes", ledger.claimed);
  json_.member("peak_bytes", ledger.peak);
  json_.member_if("remaining_bytes", ledger.remaining());
  json_.member("over_budget_bytes", ledger.over_budget());
  json_.member("live_allocations", ledger.live_allocations);
  json_.member("in_flight_bytes", ledger.in_flight_bytes);
  json_.member("unspent_bytes", ledger.unspent);
  json_.member("unspent_reservations", ledger.unspent_reservations);
  json_.member("pending_free_bytes", ledger.pending_free_bytes);
  json_.member("untracked_allocations", ledger.live_untracked);
  json_.member("untracked_bytes", ledger.live_untracked_bytes);
  json_.member("failed_frees", ledger.failed_frees);
  json_.member("failed_free_bytes", ledger.failed_free_bytes);
  json_.member("sentinel_bytes", ledger.sentinel_bytes);
  json_.member("waiters", ledger.waiters);
  json_.member_if("device_total_bytes", ledger.device_total);
  json_.member_if("device_free_bytes", ledger.device_free);
  json_.member_if("device_outside_bytes", ledger.device_outside);
}

void Writer::write_tallies(LedgerSnapshot const& ledger) noexcept {
  json_.begin_object("pressure");
  json_.member_word("level", word_of(kPressureWords, ledger.pressure));
  json_.member("sequence", ledger.pressure_sequence);
  json_.begin_array("transitions", Shape::flat);
  for (std::size_t from = 0; from < kPressureWords.size(); ++from) {
    for (std::size_t to = 0; to < kPressureWords.size(); ++to) {
      if (ledger.transitions[from][to] == 0) continue;
      json_.begin_object(Shape::flat);
      json_.member_word("from", kPressureWords[from]);
      json_.member_word("to", kPressureWords[to]);
      json_.member("count", ledger.transitions[from][to]);
      json_.end_object();
    }
  }
  json_.end_array();
  json_.end_object();

  json_.member("failures", ledger.failures());
  json_.begin_array("refusals");
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    for (std::size_t layer = 0; layer < kLayerCount; ++layer) {
      if (ledger.refusals[kind][layer] == 0) continue;
      json_.begin_object(Shape::flat);
      json_.member_word("kind", to_string(static_cast<ErrorKind>(kind)));
      json_.member_word("layer", to_string(static_cast<Layer>(layer)));
      json_.member("count", ledger.refusals[kind][layer]);
      json_.end_object();
    }
  }
  json_.end_array();
  json_.begin_array("free_failures");
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    if (ledger.free_failures[kind] == 0) continue;
    json_.begin_object(Shape::flat);
    json_.member_word("kind", to_string(static_cast<ErrorKind>(kind)));
    json_.member("count", ledger.free_failures[kind]);
    json_.end_object();
  }
  json_.end_array();
  json_.member("observed", ledger.observed);
  json_.member("write_offs", ledger.write_offs);
  json_.member("retries", ledger.retries);
}

void Writer::write_guard(flight::GuardTallies const& guard) noexcept {
  json_.begin_object("guard");
  for (auto const& [name, counts] : {std::pair{"policy_runs", &guard.policy_runs}, std::pair{"recoveries", &guard.recoveries}}) {
    json_.begin_object(name, Shape::flat);
    for (std::size_t policy = 0; policy < kPolicyWords.size(); ++policy) json_.member(kPolicyWords[policy], (*counts)[policy]);
    json_.end_object();
  }
  json_.member("gave_up", guard.gave_up);
  json_.member("hook_runs", guard.hook_runs);
  json_.member("hook_freed_bytes", guard.hook_freed_bytes);
  json_.member("policy_waits", guard.policy_waits);
  json_.member("policy_wait_ns", guard.policy_wait_ns);
  json_.member("checkpoints", guard.checkpoints);
  json_.end_object();
}

void Writer::write_histogram(std::string_view name, std::span<std::uint64_t const> buckets) noexcept {
  // Up to the last bucket that is not empty.
  while (!buckets.empty() && buckets.back() == 0) buckets = buckets.first(buckets.size() - 1);
  json_.begin_array(name, Shape::flat);
  for (const std::uint64_t bucket : buckets) json_.value(bucket);
  json_.end_array();
}

void Writer::write_counters(flight::CounterSums const& counters) noexcept {
  json_.begin_object("counters");
  json_.member("allocations", counters.allocations);
  json_.member("frees", counters.frees);
  json_.member("allocation_bytes", counters.allocation_bytes);
  json_.member("deallocation_bytes", counters.deallocation_bytes);
  json_.member("typed_requests", counters.typed_requests);
  json_.member("raw_requests", counters.raw_requests);
  json_.member("zero_byte_requests", counters.zero_byte_requests);
  json_.member("allocation_ns", counters.allocation_ns);
  json_.member("free_ns", counters.free_ns);
  write_histogram("size_histogram", counters.size_histogram);
  write_histogram("duration_histogram", counters.duration_histogram);
  write_histogram("use_histogram", counters.use_histogram);
  json_.end_object();
}

// Into work_.tags, largest first. Open tags always; closed ones only while their ledger is closed too: the id of a reopened ledger is
// the parent of old tags as well.
std::size_t Writer::sum_tags_of(LedgerSnapshot const& ledger, std::uint64_t& left_out) noexcept {
  std::size_t count = 0;
  if (ledger.directory_id == 0) return 0;
  for (std::uint32_t id = 1; id < places_; ++id) {
    Place const& place = work_.places[id];
    if (place.kind != EntryKind::tag || place.parent != ledger.directory_id || place.cell >= flight::kTagCells) continue;
    if (!place.open && ledger.state != flight::LedgerState::closed) continue;
    if (count < work_.tags.size()) {
      work_.tags[count++] = {.id = id, .cell = place.cell};
    } else {
      ++left_out;
    }
  }
  const auto tags = work_.tags.first(count);
  flight::Word const& peak_word = mapped_.ledgers()[ledger.cell].peak;
  // All tags belong to one peak: if a new one was set meanwhile, read again; after 8 tries what was read last is shown.
  for (int i = 0; i < kPeakTries; ++i) {
    const std::uint64_t peak = StdAtomics::load_acquire(peak_word);
    for (TagSum& tag : tags) {
      flight::TagSnapshot sum;
      flight::sum_tag(mapped_, tag.cell, peak, sum);
      tag.bytes = sum.bytes;
      tag.at_peak = sum.at_peak_bytes;
      tag.allocations = sum.allocations;
    }
    if (load(peak_word) == peak) break;  // after the acquire loads of the cells
  }
  std::ranges::sort(tags, [](TagSum const& a, TagSum const& b) { return std::tie(b.bytes, a.id) < std::tie(a.bytes, b.id); });
  return count;
}

void Writer::write_tags(std::size_t count, std::uint64_t peak) noexcept {
  const auto tags = work_.tags.first(count);
  json_.begin_array("tags");
  for (TagSum const& tag : tags) {
    json_.begin_object(Shape::flat);
    json_.member("id", tag.id);
    write_label("name", tag.id);
    json_.member("live_bytes", tag.bytes);
    json_.member("at_peak_bytes", tag.at_peak);
    json_.member("allocations", tag.allocations);
    json_.end_object();
  }
  json_.end_array();

  std::uint64_t sum = 0;
  for (TagSum const& tag : tags) sum += tag.at_peak;
  std::ranges::sort(tags, [](TagSum const& a, TagSum const& b) { return std::tie(b.at_peak, a.id) < std::tie(a.at_peak, b.id); });
  json_.begin_object("at_peak");
  json_.member("peak_bytes", peak);
  json_.member("bytes_of_tags", sum);  // the distance of the two is what racing threads left open
  json_.begin_array("holders");
  for (TagSum const& tag : tags) {
    if (tag.at_peak == 0) continue;
    json_.begin_object(Shape::flat);
    json_.member("tag", tag.id);
    write_label("name", tag.id);
    json_.member("bytes", tag.at_peak);
    json_.end_object();
  }
  json_.end_array();
  json_.end_object();
}

}  // namespace headroom::dump
