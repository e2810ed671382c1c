// check_flight(): header, clock, names, hooks and first failures; books and lanes have files of their own.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <headroom/error.hpp>
#include <headroom/flight_check.hpp>

#include "flight/book_readers.hpp"
#include "flight/check_findings.hpp"
#include "flight/failure_key.hpp"

namespace headroom::flight {
namespace {

std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_acquire(word); }

template <std::size_t N>
std::string_view field(char const (&text)[N]) noexcept {
  return {text, N};
}

void check_header(MappedFlight const& mapped, CheckFindings& findings) {
  auto const& header = mapped.header();
  auto const state = load(header.state);
  findings.expect_at_most(state, static_cast<std::uint64_t>(ProcessState::failed), &header.state, "the process state");
  findings.expect_at_most(load(header.exporter_state), static_cast<std::uint64_t>(ExporterState::stopped), &header.exporter_state,
                          "the exporter's state");
  findings.expect_at_most(load(header.exporter_port), 0xFFFF, &header.exporter_port, "the exporter's port");
  findings.expect_at_most(load(header.directory_used), mapped.directory().size(), &header.directory_used,
                          "the number of names in use");
  findings.expect_at_most(load(header.lanes_used), mapped.lanes().size(), &header.lanes_used, "the number of lanes in use");
  auto const clock = header.clock_source;
  findings.expect(clock >= 1 && clock <= static_cast<std::uint32_t>(ClockSource::cntvct), &header.clock_source,
                  [&] { return "the clock is of kind " + std::to_string(clock) + "; expected 1 to 3"; });
  findings.expect(header.ticks_per_second != 0, &header.ticks_per_second,
                  [] { return std::string{"the clock has 0 ticks a second; expected its frequency"}; });
  findings.expect_text(field(header.boot_id), header.boot_id, "the boot id");
  findings.expect_text(field(header.program), header.program, "the program's name");
  findings.expect_text(field(header.host), header.host, "the host's name");
  findings.expect_text(field(header.version), header.version, "the version");
  findings.expect_text(field(header.command), header.command, "the command");
}

void check_clock(MappedFlight const& mapped, CheckFindings& findings) {
  auto const syncs = mapped.clock_syncs();
  for (std::uint32_t i = 0; i < syncs.size(); ++i) {
    auto const number = load(syncs[i].number);
    if (number == 0) continue;  // never written, or being written
    findings.expect((number - 1) % syncs.size() == i, &syncs[i].number, [&] {
      return "clock sync " + std::to_string(i) + " has the number " + std::to_string(number - 1) + "; expected one that is " +
             std::to_string(i) + " modulo " + std::to_string(syncs.size());
    });
  }
}

std::string entry_name(std::uint32_t id) { return "name " + std::to_string(id); }

/// What the number of an entry may be, by kind: one past the largest; 0: anything.
std::uint64_t numbers_of(EntryKind kind, MappedFlight const& mapped) noexcept {
  switch (kind) {
    case EntryKind::tag: return kTagCells;
    case EntryKind::hook: return mapped.hooks().size();
    case EntryKind::ledger: return mapped.ledgers().size();
    default: return 0;
  }
}

void check_entry(MappedFlight const& mapped, std::uint32_t id, CheckFindings& findings) {
  auto const& entry = mapped.directory()[id];
  std::uint64_t state = 0;
  std::uint64_t parent = 0;
  std::uint64_t number = 0;
  std::array<std::uint64_t, kLabelBytes / 8> words{};
  auto const judge = [](std::uint64_t word) {
    auto const of = static_cast<EntryState>(word & 0xFFU);
    if (of == EntryState::writing) return GuardSays::writing;
    return of == EntryState::free ? GuardSays::unwanted : GuardSays::readable;
  };
  auto const copy = [&](std::uint64_t word) {
    state = word;
    parent = load(entry.parent);
    number = load(entry.number);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = load(entry.label[i]);
  };
  // Being written: by somebody now, or by a process that was killed then.
  if (read_guarded<StdAtomics>(entry.state, judge, copy) != GuardedRead::whole) return;
  ++findings.result().names;

  auto const what = [id](std::string_view part) { return entry_name(id) + ": " + std::string{part}; };
  findings.expect_at_most(state & 0xFFU, static_cast<std::uint64_t>(EntryState::closed), &entry.state, what("the state"));
  auto const kind = (state >> 8) & 0xFFU;
  auto const last_kind = static_cast<std::uint64_t>(EntryKind::log);
  auto const is_later = mapped.header().abi_minor > kAbiMinor;
  findings.expect(kind >= 1 && (kind <= last_kind || is_later), &entry.state, [&] {
    return what("the kind") + " is " + std::to_string(kind) + "; expected 1 to " + std::to_string(last_kind);
  });
  auto const used = names_in_use(mapped);  // after the entry was read: it may have been used again for a child of a younger one
  findings.expect(parent < used, &entry.parent, [&] {
    return what("the parent") + " is " + std::to_string(parent) + "; expected a name below " + std::to_string(used);
  });
  auto const numbers = numbers_of(static_cast<EntryKind>(kind), mapped);
  auto const is_none = static_cast<EntryKind>(kind) == EntryKind::ledger && number == 0xFFFF'FFFF;
  findings.expect(numbers == 0 || number < numbers || is_none, &entry.number, [&] {
    return what("the cell") + " is " + std::to_string(number) + "; expected one below " + std::to_string(numbers);
  });
  std::array<char, kLabelBytes> label{};
  std::memcpy(label.data(), words.data(), label.size());
  // A site's is the compiler's text, in whatever encoding the source has: valid UTF-8 is promised of the others alone.
  auto const is_site = static_cast<EntryKind>(kind) == EntryKind::site;
  std::string_view const text{label.data(), label.size()};
  if (is_site) findings.expect_end(text, entry.label, what("the label"));
  if (!is_site) findings.expect_text(text, entry.label, what("the label"));
}

void check_names(MappedFlight const& mapped, CheckFindings& findings) {
  auto const used = names_in_use(mapped);
  for (std::uint32_t id = 1; id < used; ++id) check_entry(mapped, id, findings);
}

void check_hooks(FlightView const& view, MappedFlight const& mapped, CheckFindings& findings) {
  auto const hooks = mapped.hooks();
  for (std::uint32_t i = 0; i < hooks.size(); ++i) {
    auto const id = load(hooks[i].directory_id);
    if (id == 0) continue;
    auto const name = id <= 0xFFFF'FFFF ? view.name(static_cast<std::uint32_t>(id)) : std::nullopt;
    // Of the living, the hook may have gone meanwhile, and its name to somebody else: its cell then says so.
    auto const is_hook = (name && name->kind == EntryKind::hook) || load(hooks[i].directory_id) != id;
    findings.expect(is_hook, &hooks[i].directory_id, [&] {
      return "hook " + std::to_string(i) + ": the name is " + std::to_string(id) + "; expected that of a hook";
    });
  }
}

void check_failures(MappedFlight const& mapped, CheckFindings& findings) {
  auto const failures = mapped.first_failures();
  for (std::uint32_t i = 0; i < failures.size(); ++i) {
    auto const what = [i](std::string_view part) { return "first failure " + std::to_string(i) + ": " + std::string{part}; };
    auto const ready = load(failures[i].ready);
    findings.expect_at_most(ready, 1, &failures[i].ready, what("the mark 'ready'"));
    if (ready != 1) continue;
    auto const key = load(failures[i].key);
    findings.expect_at_most(failure_kind(key), kErrorKindCount - 1, &failures[i].key, what("the kind of error"));
    findings.expect_at_most(failure_layer(key), kLayerCount - 1, &failures[i].key, what("the layer"));
  }
}

}  // namespace

FlightCheck check_flight(FlightView const& view, FlightCheckOptions const& options) {
  auto const& mapped = *view.mapped_;
  CheckFindings findings{mapped, options.most_findings};
  findings.result().quiet = options.dead ? *options.dead : view.liveness() == Liveness::dead;
  check_header(mapped, findings);
  check_clock(mapped, findings);
  check_names(mapped, findings);
  check_books(mapped, findings);
  check_hooks(view, mapped, findings);
  check_failures(mapped, findings);
  check_lanes(mapped, findings);
  return std::move(findings.result());
}

}  // namespace headroom::flight
