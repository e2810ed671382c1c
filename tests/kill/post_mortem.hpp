// What must be true of the flight file of a killed victim, and where its threads stood.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <headroom/flight_format.hpp>

#include "base/test_point.hpp"
#include "flight/mapping.hpp"
#include "pattern.hpp"

namespace headroom::kill {

/// Where a lane's thread was: between operations, or after the last named point that it passed within one.
struct Standing {
  static constexpr std::size_t kSteps = kTestPointCount + 1;  // 0: no point passed yet in this operation
  static constexpr std::size_t kOperations = 6;               // by flight::InFlight; 0, none, stays empty
  std::uint64_t idle = 0;
  std::array<std::array<std::uint64_t, kSteps>, kOperations> within{};
  [[nodiscard]] std::uint64_t at(flight::InFlight operation, TestPoint point) const {
    return within[static_cast<std::size_t>(operation)][static_cast<std::size_t>(point) + 1];
  }
};

struct PostMortem {
  std::vector<std::string> problems;  ///< sentences; empty when all holds
  Standing standing;
  std::uint64_t records = 0;          ///< checked one by one
  std::uint64_t uncommitted = 0;      ///< complete, but not published
  std::uint64_t live_blocks = 0;      ///< checked one by one
  std::uint64_t skipped_slots = 0;    ///< being written when the process died
  std::uint64_t missing_records = 0;  ///< counted in the books, their record not written: at most one operation's in a lane
  std::uint64_t in_flight = 0;        ///< lanes with an operation under way
};

[[nodiscard]] PostMortem examine(std::string const& path, Truths const& truths);

[[nodiscard]] const char* step_name(std::size_t step);

}  // namespace headroom::kill
