// FlightView: opening, who wrote the file, its clock and its names.
#include <algorithm>
#include <cstring>
#include <utility>

#include <headroom/flight_publish.hpp>
#include <headroom/flight_reader.hpp>

#include "base/utf8.hpp"
#include "flight/book_readers.hpp"
#include "flight/liveness.hpp"
#include "flight/mapping.hpp"
#include "flight/process_mapping.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::flight {
namespace {

std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_relaxed(word); }

template <std::size_t N>
std::string text(char const (&field)[N]) {
  return valid_utf8({field, N});
}

/// Enumerators that this version does not know become `otherwise`.
template <class Enum>
Enum known(std::uint64_t value, Enum last, Enum otherwise) noexcept {
  return value <= static_cast<std::uint64_t>(last) ? static_cast<Enum>(value) : otherwise;
}

std::vector<ClockMap::Sync> clock_syncs(MappedFlight const& mapped) {
  auto const& header = mapped.header();
  std::vector<ClockMap::Sync> syncs;
  syncs.push_back({header.start_ticks, header.start_monotonic_ns, header.start_realtime_ns});
  for (std::uint32_t i = 0; i < mapped.clock_syncs().size(); ++i) {
    if (auto const sync = read_sync(mapped, i)) syncs.push_back(*sync);
  }
  return syncs;
}

}  // namespace

std::optional<ClockMap::Sync> read_sync(MappedFlight const& mapped, std::uint32_t index) noexcept {
  auto const table = mapped.clock_syncs();
  auto const& entry = table[index];
  ClockMap::Sync sync{};
  auto const judge = [&](std::uint64_t number) {
    if (number == 0) return GuardSays::unwanted;  // never written, or being written: the other entries do
    return (number - 1) % table.size() == index ? GuardSays::readable : GuardSays::unwanted;
  };
  auto const copy = [&](std::uint64_t) {
    sync = {StdAtomics::load_acquire(entry.ticks), StdAtomics::load_acquire(entry.monotonic_ns),
            StdAtomics::load_acquire(entry.realtime_ns)};
  };
  if (read_guarded<StdAtomics>(entry.number, judge, copy) != GuardedRead::whole) return std::nullopt;
  return sync;
}

FlightView::FlightView(std::shared_ptr<MappedFlight const> mapped) noexcept : mapped_{std::move(mapped)} {}

Result<FlightView> FlightView::open(std::string path) {
  return MappedFlight::open(std::move(path)).map([](auto&& mapped) {
    return FlightView{std::forward<decltype(mapped)>(mapped)};
  });
}

Result<FlightView> FlightView::open(int descriptor, std::string name) {
  return MappedFlight::open(descriptor, std::move(name)).map([](auto&& mapped) {
    return FlightView{std::forward<decltype(mapped)>(mapped)};
  });
}

Result<FlightView> FlightView::over(std::span<const std::byte> bytes, std::string name) {
  return MappedFlight::over(bytes, std::move(name), MappedFlight::Origin::bytes).map([](auto&& mapped) {
    return FlightView{std::forward<decltype(mapped)>(mapped)};
  });
}

std::optional<FlightView> FlightView::of_this_process() {
  auto const bytes = process_mapping();
  if (bytes.empty()) return std::nullopt;
  auto path = own_file();
  auto mapped = MappedFlight::over(bytes, path.empty() ? "(memory)" : std::move(path), MappedFlight::Origin::this_process);
  if (!mapped) return std::nullopt;  // cannot happen: our own recorder wrote it
  return FlightView{std::move(*mapped)};
}

std::string const& FlightView::path() const noexcept { return mapped_->name(); }
FileHeader const& FlightView::header() const noexcept { return mapped_->header(); }
std::span<const std::byte> FlightView::memory() const noexcept { return mapped_->bytes(); }
Liveness FlightView::liveness() const { return liveness_of(*mapped_); }
ClockMap FlightView::clock() const { return {header().ticks_per_second, clock_syncs(*mapped_)}; }

