// Which place in `device_traces` a manager has. PyTorch knows a device by its index alone.
//
// Managers on the same device, which is the same ordinal, UUID and name, share a place. A device's place is its ordinal, as CUDA counts.
// Where two claim one ordinal (a GPU and the host's stand-in for one, both of which count from 0), the one with a UUID has it; the other,
// and devices without an ordinal, get the next place that is free. Places are dealt out when the first one is asked for, to all ledgers
// known by then; those that come later get theirs when they come.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dump/timeline.hpp"

namespace headroom::dump {

class TorchDevices {
public:
  /// Ordinals above get the next place that is free: a list is written for each place below.
  static constexpr std::uint32_t kMostOrdinal = 255;

  struct Device {
    std::uint32_t place = 0;
    std::string name, uuid;
    std::int64_t ordinal = -1;
    std::vector<std::string> managers{};
  };

  void add(TimelineLedger const& ledger);
  /// Of a ledger that was added, by its id.
  [[nodiscard]] std::uint32_t place_of(std::uint32_t ledger);
  /// Of the device with this ordinal; absent: no ledger of it was added.
  [[nodiscard]] std::optional<std::uint32_t> place_of_ordinal(std::int64_t ordinal);
  /// Places up to and with this one are not dealt out any more.
  void close(std::uint32_t place) noexcept { first_free_ = place + 1; }
  /// Smallest place that was dealt out, 0 without any.
  [[nodiscard]] std::uint32_t first();
  /// One more than the largest.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// In order of appearance.
  [[nodiscard]] std::vector<Device> const& devices() const noexcept { return devices_; }

private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  void deal();
  [[nodiscard]] bool is_taken(std::uint32_t place) const noexcept;

  std::vector<Device> devices_{};
  std::vector<std::uint32_t> of_ledger_{};  // by ledger id: into devices_
  std::uint32_t first_free_ = 0;
  std::uint32_t count_ = 0;
  bool dealt_ = true;  // all devices_ have their place
};

}  // namespace headroom::dump
