// FlightView: the hooks.
#include <algorithm>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "base/utf8.hpp"
#include "flight/book_readers.hpp"
#include "flight/mapping.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::flight {
namespace {

/// Acquire: see read_guarded. A cell's next owner takes the guard away, clears the words, then counts in them.
std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_acquire(word); }

void copy_figures(HookCell const& cell, HookSnapshot& hook) {
  hook.errors = load(cell.errors);
  hook.overruns = load(cell.overruns);
  hook.skips = load(cell.skips);
  hook.busy_skips = load(cell.busy_skips);
  hook.reported_bytes = load(cell.reported_bytes);
  hook.estimated_bytes = load(cell.estimated_bytes);
  hook.freed_bytes = load(cell.freed_bytes);
  hook.duration_ns = load(cell.duration_ns);
  for (std::size_t i = 0; i < hook.duration_histogram.size(); ++i) hook.duration_histogram[i] = load(cell.duration_histogram[i]);
  hook.runs = load(cell.runs);
  // Before thread and limit, which are stored before it: they are that run's or a later one's.
  auto const since = load(cell.running_since_ticks);
  hook.running_since_ticks = since == 0 ? std::nullopt : std::optional{since};
  hook.running_thread = since == 0 ? 0 : load(cell.running_thread);
  hook.limit_ns = load(cell.limit_ns);
  hook.ended = load(cell.ended) != 0;
}

}  // namespace

std::uint32_t hooks_used(MappedFlight const& mapped) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(load(mapped.header().hooks_used), mapped.hooks().size()));
}

bool read_hook(MappedFlight const& mapped, std::uint32_t index, HookSnapshot& hook, RawName& name) {
  auto const& cell = mapped.hooks()[index];
  hook.cell = index;
  std::uint64_t id = 0;
  auto const judge = [&](std::uint64_t stored) {
    id = stored;
    return stored == 0 || stored > 0xFFFF'FFFFU ? GuardSays::unwanted : GuardSays::readable;
  };
  auto const copy = [&](std::uint64_t /*stored*/) { copy_figures(cell, hook); };
  if (read_guarded<StdAtomics>(cell.directory_id, judge, copy) != GuardedRead::whole) return false;
  if (!read_name(mapped, static_cast<std::uint32_t>(id), name) || name.kind != EntryKind::hook) return false;
  hook.directory_id = static_cast<std::uint32_t>(id);
  hook.ledger_id = name.parent;
  hook.priority = static_cast<std::int64_t>(name.payload);
  return true;
}

std::vector<HookSnapshot> FlightView::hooks() const {
  auto hooks = all_hooks();
  std::erase_if(hooks, [](HookSnapshot const& hook) { return hook.ended; });
  return hooks;
}

std::vector<HookSnapshot> FlightView::all_hooks() const {
  std::vector<HookSnapshot> hooks;
  auto const used = hooks_used(*mapped_);
  for (std::uint32_t i = 0; i < used; ++i) {
    HookSnapshot hook;
    RawName name;
    if (!read_hook(*mapped_, i, hook, name)) continue;
    hook.name = valid_utf8({name.label.data(), name.label.size()});
    hooks.push_back(std::move(hook));
  }
  return hooks;
}

}  // namespace headroom::flight
