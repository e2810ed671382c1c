#include <headroom/visible_devices.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "device/visible_entry.hpp"

namespace headroom {
namespace {

using device::IndexOrder;
using device::VisibleEntry;
using device::VisibleForm;
using device::VisibleOutcome;

std::optional<std::string> variable(char const* name) {
  char const* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

/// The entries up to the first that is invalid: all that follow it are hidden, whatever they are.
std::vector<VisibleEntry> read_entries(std::string_view list, std::span<GpuDevice const> gpus, IndexOrder const& order,
                                       std::string& note) {
  std::vector<VisibleEntry> entries;
  while (true) {
    auto const comma = list.find(',');
    auto entry = device::read_visible_entry(list.substr(0, comma), gpus, order);
    if (entry.outcome == VisibleOutcome::invalid) {
      note =
          "entry " + std::to_string(entries.size() + 1) + " of CUDA_VISIBLE_DEVICES is invalid: it and all after it are hidden";
      return entries;
    }
    entries.push_back(std::move(entry));
    // A machine has few GPUs, so a longer list names one twice; nothing is to be had from reading on.
    constexpr std::size_t kMostEntries = 4096;
    if (comma == std::string_view::npos || entries.size() == kMostEntries) return entries;
    list.remove_prefix(comma + 1);
  }
}

bool are_twins(VisibleEntry const& a, VisibleEntry const& b) {
  if (a.index && b.index) return a.index == b.index;
  return a.outcome == VisibleOutcome::resolved && b.outcome == VisibleOutcome::resolved && a.match == b.match;
}

/// One of `entries` names the same as an earlier one.
bool names_one_twice(std::span<VisibleEntry const> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (std::ranges::any_of(entries.subspan(0, i), [&](auto const& other) { return are_twins(other, entries[i]); })) return true;
  }
  return false;
}

bool is_instance(VisibleEntry const& entry) { return entry.match.mig_instance.has_value() || entry.form == VisibleForm::mig; }

VisibleDevices unknown(std::string why) { return {.devices = {}, .complete = false, .note = std::move(why)}; }

/// All entries are resolved; the forms change at `change`.
VisibleDevices mixed(std::span<VisibleEntry const> entries, std::size_t change) {
  constexpr auto kWhy = "CUDA_VISIBLE_DEVICES mixes forms, and what CUDA makes of that is documented nowhere";
  // Were the rest accepted, an instance would hide the GPUs before it, and a device that is named again would hide everything.
  if (names_one_twice(entries) || std::ranges::any_of(entries, is_instance)) return unknown(kWhy);
  auto result = unknown(kWhy);
  for (auto const& entry : entries.first(change)) result.devices.push_back(entry.match);
  return result;
}

VisibleDevices resolve(std::vector<VisibleEntry> const& entries, std::string note) {
  auto const has_form = [&](VisibleForm form) { return entries.front().form == form; };
  if (entries.empty()) return {.devices = {}, .complete = true, .note = std::move(note)};
  auto const change = std::ranges::find_if_not(entries, has_form, &VisibleEntry::form);
  auto const is_mixed = change != entries.end();
  if (!is_mixed && names_one_twice(entries)) {
    if (std::ranges::any_of(entries, is_instance)) return unknown("CUDA_VISIBLE_DEVICES names an instance twice");
    return {.devices = {}, .complete = true, .note = "CUDA_VISIBLE_DEVICES names a device twice: CUDA then shows none"};
  }
  auto const doubtful = std::ranges::find(entries, VisibleOutcome::unknown, &VisibleEntry::outcome);
  // It could be a device that is named again, or an instance: both would hide the others too.
  if (doubtful != entries.end()) return unknown(doubtful->why);
  if (is_mixed) return mixed(entries, static_cast<std::size_t>(change - entries.begin()));

  VisibleDevices result{.devices = {}, .complete = true, .note = std::move(note)};
  auto const instances = static_cast<std::size_t>(std::ranges::count_if(entries, is_instance));
  if (instances == 0) {
    for (auto const& entry : entries) result.devices.push_back(entry.match);
  } else if (instances == entries.size()) {
    result.devices.push_back(entries.front().match);
    if (instances > 1) {
      result.complete = false;
      result.note = "CUDA shows one instance of those named; whether a newer driver shows the others is unknown";
    }
  } else {
    return unknown("an instance hides the GPUs named beside it, unless a newer driver has relaxed that");
  }
  return result;
}

}  // namespace

VisibilityEnvironment VisibilityEnvironment::of_this_process() {
  return {.visible_devices = variable("CUDA_VISIBLE_DEVICES"), .device_order = variable("CUDA_DEVICE_ORDER")};
}

std::optional<GpuMatch> VisibleDevices::at(std::int32_t ordinal) const noexcept {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) return std::nullopt;
  return devices[static_cast<std::size_t>(ordinal)];
}

std::optional<std::int32_t> VisibleDevices::ordinal_of(GpuMatch const& device) const noexcept {
  auto const found = std::ranges::find(devices, device);
  return found == devices.end() ? std::nullopt : std::optional{static_cast<std::int32_t>(found - devices.begin())};
}

bool VisibleDevices::hides(std::size_t gpu) const noexcept {
  return complete && std::ranges::find(devices, gpu, &GpuMatch::gpu) == devices.end();
}

VisibleDevices resolve_visible_devices(VisibilityEnvironment const& environment, std::span<GpuDevice const> gpus) {
  if (gpus.empty()) return {};
  IndexOrder const order{gpus, environment.device_order};
  if (!environment.visible_devices) {
    std::vector<VisibleEntry> all;
    all.reserve(order.size());
    for (std::uint32_t index = 0; index < order.size(); ++index) all.push_back(order.entry_of(index));
    return resolve(all, {});
  }
  if (environment.visible_devices->empty()) return {.devices = {}, .complete = true, .note = "CUDA_VISIBLE_DEVICES is empty"};
  std::string note;
  auto const entries = read_entries(*environment.visible_devices, gpus, order, note);
  return resolve(entries, std::move(note));
}

}  // namespace headroom
