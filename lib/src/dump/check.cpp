// What is doubtful in a post-mortem that could be read.
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include <headroom/byte_size.hpp>
#include <headroom/post_mortem_reader.hpp>

namespace headroom {
namespace {

using Findings = std::vector<std::string>;

[[nodiscard]] std::string quoted(std::string const& name) { return '\'' + name + '\''; }

void check_end(PostMortem const& dump, Findings& findings) {
  if (dump.truncated) {
    findings.emplace_back(
        "truncated: the file ends before the post-mortem does; what is here is whole, what is not may be missing");
  } else if (!dump.complete) {
    auto const& why = dump.events_left_out_because;
    findings.push_back("incomplete: the writer could not write everything that it was asked for" +
                       (why.empty() ? "" : ": " + why));
  }
}

/// Must hold at any instant.
void check_words(flight::LedgerSnapshot const& ledger, Findings& findings) {
  if (ledger.allocated > ledger.claimed) {
    findings.push_back("ledger " + quoted(ledger.name) + ": " + format_bytes_exact(ledger.allocated) + " allocated, but only " +
                       format_bytes_exact(ledger.claimed) + " claimed");
  }
  if (ledger.allocated > ledger.peak) {
    findings.push_back("ledger " + quoted(ledger.name) + ": " + format_bytes_exact(ledger.allocated) +
                       " allocated, above its peak of " + format_bytes_exact(ledger.peak));
  }
}

/// Must hold once nobody is at work.
void check_sums(PostMortem const& dump, Findings& findings) {
  std::uint64_t in_slots = 0;
  for (auto const& ledger : dump.ledgers) {
    if (ledger.is_device_account) continue;
    in_slots += ledger.allocated - std::min(ledger.allocated, ledger.live_untracked_bytes);
    auto const of_tags = std::accumulate(ledger.tags.begin(), ledger.tags.end(), std::uint64_t{0},
                                         [](std::uint64_t sum, flight::TagSnapshot const& tag) { return sum + tag.bytes; });
    if (of_tags == ledger.allocated) continue;
    findings.push_back("ledger " + quoted(ledger.name) + ": its tags hold " + format_bytes_exact(of_tags) + ", but " +
                       format_bytes_exact(ledger.allocated) + " are allocated");
  }
  if (in_slots != dump.live_bytes) {
    findings.push_back("live allocations of " + format_bytes_exact(dump.live_bytes) + ", but the ledgers have " +
                       format_bytes_exact(in_slots) + " in slots");
  }
}

void check_lists(PostMortem const& dump, Findings& findings) {
  if (dump.live.size() > dump.live_allocations) {
    findings.push_back(format_count(dump.live.size()) + " live allocations are listed, of only " +
                       format_count(dump.live_allocations));
  }
  std::uint64_t listed = 0;
  for (auto const& lane : dump.lanes) {
    for (auto const& [name, ring] : {std::pair{"main", &lane.main}, std::pair{"journal", &lane.journal}}) {
      listed += ring->listed;
      // A record that its writer did not live to count may be listed besides.
      if (ring->lost && ring->listed + *ring->lost != ring->recorded && ring->listed + *ring->lost != ring->recorded + 1) {
        findings.push_back("lane " + std::to_string(lane.lane) + ", " + name + " ring: " + format_count(ring->listed) +
                           " events listed and " + format_count(*ring->lost) + " lost, of " + format_count(ring->recorded));
      }
    }
  }
  if (listed != dump.events.size()) {
    findings.push_back(format_count(dump.events.size()) + " events, but the lanes have " + format_count(listed));
  }
  std::set<std::tuple<std::uint32_t, flight::Ring, std::uint64_t>> seen;
  for (auto const& event : dump.events) {
    if (seen.emplace(event.lane, event.ring, event.number).second) continue;
    findings.push_back("event " + std::to_string(event.number) + " of lane " + std::to_string(event.lane) + " is there twice");
    return;  // one says it
  }
}

}  // namespace

std::vector<std::string> check_post_mortem(PostMortem const& dump) {
  Findings findings;
  check_end(dump, findings);
  for (auto const& ledger : dump.ledgers) check_words(ledger, findings);
  if (dump.truncated) return findings;
  if (dump.liveness == flight::Liveness::dead && dump.in_flight.empty()) check_sums(dump, findings);
  check_lists(dump, findings);
  return findings;
}

}  // namespace headroom
