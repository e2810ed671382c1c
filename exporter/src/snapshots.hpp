// headroom: post-mortems of the present moment, asked for over HTTP: `/snapshot.json`.
//
// Each may take as much memory as the flight file, and some, until its client has it; so at most kMost are made or on their way at a
// time, and the next client is asked to come again.
//
// Thread safety: from any thread. An answer may outlive this. Cost: see post_mortem.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <headroom/flight_reader.hpp>

#include "http.hpp"

namespace headroom::exporter {

/// An answer that says no, as a line of text.
[[nodiscard]] inline Reply refusal(int status, std::string text) { return {.body = std::move(text) + "\n", .status = status}; }

class Snapshots {
public:
  static constexpr std::uint32_t kMost = 2;  ///< at a time

  /// 503 when kMost are on their way, or when `is_whole` finds afterwards that the file was damaged meanwhile. `?events=0` leaves the
  /// events out. Throws what goes wrong in writing.
  [[nodiscard]] Reply give(flight::FlightView const& view, Request const& request,
                           std::function<bool(flight::FlightView const&)> const& is_whole = {});

private:
  // On their way to clients; any thread, relaxed: a count. Shared with them, since they may outlive this.
  std::shared_ptr<std::atomic<std::uint32_t>> count_ = std::make_shared<std::atomic<std::uint32_t>>(0);
};

}  // namespace headroom::exporter
