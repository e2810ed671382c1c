// headroom: a reading of a node exporter's books as samples. See node_books.hpp for what the figures mean.
//
// Thread safety: pure functions, but for reading files.
#pragma once

#include <functional>

#include <headroom/flight_reader.hpp>

#include "families.hpp"
#include "gpu_metrics.hpp"
#include "node_books.hpp"

namespace headroom::exporter {

/// The series of one process. Where its file turns out not to be whole, nothing is added, and `reading` gets what it had counted. What
/// cannot be collected (no memory) is thrown, likewise. `told`: devices whose figures the machine has said already.
void add_living(Families& families, NodeBooks::Reading& reading, NodeBooks::Living& living,
                std::function<bool(flight::FlightView const&)> const& is_whole, ToldFigures const* told = nullptr);

/// Counters of processes that ended a moment ago, and that they did.
void add_kept(Families& families, NodeBooks::Kept const& kept);

/// What has no series of its own any more, and how many died, by name.
void add_sums(Families& families, NodeBooks::Reading const& reading);

}  // namespace headroom::exporter
