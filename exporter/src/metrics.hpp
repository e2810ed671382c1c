// headroom: one flight file as metric families.
//
// Every figure is read from the books at the moment of the call, none is derived from events. Device accounts get families of
// their own, so that a sum over managers counts nothing twice; so do a device's totals, once a device and not once a manager.
//
// Thread safety: pure functions over a read-only view. Cost: about a microsecond a series.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/visible_devices.hpp>

#include "families.hpp"

namespace headroom::exporter {

class ToldFigures;

struct CollectOptions {
  bool with_host = false;                     ///< adds `host`, as the node exporter does
  std::optional<std::uint64_t> events_lost;   ///< by whoever follows this file's events; absent when nobody does
  std::optional<std::uint64_t> monotonic_ns;  ///< "now" on the machine's monotonic clock, for ages; absent: ask the clock
  std::optional<flight::Liveness> liveness;   ///< as it was read before; absent: ask the file
  std::span<GpuDevice const> gpus{};          ///< of this machine, as just read; empty: unknown, or none
  VisibleDevices visible{};                   ///< which of `gpus` the process sees
  ToldFigures const* told = nullptr;          ///< of which devices the machine has said its figures; null: of none
};

/// `process`, `pid`, `run` and, when asked for, `host`.
[[nodiscard]] Labels process_labels(flight::ProcessInfo const& process, bool with_host = false);

/// Adds everything that the file says. The view may be of a living or a dead process, and its contents hostile.
void collect_into(Families& families, flight::FlightView const& view, CollectOptions const& options = {});

/// The same of what was read before: `ledgers` are those to be shown. Of one that is closed and holds nothing only the counters are:
/// FlightView::ledgers() has none of those.
void collect_into(Families& families, flight::FlightView const& view, flight::ProcessInfo const& process,
                  std::vector<flight::LedgerSnapshot> ledgers, CollectOptions const& options = {});

/// One file alone, as collect_into.
[[nodiscard]] std::vector<prometheus::MetricFamily> collect(flight::FlightView const& view, CollectOptions const& options = {});

}  // namespace headroom::exporter
