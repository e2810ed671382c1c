// headroom: any resource, broken on purpose.
// Layer: device
//
// A FaultResource carries a FaultPlan and asks it before the inner resource hears of a call; what the plan fails never arrives there.
// Use it to see what a program does when a device of any kind refuses, above a budget to test managers, below one to test budgets.
// HostResource has a plan of its own; this one fits every resource.
//
//   auto broken = FaultResource::create(cuda).value();
//   broken->faults().add({.operation = FaultOperation::allocate, .nth = 3});
//
// Zero bytes, alignments and sizes that no resource accepts, and ranges outside their block are passed on uncounted. What only the
// inner resource can tell (an unknown stream, a stale block) is counted, since it has not been asked yet.
//
// Errors of the plan have Layer::driver, like those of the driver that they stand for; a failed allocation also carries device_free
// where the inner resource knows it.
//
// Ownership: shares the inner resource. Thread safety: any thread, any time. Cost: one relaxed load while the plan is empty.
#pragma once

#include <headroom/fault_plan.hpp>
#include <headroom/resource_decorator.hpp>

namespace headroom {

class FaultResource final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "fault";

  /// Errors: invalid_argument, as InnerResource::check.
  [[nodiscard]] static Result<std::shared_ptr<FaultResource>> create(std::shared_ptr<DeviceResource> inner);
  explicit FaultResource(InnerResource inner) noexcept;

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  [[nodiscard]] Result<void> deallocate(Block const& block) override;
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;
  [[nodiscard]] std::string_view name() const noexcept override;

  [[nodiscard]] FaultPlan& faults() noexcept { return faults_; }

private:
  FaultPlan faults_;
};

}  // namespace headroom
