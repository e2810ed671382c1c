// headroom: faults on purpose, the same ones on every run.
// Layer: device
//
// A FaultPlan is a list of rules such as "the third allocation above 1 MiB fails with device_out_of_memory". HostResource carries
// one (`HostResource::faults()`); any other resource can ask one before it calls its driver.
//
// A rule counts the operations that match it, from the moment it was added, and fails those its schedule names. Only operations
// that would reach a driver are counted: zero bytes, bad arguments and detected misuse never are. All rules count every operation
// that matches them; the first rule in order of addition that wants to fail an operation decides the error.
//
// Thread safety: every member may be called from any thread; counting is exact under concurrency. Rules are data, no
// callbacks.
// Cost: one relaxed load while there is no rule; a mutex and a walk over the rules otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <headroom/error.hpp>

namespace headroom {

/// `event` is the recording of an event and the wait for one, as the tracking of uses needs them; it has 0 bytes and tag 0.
enum class FaultOperation : std::uint8_t { allocate, deallocate, fill, copy, event };

/// `times` of a rule that never wears out.
inline constexpr std::uint64_t kFaultForever = UINT64_MAX;

/// What fails, when, and how. Matching: operation, size, tag and thread, all of them. Schedule: among the matching operations
/// number `nth` (from 1) fails, then every `every`-th after it, `times` failures in all.
struct FaultRule {
  FaultOperation operation = FaultOperation::allocate;
  std::uint64_t nth = 1;    ///< first matching operation to fail, counted from 1; 0 is read as 1
  std::uint64_t every = 1;  ///< distance between failures; 1 = each following one, 0 is read as 1
  std::uint64_t times = 1;  ///< how many failures; kFaultForever = no end

  std::uint64_t min_bytes = 0;              ///< smallest size that matches (for fill and copy: the bytes filled or copied)
  std::uint64_t max_bytes = UINT64_MAX;     ///< largest size that matches
  std::optional<std::uint16_t> tag{};       ///< only this tag
  std::optional<std::thread::id> thread{};  ///< only this thread

  ErrorKind kind = ErrorKind::device_out_of_memory;
  std::int32_t device_code = 2;  ///< as a driver would say it; 2 is cudaErrorMemoryAllocation, 700 an illegal address
  std::string message{};         ///< empty = "injected fault"
};

/// Names a rule of one plan. Never reused.
struct FaultId {
  std::uint64_t value = 0;
  friend bool operator==(FaultId, FaultId) = default;
};

class FaultPlan {
public:
  FaultPlan() = default;
  FaultPlan(FaultPlan const&) = delete;
  FaultPlan& operator=(FaultPlan const&) = delete;

  /// Adds a rule; it counts from here. To fail exactly the nth: {.operation = …, .nth = n}. Every nth: {.nth = n, .every = n,
  /// .times = kFaultForever}.
  FaultId add(FaultRule rule);

  /// On the calling thread only: lets `successes` operations pass, then fails `failures` of them.
  FaultId inject_on_this_thread(FaultOperation operation, std::uint64_t successes, std::uint64_t failures,
                                ErrorKind kind = ErrorKind::device_out_of_memory, std::int32_t device_code = 2);

  /// Takes a rule out again. False when there is none of that id.
  bool remove(FaultId id);
  void clear();

  /// Failures that a rule has caused so far; 0 for an unknown id.
  [[nodiscard]] std::uint64_t failures(FaultId id) const;
  /// Failures that all rules have caused, removed ones included.
  [[nodiscard]] std::uint64_t failures() const;

  /// For resources: counts one operation of the calling thread; the error (layer driver, `requested` set) if it must fail.
  [[nodiscard]] std::optional<Error> next(FaultOperation operation, std::uint64_t bytes, std::uint16_t tag) {
    if (!armed_.load(std::memory_order_relaxed)) {
      return std::nullopt;
    }
    return next_armed(operation, bytes, tag);
  }

private:
  struct Entry {
    FaultId id;
    FaultRule rule;
    std::uint64_t matched = 0;
    std::uint64_t failed = 0;
  };
  [[nodiscard]] std::optional<Error> next_armed(FaultOperation operation, std::uint64_t bytes, std::uint16_t tag);

  // Written under mutex_ (true while there are rules), read by `next` without it. Relaxed: a thread that must see a rule was told
  // of it by whoever added it, and that telling orders the load.
  std::atomic<bool> armed_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Entry> entries_;
  std::uint64_t next_id_ = 1;
  std::uint64_t failures_ = 0;
};

}  // namespace headroom
