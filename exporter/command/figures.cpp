#include "command/figures.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace headroom::command {
namespace {

template <class T>
[[nodiscard]] nlohmann::ordered_json value_or_null(std::optional<T> const& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string to_json(Figures const& figures) {
  nlohmann::ordered_json json;
  json["allocations"] = value_or_null(figures.allocations);
  json["frees"] = value_or_null(figures.frees);
  json["trace_failures"] = value_or_null(figures.trace_failures);
  json["refused"] = value_or_null(figures.refused);
  json["unmatched_frees"] = value_or_null(figures.unmatched_frees);
  json["peak_bytes"] = value_or_null(figures.peak_bytes);
  json["live_bytes"] = value_or_null(figures.live_bytes);
  json["live_allocations"] = value_or_null(figures.live_allocations);
  json["budget_bytes"] = value_or_null(figures.budget_bytes);
  json["claimed_bytes"] = value_or_null(figures.claimed_bytes);
  json["elapsed_seconds"] = value_or_null(figures.elapsed_seconds);
  json["events_recorded"] = value_or_null(figures.events_recorded);
  json["events_read"] = value_or_null(figures.events_read);
  json["events_lost"] = value_or_null(figures.events_lost);
  json["loop_frees"] = value_or_null(figures.loop_frees);
  return json.dump(2);
}

void print_json_line(std::string const& json) {
  std::fwrite(json.data(), 1, json.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace headroom::command
