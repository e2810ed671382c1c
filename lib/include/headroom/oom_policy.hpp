// headroom: what a guard does about a request that found no memory.
// Layer: guard
//
// A policy is consulted after the hooks had their turn (in safe_alloc_with_hooks; the other doors have none), for a budget without room
// and a device without memory alike. Whatever it tries, the budget decides again: nothing is ever promised. What comes out when all
// failed is the first error, and its message says what was tried.
//
//   fail                  nothing is tried.
//   retry_after_free      frees that are pending on the device's streams are waited for, caches of the resources are given back to
//                         the device, and the request is tried once more.
//   wait_and_retry        the request is tried again whenever frees of other threads, a changed budget or a changed policy may have
//                         made room, until its deadline: the time of its first refusal + timeout. Of a device without memory nothing
//                         tells when it has some: it is asked again after 1 to 50 ms. A request above the limit does not wait.
//   checkpoint_and_fail   the callback of MemoryGuard::on_oom is called, then the request fails. Requests that fail at the same time
//                         share one run.
//
// A policy that is changed while a request waits holds for that request from then on; a new timeout counts from its first refusal.
// Inside a hook or the callback every request has the policy fail. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headroom {

class OomPolicy {
public:
  /// Numbers are stored in flight files. Append only.
  enum class Kind : std::uint8_t { fail = 0, retry_after_free = 1, wait_and_retry = 2, checkpoint_and_fail = 3 };

  [[nodiscard]] static constexpr OomPolicy fail() noexcept { return {Kind::fail, 0}; }
  [[nodiscard]] static constexpr OomPolicy retry_after_free() noexcept { return {Kind::retry_after_free, 0}; }
  /// Negative = 0: one more try, no wait. More than 146 years are 146 years.
  [[nodiscard]] static constexpr OomPolicy wait_and_retry(std::chrono::nanoseconds timeout) noexcept {
    const auto ns = timeout.count() < 0 ? 0 : static_cast<std::uint64_t>(timeout.count());
    return {Kind::wait_and_retry, ns < kTimeoutMask ? ns : kTimeoutMask};
  }
  [[nodiscard]] static constexpr OomPolicy checkpoint_and_fail() noexcept { return {Kind::checkpoint_and_fail, 0}; }

  [[nodiscard]] constexpr Kind kind() const noexcept { return static_cast<Kind>(word_ >> kKindShift); }
  /// Of wait_and_retry; 0 for the others.
  [[nodiscard]] constexpr std::chrono::nanoseconds timeout() const noexcept {
    return std::chrono::nanoseconds{static_cast<std::int64_t>(word_ & kTimeoutMask)};
  }
  /// "fail", "retry after free", "wait 200 ms and retry" or "checkpoint and fail".
  [[nodiscard]] std::string to_string() const;

  friend constexpr bool operator==(OomPolicy const&, OomPolicy const&) = default;

  // As one word, so that it changes at once while others read it.
  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] static constexpr OomPolicy from_word(std::uint64_t word) noexcept { return OomPolicy{word}; }

private:
  static constexpr unsigned kKindShift = 62;
  static constexpr std::uint64_t kTimeoutMask = (std::uint64_t{1} << kKindShift) - 1;
  constexpr OomPolicy(Kind kind, std::uint64_t timeout_ns) noexcept
      : word_((std::uint64_t{static_cast<std::uint8_t>(kind)} << kKindShift) | timeout_ns) {}
  constexpr explicit OomPolicy(std::uint64_t word) noexcept : word_(word) {}
  std::uint64_t word_;  // kind (2) · timeout in ns (62)
};

}  // namespace headroom
