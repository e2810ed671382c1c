// Guards, their figures and policies in words.
#include <ostream>
#include <string>

#include <headroom/byte_size.hpp>
#include <headroom/guard.hpp>

#include "guard/core.hpp"

namespace headroom {
namespace {

std::string counted(std::uint64_t count, const char* what) {
  return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

std::string of_budget(std::uint64_t bytes, std::uint64_t budget) {
  return format_bytes_exact(bytes) + (budget == 0 ? "" : " of " + format_bytes_exact(budget));
}

std::string timeout_text(std::chrono::nanoseconds timeout) {
  using namespace std::chrono;
  if (timeout % 1ms == 0ns) return std::to_string(duration_cast<milliseconds>(timeout).count()) + " ms";
  return std::to_string(timeout.count()) + " ns";
}

}  // namespace

std::string OomPolicy::to_string() const {
  switch (kind()) {
    case Kind::fail: return "fail";
    case Kind::retry_after_free: return "retry after free";
    case Kind::wait_and_retry: return "wait " + timeout_text(timeout()) + " and retry";
    case Kind::checkpoint_and_fail: return "checkpoint and fail";
  }
  return "unknown";
}

std::string GuardStats::to_string() const {
  std::string text = of_budget(used, budget) + " used, " + format_bytes_exact(claimed) + " claimed, peak " +
                     format_bytes_exact(peak) + ", pressure " + std::string{headroom::to_string(pressure)} + ", " +
                     counted(live_allocations, "live allocation") + ", " + counted(refusals, "refusal") + ", " +
                     std::to_string(recoveries) + " recovered, " + counted(hooks_run, "hook run") + " freed " +
                     format_bytes_exact(bytes_freed_by_hooks);
  if (reservation != 0) text += ", " + format_bytes_exact(reservation) + " held back";
  if (device_free && device_total) {
    text += ", device " + format_bytes_exact(*device_free) + " of " + format_bytes_exact(*device_total) + " free";
  }
  return text;
}

std::string MemoryGuard::to_string() const {
  const std::uint64_t held = core_->sentinel().held();
  return "guard of '" + core_->manager().name() + "' on '" + device().name() +
         "': " + of_budget(core_->manager().claimed_bytes(), budget()) + " claimed, pressure " +
         std::string{headroom::to_string(pressure_level())} + ", " + counted(core_->hooks().size(), "hook") + ", policy " +
         oom_policy().to_string() + ", " + (held == 0 ? "no reservation" : format_bytes_exact(held) + " held back");
}

std::ostream& operator<<(std::ostream& out, MemoryGuard const& guard) { return out << guard.to_string(); }
std::ostream& operator<<(std::ostream& out, GuardStats const& stats) { return out << stats.to_string(); }
std::ostream& operator<<(std::ostream& out, OomPolicy const& policy) { return out << policy.to_string(); }

}  // namespace headroom
