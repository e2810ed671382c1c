// The road of a request that met a shortage, of a budget or of the device: hooks, policy, reservation, callback, error.
//
// Every step ends in a try of the whole request, which the ledger judges anew; there is no claim in between. The road ends: hooks have
// a fixed number of rounds and none after one that freed nothing, waiting has a deadline, everything else is done once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include <headroom/guard.hpp>

#include "guard/core.hpp"

namespace headroom::guard {

class Recovery {
public:
  /// `first` is the shortage that the request met.
  Recovery(Core& core, Request const& request, std::source_location const& site, manager::Allocation& allocation, Error first);
  /// Nothing: the request was granted. Else the first error, with what was tried.
  [[nodiscard]] std::optional<Error> run();

private:
  using Clock = std::chrono::steady_clock;

  /// What was tried, for the error's message.
  struct Tried {
    std::uint64_t hook_runs = 0, hook_skips = 0, hooks_elsewhere = 0, hook_failures = 0, hook_freed = 0, hook_reported = 0;
    bool retried = false;
    std::uint64_t came_back = 0;  // by the retry's reaping and trimming
    std::optional<std::chrono::nanoseconds> waited;
    std::uint64_t reservation = 0;
    std::optional<Checkpoint::Outcome> checkpoint;
    [[nodiscard]] bool anything() const noexcept;
    [[nodiscard]] std::string to_string() const;
  };

  /// True: granted. False: short again, as last_ says, or broken_.
  bool try_again();
  [[nodiscard]] bool from_reserve();
  [[nodiscard]] bool by_hooks();
  [[nodiscard]] bool by_policy();
  [[nodiscard]] bool by_retry();
  [[nodiscard]] bool by_waiting();
  [[nodiscard]] bool by_reservation();
  void call_back();
  [[nodiscard]] std::optional<Error> recovered();
  [[nodiscard]] std::optional<Error> gave_up();

  void record_begin(flight::PolicyStep begins) noexcept;
  void record(flight::PolicyStep step, std::chrono::nanoseconds duration, std::uint64_t bytes, bool granted) noexcept;
  [[nodiscard]] bool can_never_fit() const noexcept;
  [[nodiscard]] bool short_of_own_budget() const noexcept;
  [[nodiscard]] std::uint64_t shortfall() const noexcept;
  [[nodiscard]] std::uint64_t room() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return *first_.requested; }

  std::shared_ptr<Core> core_;  // for as long as a wait may take
  Request const& request_;
  std::source_location const& site_;
  manager::Allocation& allocation_;
  Error first_;
  Error last_;                   // the newest shortage; figures only
  std::optional<Error> broken_;  // what no memory can mend: the road ends
  OomPolicy policy_;             // in force, as this request saw it last
  Clock::time_point started_;
  std::uint64_t checkpoint_mark_;
  Tried tried_;
};

}  // namespace headroom::guard
