#include "node_metrics.hpp"

#include <utility>

#include "metrics.hpp"

namespace headroom::exporter {

void add_living(Families& families, NodeBooks::Reading& reading, NodeBooks::Living& living,
                std::function<bool(flight::FlightView const&)> const& is_whole, ToldFigures const* told) {
  CollectOptions options;
  options.with_host = true;
  options.told = told;
  // As the scrape found it: asked again, it could be dead beside gauges of the living.
  options.liveness = living.is_certain ? flight::Liveness::living : flight::Liveness::unknown;
  const auto before = families.mark();
  const auto take_back = [&] {
    families.rollback(before);
    NodeBooks::withdraw(reading, living);
  };
  // Whoever cannot be seen living holds nothing for certain.
  families.set_counters_only(!living.is_certain);
  try {
    collect_into(families, *living.view, living.process, std::move(living.ledgers), options);
  } catch (...) {
    families.set_counters_only(false);
    take_back();
    throw;
  }
  families.set_counters_only(false);
  if (!is_whole(*living.view)) take_back();  // what was read may be anything; the next look takes it off the books
}

void add_kept(Families& families, NodeBooks::Kept const& kept) {
  families.add(Metric::process_up, kept.labels, std::uint64_t{0});
  families.add(Metric::died_live_bytes, with_label(kept.labels, "state", to_string(kept.ending)), kept.live_bytes);
  if (!kept.samples) return;
  for (auto [metric, sample] : *kept.samples) {
    sample.label.insert(sample.label.begin(), kept.labels.begin(), kept.labels.end());
    families.add(metric, std::move(sample));
  }
}

void add_sums(Families& families, NodeBooks::Reading const& reading) {
  for (auto const& [name, sums] : reading.sums) {
    const Labels labels = with_label({}, "process", name);
    sums.exited.add_to(families, labels);
    for (std::size_t ending = 0; ending < kEndingCount; ++ending) {
      families.add(Metric::processes_died_total, with_label(labels, "state", to_string(static_cast<Ending>(ending))),
                   sums.died[ending]);
    }
  }
}

}  // namespace headroom::exporter
