// headroom: the parts of a process's state, as JSON, and how figures and names are written in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <headroom/gpu_devices.hpp>

#include "followed.hpp"

namespace headroom::exporter {

using Json = nlohmann::ordered_json;

/// Above 2^53 JavaScript would round it, so it is a string of digits then.
[[nodiscard]] Json figure(std::uint64_t value);
[[nodiscard]] Json figure(std::optional<std::uint64_t> const& value);  ///< null when it is not known
/// To a microsecond.
[[nodiscard]] Json seconds(std::uint64_t nanoseconds);
/// Valid UTF-8; null when it is empty.
[[nodiscard]] Json name_or_null(std::string_view name);

/// `CELL.GENERATION`: what a manager is called in answers, since names come again.
[[nodiscard]] std::string manager_id(flight::LedgerSnapshot const& ledger);

/// The devices of the managers, each once, with the figures of the driver where it told them and of the program where not.
class DeviceList {
public:
  DeviceList(std::span<flight::LedgerSnapshot const> ledgers, std::span<GpuDevice const> gpus);
  [[nodiscard]] Json json() const;
  /// Place in json() of a ledger's device; nothing when it has none.
  [[nodiscard]] std::optional<std::size_t> place_of(flight::LedgerSnapshot const& ledger) const;

private:
  struct Entry {
    flight::LedgerSnapshot const* known = nullptr;    ///< who knows it best
    flight::LedgerSnapshot const* account = nullptr;  ///< the budget that its managers share; null: none
    std::optional<std::uint64_t> total{}, usable{}, driver_reserved{}, free{}, outside{};
    bool by_driver = false;  ///< read from the driver just now, and not as the program last saw it
  };
  std::vector<Entry> entries_;
};

[[nodiscard]] Json manager_json(flight::LedgerSnapshot const& ledger, Look const& look, std::optional<std::size_t> device);
[[nodiscard]] Json failures_json(Look const& look);
[[nodiscard]] Json hooks_json(Look const& look);
/// Threads that are in the middle of something, and how many hold a lane in all.
[[nodiscard]] Json threads_json(Look const& look);
[[nodiscard]] Json losses_json(Look const& look);

}  // namespace headroom::exporter
