// headroom: the guard of `headroom replay --hook … --policy …`, and the memory that its hooks can give up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/guard.hpp>

namespace headroom::command {

/// NAME:SIZE:PRIORITY[:OVERHEAD]
struct HookPlan {
  std::string name;
  std::uint64_t bytes = 0;
  std::int32_t priority = 0;
  std::uint64_t overhead_bytes = 0;
};

/// Errors name the text and what was expected.
[[nodiscard]] Result<HookPlan> parse_hook(std::string_view text);
/// fail, retry, wait:MS or checkpoint. Errors likewise.
[[nodiscard]] Result<OomPolicy> parse_policy(std::string_view text);

/// A guard over a manager, with hooks that hold memory of it in blocks of 64 MiB, under the hook's name as tag, and free the oldest
/// first until the shortfall is covered. A listener lets them take memory again once there is no pressure, as caches do; while one of
/// the hooks runs it is put off to the next change of pressure.
/// Ownership: holds the blocks; they are freed with it. Thread safety: as a guard; made and destroyed by one thread.
class ReplayGuard {
public:
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;

  /// Errors: over_budget and others (a hook's memory cannot be had at the start), invalid_argument (a name that is used twice).
  [[nodiscard]] static Result<std::unique_ptr<ReplayGuard>> make(GpuMemoryManager const& manager,
                                                                 std::vector<HookPlan> const& hooks, OomPolicy policy);
  ~ReplayGuard();
  ReplayGuard(ReplayGuard const&) = delete;
  ReplayGuard& operator=(ReplayGuard const&) = delete;

  [[nodiscard]] MemoryGuard const& guard() const noexcept { return guard_; }

private:
  class Holder;
  class Refills;
  explicit ReplayGuard(MemoryGuard const& guard);
  MemoryGuard guard_;
  std::vector<std::shared_ptr<Holder>> holders_;
};

}  // namespace headroom::command
