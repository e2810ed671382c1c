// headroom: the hooks of one process as samples. Pure functions, so that tests work out every value by hand.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <headroom/flight_reader.hpp>

#include "families.hpp"

namespace headroom::exporter {

/// What `now` is on the clock of the file's syncs, for hooks that run at the moment.
struct HookClock {
  flight::ClockMap map;
  std::uint64_t now_ns = 0;
};

/// All samples of the hooks that belong to the ledger with this directory id; `labels` name its manager. Hooks of one name are added
/// up: two equal series would cost the whole scrape. Those that ended count as well while one of the name lives, so that no counter
/// falls: give it FlightView::all_hooks(). `ledger_id` 0: those that found no cell of their own, of whichever manager.
void add_hooks(Families& families, std::vector<flight::HookSnapshot> const& hooks, std::uint32_t ledger_id,
               HookClock const& clock, Labels const& labels);

}  // namespace headroom::exporter
