// The writer's frame, and who the process is: the first screen of a post-mortem.
#include <chrono>

#include <unistd.h>

#include "base/clock.hpp"
#include "base/pci_address.hpp"
#include "dump/shortened.hpp"
#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

using flight::EntryKind;

namespace {

std::uint64_t load(flight::Word const& word) noexcept { return StdAtomics::load_relaxed(word); }

constexpr std::array<std::string_view, 3> kReasonWords{"allocation_failed", "device_out_of_memory", "requested"};
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

std::uint64_t realtime_now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace

Writer::Writer(WriteRequest const& request, Workspace& workspace, JsonStream& json) noexcept
    : request_{request},
      mapped_{request.mapped},
      work_{workspace},
      json_{json},
      in_own_process_{request.mapped.origin() == flight::MappedFlight::Origin::this_process} {
  flight::FileHeader const& header = mapped_.header();
  std::size_t count = 0;
  work_.syncs[count++] = {header.start_ticks, header.start_monotonic_ns, header.start_realtime_ns};
  for (std::uint32_t i = 0; i < mapped_.clock_syncs().size(); ++i) {
    auto const sync = flight::read_sync(mapped_, i);
    if (!sync) continue;
    if (count < work_.syncs.size()) {
      work_.syncs[count++] = *sync;
    } else {
      ++syncs_left_out_;
    }
  }
  lanes_left_out_ = mapped_.lanes().size() - std::min<std::uint64_t>(mapped_.lanes().size(), work_.operations.size());
  count = flight::arrange_syncs(work_.syncs.first(count));
  // A damaged header may say 0; a tick of a nanosecond is as good as any other then.
  clock_ = {.ticks_per_second = header.ticks_per_second == 0 ? kNsPerSecond : header.ticks_per_second,
            .syncs = work_.syncs.first(count)};
}

void Writer::write() noexcept {
  survey();
  json_.begin_object();
  write_head();
  write_process();
  write_clock();
  write_failure();
  write_devices();
  write_ledgers();
  write_hooks();
  write_in_flight();
  write_first_failures();
  write_sites();
  write_names();
  write_live();
  if (wants_events()) write_events();
  write_lanes();
  write_end();
  json_.end_object();
}

bool Writer::is_quiet() const noexcept { return request_.liveness == flight::Liveness::dead; }

bool Writer::wants_events() const noexcept { return request_.options.events && request_.events_left_out.empty(); }

void Writer::survey() noexcept {
  // Acquire: entries below it were begun before; each has a guard of its own.
  const std::uint64_t used =
      std::min<std::uint64_t>(StdAtomics::load_acquire(mapped_.header().directory_used), mapped_.directory().size());
  places_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(used, work_.places.size()));
  places_left_out_ = used - places_;
  for (std::uint32_t id = 0; id < places_; ++id) {
    work_.places[id] = {};
    work_.sites[id] = {};
    flight::RawName name;
    if (!flight::read_name(mapped_, id, name)) continue;
    work_.places[id] = {.parent = name.parent,
                        .cell = static_cast<std::uint16_t>(name.number < flight::kTagCells ? name.number : flight::kTagCells),
                        .kind = name.kind,
                        .open = name.state == flight::EntryState::open};
  }
  live_listed_ = 0;
  const std::uint32_t slots = mapped_.live_slots().size();
  slots_left_out_ = slots - std::min<std::uint32_t>(slots, static_cast<std::uint32_t>(work_.live.size()));
  for (std::uint32_t i = 0; i < slots - slots_left_out_; ++i) {
    flight::LiveAllocation allocation;
    const auto outcome = flight::read_slot(mapped_, i, allocation);
    if (outcome == flight::GuardedRead::busy) ++live_busy_;
    if (outcome != flight::GuardedRead::whole) continue;
    ++live_count_;
    live_bytes_ += allocation.bytes;
    if (allocation.site < places_) {
      work_.sites[allocation.site].bytes += allocation.bytes;
      ++work_.sites[allocation.site].blocks;
    }
    work_.live[live_listed_++] = (std::min(allocation.bytes, flight::kBytesMask) << 20) | i;
  }
}

