#include "command/figures.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace headroom::command {
namespace {

template <class T>
[[nodiscard]] nlohmann::ordered_json value_or_null(std::optional<T> const& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

[[nodiscard]] nlohmann::ordered_json device_json(DeviceFigures const& device) {
  nlohmann::ordered_json json;
  json["device"] = device.device;
  json["peak_bytes"] = device.peak_bytes;
  json["live_bytes"] = device.live_bytes;
  json["live_allocations"] = device.live_allocations;
  json["from_before_allocations"] = device.from_before_allocations;
  json["from_before_bytes"] = device.from_before_bytes;
  json["segments"] = value_or_null(device.segments);
  json["reserved_bytes"] = value_or_null(device.reserved_bytes);
  json["allocated_bytes"] = value_or_null(device.allocated_bytes);
  json["active_bytes"] = value_or_null(device.active_bytes);
  json["active_blocks"] = value_or_null(device.active_blocks);
  json["inactive_blocks"] = value_or_null(device.inactive_blocks);
  json["largest_inactive_bytes"] = value_or_null(device.largest_inactive_bytes);
  json["fragmentation"] = value_or_null(device.fragmentation);
  return json;
}

}  // namespace

std::string to_json(Figures const& figures, std::span<DeviceFigures const> devices) {
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
  for (auto const& device : devices) json["devices"].push_back(device_json(device));
  return json.dump(2);
}

void print_json_line(std::string const& json) {
  std::fwrite(json.data(), 1, json.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace headroom::command