ProcessInfo FlightView::process() const {
  auto const& header = mapped_->header();
  ProcessInfo info;
  info.pid = header.pid;
  info.uid = header.uid;
  info.run = header.run;
  info.program = text(header.program);
  info.host = text(header.host);
  info.version = text(header.version);
  info.command = text(header.command);
  info.boot_id = text(header.boot_id);
  info.start_realtime_ns = header.start_realtime_ns;
  info.state = known(StdAtomics::load_acquire(header.state), ProcessState::failed, ProcessState::failed);
  info.backing = known(header.backing, Backing::anonymous, Backing::file);
  info.was_shrunk = header.file_bytes < header.wanted_bytes;
  info.events_off = load(header.events_off) != 0;
  info.exporter_state = known(StdAtomics::load_acquire(header.exporter_state), ExporterState::stopped, ExporterState::none);
  auto const port = load(header.exporter_port);
  info.exporter_port = port <= 0xFFFFU ? static_cast<std::uint16_t>(port) : std::uint16_t{0};
  info.refused_no_lane = load(header.refused_no_lane);
  info.refused_reentrant = load(header.refused_reentrant);
  info.refused_early = load(header.refused_early);
  info.tags_folded = load(header.tags_folded);
  info.sites_folded = load(header.sites_folded);
  info.ledgers_without_cell = load(header.ledgers_without_cell);
  auto const used = mapped_->lanes_with_books();
  for (std::uint32_t i = 0; i < mapped_->lanes().size(); ++i) {
    if (i >= used && i < kOwnedLanes) continue;  // never owned: a hole of the file, which reading would fill with memory
    auto const lane = read_lane(*mapped_, i);
    if (!lane) continue;
    info.events_recorded += lane->main_head + lane->journal_head;
    if (lane->owned) ++info.lanes_in_use;
  }
  // Newest by ticks: realtime may have been set back.
  auto const syncs = clock_syncs(*mapped_);
  info.last_activity_realtime_ns = std::ranges::max(syncs, {}, &ClockMap::Sync::ticks).realtime_ns;
  return info;
}

bool read_name(MappedFlight const& mapped, std::uint32_t id, RawName& name) noexcept {
  auto const* const entry = id == 0 ? nullptr : mapped.directory().find(id);
  if (entry == nullptr) return false;
  std::array<std::uint64_t, kLabelBytes / 8> label{};
  auto const judge = [](std::uint64_t state) {
    switch (static_cast<EntryState>(state & 0xFFU)) {
      case EntryState::open:
      case EntryState::closed: return GuardSays::readable;
      case EntryState::writing: return GuardSays::writing;
      case EntryState::free: break;
    }
    return GuardSays::unwanted;
  };
  auto const copy = [&](std::uint64_t state) {
    name.state = static_cast<EntryState>(state & 0xFFU);
    name.kind = static_cast<EntryKind>((state >> 8) & 0xFFU);
    name.generation = static_cast<std::uint32_t>(state >> 32);
    name.parent = static_cast<std::uint32_t>(StdAtomics::load_acquire(entry->parent));
    name.number = StdAtomics::load_acquire(entry->number);
    name.payload = StdAtomics::load_acquire(entry->payload);
    for (std::size_t i = 0; i < label.size(); ++i) label[i] = StdAtomics::load_acquire(entry->label[i]);
  };
  if (read_guarded<StdAtomics>(entry->state, judge, copy) != GuardedRead::whole) return false;
  std::memcpy(name.label.data(), label.data(), name.label.size());
  return true;
}

std::optional<DirectoryName> FlightView::name(std::uint32_t id) const {
  RawName raw;
  if (!read_name(*mapped_, id, raw)) return std::nullopt;
  return DirectoryName{.kind = raw.kind,
                       .state = raw.state,
                       .generation = raw.generation,
                       .parent = raw.parent,
                       .number = raw.number,
                       .payload = raw.payload,
                       .label = valid_utf8({raw.label.data(), raw.label.size()})};
}

std::string FlightView::label(std::uint32_t id) const {
  auto found = name(id);
  return found ? std::move(found->label) : std::string{};
}

std::string short_run(std::uint64_t run) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned shift = 64; shift > 32; shift -= 4) text += kDigits[(run >> (shift - 4)) & 15U];
  return text;
}

}  // namespace headroom::flight
