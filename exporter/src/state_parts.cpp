// Managers, their devices, tags and last minutes.
#include "state_parts.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <headroom/pressure.hpp>

namespace headroom::exporter {
namespace {

using flight::LedgerSnapshot;

constexpr std::size_t kTagsShown = 16;  // by what they hold, and as many by what they held at the peak

bool is_same_device(LedgerSnapshot const& left, LedgerSnapshot const& right) {
  if (!left.device_uuid.empty() || !right.device_uuid.empty()) return left.device_uuid == right.device_uuid;
  return left.device_name == right.device_name && left.device_ordinal == right.device_ordinal;
}

bool has_device(LedgerSnapshot const& ledger) {
  return !ledger.device_uuid.empty() || !ledger.device_name.empty() || ledger.device_ordinal >= 0;
}

/// The tags that hold the most, and those that held the most at the peak.
Json tags_json(LedgerSnapshot const& ledger) {
  auto by_bytes = ledger.tags;  // largest first already
  auto by_peak = ledger.tags;
  std::ranges::stable_sort(by_peak, std::ranges::greater{}, &flight::TagSnapshot::at_peak_bytes);
  std::set<std::uint32_t> shown;
  for (std::size_t place = 0; place < std::min(kTagsShown, by_bytes.size()); ++place) {
    if (by_bytes[place].bytes != 0 || by_bytes[place].allocations != 0) shown.insert(by_bytes[place].id);
    if (by_peak[place].at_peak_bytes != 0) shown.insert(by_peak[place].id);
  }
  auto list = Json::array();
  std::uint64_t left_out = 0, left_out_bytes = 0, left_out_at_peak = 0;
  for (auto const& tag : by_bytes) {
    if (shown.contains(tag.id)) {
      list.push_back({{"name", tag.name.empty() ? "untagged" : tag.name},
                      {"bytes", figure(tag.bytes)},
                      {"at_peak_bytes", figure(tag.at_peak_bytes)},
                      {"allocations", figure(tag.allocations)}});
    } else if (tag.bytes != 0 || tag.at_peak_bytes != 0 || tag.allocations != 0) {
      ++left_out;
      left_out_bytes += tag.bytes;
      left_out_at_peak += tag.at_peak_bytes;
    }
  }
  return {{"list", std::move(list)},
          {"left_out", left_out},
          {"left_out_bytes", figure(left_out_bytes)},
          {"left_out_at_peak_bytes", figure(left_out_at_peak)}};
}

/// Arrays of equal length, one place for each second from `first` on; null where nothing was read.
Json history_json(Look const& look, LedgerSnapshot const& ledger) {
  const auto found = look.histories.find(Samples::key_of(ledger));
  if (found == look.histories.end()) return nullptr;
  auto const& seconds = found->second;
  auto low = Json::array(), high = Json::array(), limit = Json::array(), failures = Json::array();
  const std::uint64_t first = seconds.empty() ? 0 : seconds.front().number;
  for (auto const& second : seconds) {
    while (low.size() < second.number - first) {
      for (auto* const array : {&low, &high, &limit, &failures}) array->push_back(nullptr);
    }
    low.push_back(figure(second.low));
    high.push_back(figure(second.high));
    limit.push_back(figure(second.limit));
    failures.push_back(figure(second.failures));
  }
  return {{"first_second", first},
          {"low_bytes", std::move(low)},
          {"high_bytes", std::move(high)},
          {"budget_bytes", std::move(limit)},
          {"failures", std::move(failures)}};
}

}  // namespace

Json figure(std::uint64_t value) {
  constexpr std::uint64_t kExactInADouble = std::uint64_t{1} << 53U;
  return value <= kExactInADouble ? Json(value) : Json(std::to_string(value));
}

Json figure(std::optional<std::uint64_t> const& value) { return value ? figure(*value) : Json(nullptr); }

Json seconds(std::uint64_t nanoseconds) { return std::round(static_cast<double>(nanoseconds) * 1e-3) / 1e6; }

Json name_or_null(std::string_view name) { return name.empty() ? Json(nullptr) : Json(std::string{name}); }

std::string manager_id(LedgerSnapshot const& ledger) {
  return std::to_string(ledger.cell) + "." + std::to_string(ledger.generation);
}

DeviceList::DeviceList(std::span<LedgerSnapshot const> ledgers, std::span<GpuDevice const> gpus) {
  for (auto const& ledger : ledgers) {
    if (!has_device(ledger)) continue;
    auto place = std::ranges::find_if(entries_, [&](Entry const& entry) { return is_same_device(*entry.known, ledger); });
    if (place == entries_.end()) place = entries_.insert(place, {.known = &ledger});
    if (ledger.is_device_account) place->account = place->known = &ledger;
    // An account knows its device best; of managers, any that does.
    const auto take = [&](std::optional<std::uint64_t>& known, std::optional<std::uint64_t> const& told) {
      if (told && (!known || ledger.is_device_account)) known = told;
    };
    take(place->total, ledger.device_total);
    take(place->free, ledger.device_free);
    take(place->outside, ledger.device_outside);
  }
  for (auto& entry : entries_) {
    const auto match = find_gpu(gpus, {.uuid = entry.known->device_uuid, .pci_address = entry.known->device_pci_address});
    if (!match) continue;
    auto const& memory = memory_of(gpus, *match);
    entry.usable = memory.usable;
    entry.driver_reserved = memory.driver_reserved;
    if (memory.physical_total) entry.total = memory.physical_total;
    if (memory.free) entry.free = memory.free;
    entry.by_driver = memory.free.has_value();
  }
}

Json DeviceList::json() const {
  auto list = Json::array();
  for (auto const& entry : entries_) {
    const auto ordinal = entry.known->device_ordinal;
    Json device;
    device["name"] = name_or_null(entry.known->device_name);
    device["ordinal"] = ordinal >= 0 ? Json(ordinal) : Json(nullptr);
    device["uuid"] = name_or_null(entry.known->device_uuid);
    device["pci_address"] = name_or_null(entry.known->device_pci_address);
    device["total_bytes"] = figure(entry.total);
    device["usable_bytes"] = figure(entry.usable);
    device["driver_reserved_bytes"] = figure(entry.driver_reserved);
    device["free_bytes"] = figure(entry.free);
    device["outside_bytes"] = figure(entry.outside);
    device["seen_by"] = entry.by_driver ? "driver" : "program";
    device["budget_bytes"] = entry.account == nullptr ? Json(nullptr) : figure(entry.account->limit);
    device["claimed_bytes"] = entry.account == nullptr ? Json(nullptr) : figure(entry.account->claimed);
    device["pending_free_bytes"] = entry.account == nullptr ? Json(nullptr) : figure(entry.account->pending_free_bytes);
    list.push_back(std::move(device));
  }
  return list;
}

std::optional<std::size_t> DeviceList::place_of(LedgerSnapshot const& ledger) const {
  if (!has_device(ledger)) return std::nullopt;
  const auto place = std::ranges::find_if(entries_, [&](Entry const& entry) { return is_same_device(*entry.known, ledger); });
  if (place == entries_.end()) return std::nullopt;
  return static_cast<std::size_t>(place - entries_.begin());
}

Json manager_json(LedgerSnapshot const& ledger, Look const& look, std::optional<std::size_t> device) {
  Json manager;
  manager["id"] = manager_id(ledger);
  manager["name"] = name_or_null(ledger.name);
  manager["device"] = device ? Json(*device) : Json(nullptr);
  manager["budget_bytes"] = figure(ledger.limit);
  manager["enforcing"] = ledger.enforcing;
  manager["allocated_bytes"] = figure(ledger.allocated);
  manager["claimed_bytes"] = figure(ledger.claimed);
  manager["peak_bytes"] = figure(ledger.peak);
  manager["remaining_bytes"] = figure(ledger.remaining());
  manager["over_budget_bytes"] = figure(ledger.limit ? ledger.over_budget() : 0);
  manager["reserved_unspent_bytes"] = figure(ledger.unspent);
  manager["sentinel_bytes"] = figure(ledger.sentinel_bytes);
  manager["live_allocations"] = figure(ledger.live_allocations);
  manager["pressure"] = to_string(ledger.pressure);
  manager["allocations"] = figure(ledger.counters.allocations);
  manager["frees"] = figure(ledger.counters.frees);
  manager["failures"] = figure(ledger.failures());
  manager["failed_frees"] = figure(ledger.failed_frees);
  manager["failed_free_bytes"] = figure(ledger.failed_free_bytes);
  manager["waiters"] = figure(ledger.waiters);
  manager["tags"] = tags_json(ledger);
  manager["history"] = history_json(look, ledger);
  return manager;
}

}  // namespace headroom::exporter
