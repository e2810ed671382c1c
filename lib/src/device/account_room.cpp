// Making room in an account: the frees that a claim may hope for, and how long.
//
// A refusal may be spoken when the request did not fit at one instant, with the bytes of every free under way counted as free. The claim
// itself looks at one instant; the frees under way are looked at on both sides of it. If none ended between the two looks, the second
// holds at least what was under way at that instant; if one did, that costs one more round and never a refusal.
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include <headroom/resource_decorator.hpp>

#include "base/test_point.hpp"
#include "base/thrown_error.hpp"
#include "device/account_core.hpp"
#include "device/backoff.hpp"
#include "device/guarded.hpp"
#include "device/patience.hpp"

namespace headroom::device {
namespace {

// Nothing wakes a shortage: a free may be reaped by whoever comes first, on whatever stack.
constexpr Backoff::Bounds kPauses{.shortest = std::chrono::microseconds{100}, .longest = std::chrono::microseconds{10'000}};

bool can_fit(std::uint64_t bytes, ledger::ClaimResult const& claim, std::uint64_t hoped_for) noexcept {
  const std::uint64_t limit = claim.limit_word & ledger::kBytesMask;
  // What stays claimed when they are back, and the request: the limit may lie below what is claimed, if it was lowered.
  return claim.claimed_before - std::min(hoped_for, claim.claimed_before) + bytes <= limit;
}

Result<std::uint64_t> ask(DeviceResource& stack, ReapMode mode) noexcept {
  return guarded([&] { return stack.reap_pending(mode); });
}

}  // namespace

std::vector<std::shared_ptr<DeviceResource>> AccountCore::stacks() const {
  std::vector<std::shared_ptr<DeviceResource>> alive;
  const std::scoped_lock lock{stacks_mutex_};
  alive.reserve(stacks_.size());
  for (auto const& stack : stacks_) {
    if (auto held = stack.lock()) alive.push_back(std::move(held));
  }
  return alive;
}

// Each bottom once, through the first stack that leads there: its pending frees are the same through all of them.
AccountCore::Reaped AccountCore::reap(ReapMode mode) {
  Reaped reaped;
  try {
    std::vector<DeviceResource const*> asked;
    for (auto const& stack : stacks()) {
      DeviceResource const* const bottom = &bottom_of(*stack);
      if (std::ranges::find(asked, bottom) != asked.end()) continue;
      asked.push_back(bottom);
      auto bytes = ask(*stack, mode);
      if (!bytes) {
        if (!reaped.failure) reaped.failure = std::move(bytes.error());
        continue;
      }
      reaped.bytes += *bytes;
      if (mode == ReapMode::synchronize_next && reaped.bytes != 0) break;
    }
  } catch (std::bad_alloc const&) {
    reaped.failure = make_error(ErrorKind::io, Layer::device_account,
                                words([] { return std::string{"the system has no memory to list the stacks of the account"}; }));
  }
  return reaped;
}

AccountCore::Attempt AccountCore::claim_after_reaping(std::uint64_t bytes, Claim claim) {
  Attempt attempt{};
  // One that fails only leaves more for the waiting below, which asks again.
  static_cast<void>(reap(ReapMode::query));
  Patience patience;
  Backoff pause{kPauses};
  while (true) {
    const FreesUnderWay before = frees_under_way();
    test_point(TestPoint::room_before_claim);
    attempt.claim = (ledger_.*claim)(bytes);
    if (attempt.claim.outcome != ledger::ClaimOutcome::refused) break;
    test_point(TestPoint::room_after_claim);
    const FreesUnderWay after = frees_under_way();
    const bool fits_later = after.ended != before.ended || can_fit(bytes, attempt.claim, after.bytes);
    if (attempt.reap_failure || !fits_later) break;
    // Each round that brings something back and still finds no room was overtaken by another thread's request.
    if (patience.overtaken()) break;
    Reaped reaped = reap(ReapMode::synchronize_next);
    // As long as some stack brings something back, another one's failure is no reason to give up.
    if (reaped.bytes == 0) attempt.reap_failure = std::move(reaped.failure);
    if (reaped.bytes != 0 || attempt.reap_failure) continue;
    // Late, only the count of rounds is missing.
    if (patience.is_long()) {
      std::this_thread::yield();
    } else {
      pause.once();
    }
  }
  return attempt;
}

}  // namespace headroom::device