void Writer::write_head() noexcept {
  json_.begin_object("schema", Shape::flat);
  json_.member_word("name", kPostMortemSchema);
  json_.member("version", kPostMortemVersion);
  json_.end_object();

  json_.begin_object("reason", Shape::flat);
  json_.member_word("kind", word_of(kReasonWords, request_.kind));
  json_.member("text", request_.reason);
  json_.end_object();

  json_.begin_object("contents", Shape::flat);
  const bool recorded = load(mapped_.header().events_off) == 0;
  json_.member_word("events", !recorded ? "not_recorded" : wants_events() ? "included" : "left_out");
  json_.member_if_text("events_left_out_because", request_.events_left_out);
  if (request_.options.most_live != ~std::uint64_t{0}) json_.member("most_live", request_.options.most_live);
  json_.end_object();

  json_.begin_object("written", Shape::flat);
  json_.member("realtime_ns", realtime_now());
  json_.member("monotonic_ns", detail::read_monotonic_ns());
  json_.member_word("by", in_own_process_ ? "process" : "reader");
  json_.member_word("headroom", HEADROOM_VERSION);
  if (request_.sequence != 0) {
    json_.member("sequence", request_.sequence);
    json_.member("written_before", request_.counts.written);
    json_.member("skipped_before", request_.counts.skipped);
    json_.member("failed_before", request_.counts.failed);
  }
  json_.end_object();
}

void Writer::write_process() noexcept {
  flight::FileHeader const& header = mapped_.header();
  json_.begin_object("process");
  json_.member("pid", header.pid);
  json_.member("uid", header.uid);
  json_.member("run", Hex{header.run});
  json_.member("program", text_of(header.program));
  json_.member("command", text_of(header.command));
  json_.member("host", text_of(header.host));
  json_.member("boot_id", text_of(header.boot_id));
  json_.member("start_realtime_ns", header.start_realtime_ns);
  const auto state = static_cast<flight::ProcessState>(StdAtomics::load_acquire(header.state));
  json_.member_word("state", word_of(kProcessStateWords, state));
  json_.member_word("liveness", word_of(kLivenessWords, request_.liveness));
  json_.member("last_activity_realtime_ns", clock_.syncs.back().realtime_ns);
  json_.begin_object("build", Shape::flat);
  json_.member("headroom", text_of(header.version));
  json_.member("format_major", header.abi_major);
  json_.member("format_minor", header.abi_minor);
  json_.end_object();
  json_.begin_object("flight_file", Shape::flat);
  json_.member("path", shortened(mapped_.name()));
  json_.member_word("backing", static_cast<flight::Backing>(header.backing) == flight::Backing::anonymous ? "anonymous" : "file");
  json_.member("bytes", header.file_bytes);
  json_.member("was_shrunk", header.file_bytes < header.wanted_bytes);
  json_.member("events_off", load(header.events_off) != 0);
  json_.end_object();
  json_.begin_object("exporter", Shape::flat);
  json_.member_word("state", word_of(kExporterStateWords, static_cast<flight::ExporterState>(load(header.exporter_state))));
  json_.member("port", load(header.exporter_port) & 0xFFFFU);
  json_.end_object();
  json_.begin_object("refused_events", Shape::flat);
  json_.member("no_lane", load(header.refused_no_lane));
  json_.member("reentrant", load(header.refused_reentrant));
  json_.member("early", load(header.refused_early));
  json_.end_object();
  json_.begin_object("folded", Shape::flat);
  json_.member("tags", load(header.tags_folded));
  json_.member("sites", load(header.sites_folded));
  json_.member("hooks", load(header.hooks_folded));
  json_.member("ledgers_without_cell", load(header.ledgers_without_cell));
  json_.end_object();
  json_.end_object();
}

void Writer::write_clock() noexcept {
  flight::FileHeader const& header = mapped_.header();
  json_.begin_object("clock");
  json_.member_word("source", word_of(kClockWords, static_cast<flight::ClockSource>(header.clock_source)));
  json_.member("ticks_per_second", clock_.ticks_per_second);
  json_.member("start_ticks", header.start_ticks);
  json_.begin_array("columns", Shape::flat);
  for (auto const* const column : {"ticks", "monotonic_ns", "realtime_ns"}) json_.word(column);
  json_.end_array();
  json_.begin_array("syncs");
  for (auto const& sync : clock_.syncs) {
    json_.begin_array(Shape::flat);
    json_.value(sync.ticks);
    json_.value(sync.monotonic_ns);
    json_.value(sync.realtime_ns);
    json_.end_array();
  }
  json_.end_array();
  json_.end_object();
}

