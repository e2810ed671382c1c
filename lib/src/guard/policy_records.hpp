// What a guard did about a shortage, written down: a policy record in the thread's lane.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/oom_policy.hpp>

#include "ledger/ledger.hpp"

namespace headroom::guard {

struct PolicyRecord {
  flight::PolicyStep step{};
  flight::PolicyStep begins{};  ///< of `begun`
  OomPolicy policy = OomPolicy::fail();
  std::chrono::nanoseconds duration{0};
  std::uint64_t bytes = 0;
  std::uint16_t tag = 0;           ///< of the request
  Error const* refusal = nullptr;  ///< what it was about; null: granted
};

void write_record(ledger::Ledger& ledger, PolicyRecord const& record) noexcept;

}  // namespace headroom::guard