void Writer::write_devices() noexcept {
  json_.begin_array("devices");
  for (std::uint32_t id = 1; id < places_; ++id) {
    if (work_.places[id].kind == EntryKind::device) write_device(id);
  }
  json_.end_array();
}

void Writer::write_device(std::uint32_t id) noexcept {
  flight::RawName name;
  if (!flight::read_name(mapped_, id, name) || name.kind != EntryKind::device) return;
  json_.begin_object(Shape::flat);
  json_.member("id", id);
  // A device's label is its name and, after a tab, its UUID.
  const std::string_view label = text_of(name.label);
  const std::size_t tab = label.find('\t');
  json_.member("name", label.substr(0, tab));
  if (tab != std::string_view::npos) json_.member("uuid", label.substr(tab + 1));
  if (flight::DevicePayload::knows_pci(name.payload)) {
    const PciAddress address = PciAddress::from_code(flight::DevicePayload::pci(name.payload));
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", static_cast<unsigned>(address.domain),
                  static_cast<unsigned>(address.bus), static_cast<unsigned>(address.device),
                  static_cast<unsigned>(address.function));
    json_.member("pci_address", text_of(text));
  }
  if (name.number <= 0x7FFF'FFFFU) json_.member("ordinal", name.number);
  write_memory_of_device(id);
  json_.end_object();
}

// What the failing request was told, else what a ledger saw last: the failing one's, an open one's, at last a closed one's.
void Writer::write_memory_of_device(std::uint32_t id) noexcept {
  const auto cells = mapped_.ledgers();
  const auto knows = [&](std::uint32_t cell) { return load(cells[cell].device_id) == id && load(cells[cell].device_total) != 0; };
  std::optional<std::uint32_t> known;
  const auto prefer = [&](std::uint32_t cell) {
    if (!known && cell < cells.size() && knows(cell)) known = cell;
  };
  if (KnownFailure const* const failure = request_.failure; failure != nullptr && failure->ledger_cell < cells.size()) {
    Error const& error = failure->error;
    if (load(cells[failure->ledger_cell].device_id) == id && error.device_free && error.device_total) {
      json_.member("total_bytes", *error.device_total);
      json_.member("free_bytes", *error.device_free);
      json_.member_if("outside_bytes", error.device_outside);
      return;
    }
    prefer(failure->ledger_cell);
  }
  for (const bool open : {true, false}) {
    for (std::uint32_t cell = 0; cell < cells.size(); ++cell) {
      if ((StdAtomics::load_acquire(cells[cell].state) == static_cast<std::uint64_t>(flight::LedgerState::open)) == open)
        prefer(cell);
    }
  }
  if (!known) return;
  flight::LedgerCell const& cell = cells[*known];
  json_.member("total_bytes", load(cell.device_total) - 1);
  if (const std::uint64_t free = load(cell.device_free); free != 0) json_.member("free_bytes", free - 1);
  if (const std::uint64_t outside = load(cell.device_outside); outside != 0) json_.member("outside_bytes", outside - 1);
}

void Writer::write_label(std::string_view name, std::uint32_t id) noexcept {
  flight::RawName found;
  if (flight::read_name(mapped_, id, found)) json_.member(name, text_of(found.label));
}

void Writer::write_optional_id(std::string_view name, std::uint32_t id) noexcept {
  if (id != 0) json_.member(name, id);
}

void Writer::write_end() noexcept {
  const bool whole = live_busy_ == 0 && slots_left_out_ == 0 && places_left_out_ == 0 && syncs_left_out_ == 0 &&
                     lanes_left_out_ == 0 && tags_left_out_ == 0 && ledgers_left_out_ == 0 && request_.events_left_out.empty();
  json_.begin_object("end", Shape::flat);
  json_.member_word("status", whole ? "complete" : "partial");
  json_.member("live_being_written", live_busy_);
  json_.member("slots_left_out", slots_left_out_);
  json_.member("names_left_out", places_left_out_);
  json_.member("syncs_left_out", syncs_left_out_);
  json_.member("lanes_left_out", lanes_left_out_);
  json_.member("tags_left_out", tags_left_out_);
  json_.member("ledgers_left_out", ledgers_left_out_);
  json_.member("events_listed", events_listed_);
  json_.member("events_recorded", events_recorded_);
  json_.end_object();
}

}  // namespace headroom::dump
