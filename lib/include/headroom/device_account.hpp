// headroom: one budget for a physical device, shared by every stack of the process that ends in it.
// Layer: device
//
// A manager's budget limits that manager. A GlobalDeviceBudget limits the device: put one into each stack, and all of them draw on the
// one DeviceAccount that the process keeps for that device, whichever manager or runtime asks.
//
//   auto stack = GlobalDeviceBudget::create(device, MemoryBudget::from_device_memory(total)).value();
//   auto block = stack->allocate({.bytes = 1 << 20});
//
// Same device: the resources at the bottom of the stacks have the same device_uuid(), or are the same object when it is empty. The
// first user sets the budget; a later one must ask for the same. The account closes with its last stack; bytes that are still out then
// stay counted, and the device's next user finds them (but for a device that was an object and is gone).
//
// What counts. A byte is claimed from the request on until the device really has it back: a stream-ordered free stays claimed and
// allocated (and is shown as pending) until it was reaped, by whichever thread reaped it. So claimed = allocated + unspent
// reservations + requests in flight, and allocated = live + pending. Zero bytes charge nothing. A free that the resource refuses
// keeps its bytes. A manager's write-off gives nothing back here: nothing shows that the device has the memory.
//
// Shortage. A request that does not fit takes the frees that have finished in all stacks of the account; if pending ones can make it
// fit, it waits for them, oldest first, and only for as many as it needs; then it is decided. It waits a second at most for frees that
// another thread is bringing back. No lock is held meanwhile. When the device itself says that it has no room, its pending frees are
// reaped and then its caches trimmed (DeviceResource::trim, an event), and it is asked again, before that is believed.
//
// Two numbers. A budget covers what is handed out; the device shows more, since its context, libraries and other processes use it too.
// That is the `outside`: total − free − caches and rounding − allocated, a gauge of its own in the flight file. Two options take it in:
//   include_context   the budget counts the outside up front: 5 GiB with a context of 400 MiB allow 4.6 GiB.
//   keep_free_bytes   no allocation takes the device's free memory below N, so that whoever allocates around the ledger (cuBLAS,
//                     cuRAND, a driver) finds N even at 100 % of the budget.
// Both become part of the limit in force: min(budget − outside, total − outside − N), so that remaining bytes, pressure and
// reservations are honest. It is brought up to date when a request is refused by it, by refresh(), and when a manager on this stack
// refreshes; as far as nothing is at work at one instant of up to 64 looks. In between, include_context goes by the last look: a
// library that loads later is counted from the next refusal or refresh on. A driver does not tell whose the outside is: where other
// processes use the device too, a budget that includes it pays for them.
// keep_free_bytes is exact beyond that, whatever rounding and late libraries do: each request claims what it will take of the device at
// most (DeviceResource::footprint) before it looks at what is free, so that threads cannot cross the line together. Exact means: as far
// as the device's figures are, for the requests of this account. On the host device nothing else exists. On a GPU other processes and
// libraries take memory whenever they like: then N was free when each allocation was made, and no allocation is made again before it
// is. Free is not always one piece: after frees in a different order it may lie in holes.
//
// Resources that do not report returns (DeviceResource::reports_returns is false) have their bytes back as soon as a free was accepted:
// with stream-ordered frees the budget may then be spent a little before the device has the memory.
// Blocks must be freed through a stack of the same account, as they were handed out: over a resource that accepts any free (such as
// NullResource) a second free of one block lands in the books.
//
// Errors: over_budget with Layer::device_account and all figures; what the stack below says, unchanged. Exceptions of the stack below
// become errors. In a forked child allocate, deallocate and reserve are refused as `unsupported`, and nothing touches the books.
//
// A refusal to go below N is over_budget of Layer::device_account: `limit` is what the line allowed at that instant, device_free,
// device_total and device_outside are as the device says, and the message names N. The driver is not called for it.
//
// Ownership: a GlobalDeviceBudget shares the stack below. Its account's books live as long as the process and are used again, for
// another device, once closed and empty. Thread safety: any thread, any time. Cost: six contended read-modify-writes a pair on top of
// what stands below (claim, allocated and pending, twice each), and no lock unless there is a shortage. With keep_free_bytes also two
// more, and one memory_info() of the stack below for each allocation: two loads on the host; on CUDA a call into the driver, some
// microseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <headroom/budget.hpp>
#include <headroom/resource_decorator.hpp>

namespace headroom {

namespace device {
class AccountCore;
}  // namespace device

/// What a budget of a device counts besides what is handed out. See above.
struct DeviceBudgetOptions {
  std::uint64_t keep_free_bytes = 0;  ///< allocations never take the device's free memory below it; 0 = they may take all
  bool include_context = false;       ///< the budget also counts what the device uses outside of the account
  friend bool operator==(DeviceBudgetOptions const&, DeviceBudgetOptions const&) = default;
};

/// One look at an account, in bytes (counts where the name says so). Exact when no other thread is at work.
struct DeviceAccountStats {
  std::uint64_t claimed = 0, allocated = 0, peak = 0;
  std::uint64_t pending_free = 0;            ///< part of allocated
  std::uint64_t unspent = 0;                 ///< part of claimed, not of allocated
  std::uint64_t unspent_reservations = 0;    ///< … in how many reservations
  std::optional<std::uint64_t> limit;        ///< absent when unlimited
  std::uint64_t allocations = 0, frees = 0;  ///< admitted, accepted
  std::uint64_t refusals = 0;                ///< requests that failed, here or below
  std::uint64_t failed_frees = 0;            ///< calls that the stack below refused
  /// Live bytes over all tags: allocated − pending. Absent without a cell in the flight file, which is what holds them by tag.
  std::optional<std::uint64_t> tag_bytes;
};

/// A stack's seat at its device's account. Lives in a GlobalDeviceBudget.
class DeviceAccount {
public:
  DeviceAccount(DeviceAccount&& other) noexcept;
  DeviceAccount& operator=(DeviceAccount&&) = delete;
  ~DeviceAccount();

  [[nodiscard]] std::string const& name() const noexcept;  ///< "account-" and the device's name
  [[nodiscard]] MemoryBudget budget() const noexcept;  ///< in force: at most the device's total, and what the options leave of it
  [[nodiscard]] std::uint64_t claimed_bytes() const noexcept;
  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;
  [[nodiscard]] std::uint64_t pending_free_bytes() const noexcept;
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> remaining_bytes() const noexcept;  ///< absent: unlimited
  [[nodiscard]] DeviceAccountStats stats() const;
  /// Index of the account's cell in the flight file; absent when the file had none left.
  [[nodiscard]] std::optional<std::uint32_t> ledger_cell() const noexcept;
  /// Same account, whichever stack it was reached through.
  friend bool operator==(DeviceAccount const& a, DeviceAccount const& b) noexcept { return a.core_ == b.core_; }

private:
  friend class GlobalDeviceBudget;
  DeviceAccount(device::AccountCore& core, std::weak_ptr<DeviceResource> stack) noexcept;
  device::AccountCore* core_;            // null when moved from
  std::weak_ptr<DeviceResource> stack_;  // what the account may ask to reap for this seat
};

class GlobalDeviceBudget final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "device-budget";

  /// On the device's own resource. Errors: invalid_argument (the stack below has a GlobalDeviceBudget already; the account has another
  /// budget or other options, both named; options that leave nothing to allocate, with the smallest budget or the largest N that
  /// would; what InnerResource::check finds), unsupported (forked child; options for a device that does not tell its memory), io (no
  /// memory for books). A budget that includes a context that grows past it later refuses everything, and every query still answers.
  [[nodiscard]] static Result<std::shared_ptr<GlobalDeviceBudget>> create(Device const& device, MemoryBudget budget,
                                                                          DeviceBudgetOptions const& options = {});
  /// On a stack of your own. Errors: also invalid_argument when it ends in another device.
  [[nodiscard]] static Result<std::shared_ptr<GlobalDeviceBudget>> create(Device const& device, MemoryBudget budget,
                                                                          std::shared_ptr<DeviceResource> inner,
                                                                          DeviceBudgetOptions const& options = {});
  struct Terms {
    MemoryBudget budget = MemoryBudget::unlimited();  ///< as asked for
    DeviceBudgetOptions options;
  };
  GlobalDeviceBudget(InnerResource inner, DeviceAccount account, Terms const& terms) noexcept;  ///< for create

  /// Claims from the account, asks below, admits. With request.reserved the bytes come from a reservation instead of a claim; the
  /// stack below does not see the flag, since its own budget, if it has one, reserved nothing.
  /// Errors: over_budget (figures, holders), overflow, invalid_argument (alignment; `reserved` with fewer bytes unspent), unsupported,
  /// and what the stack below says.
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  /// Frees below. The bytes count as pending, and against the budget, until the device has them back.
  [[nodiscard]] Result<void> deallocate(Block const& block) override;

  /// Limit and claimed bytes of the account; absent when the budget does not enforce.
  [[nodiscard]] std::optional<BudgetSnapshot> budget_snapshot() const noexcept override;
  /// Errors: over_budget (after reaping, as allocate), overflow, unsupported (the budget does not enforce, or a forked child).
  [[nodiscard]] Result<void> reserve(std::uint64_t bytes) override;
  /// Exactly once for each reserve, also with 0. A call that no reservation explains changes nothing.
  void unreserve(std::uint64_t bytes) noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override;

  [[nodiscard]] DeviceAccount const& account() const noexcept { return account_; }
  [[nodiscard]] DeviceBudgetOptions const& options() const noexcept { return terms_.options; }
  /// Looks at the device again: brings the limit in force up to date where the options make it depend on the device, and publishes its
  /// total, its free memory and the outside. Costs one or two questions to the driver.
  void refresh() const noexcept;

private:
  class AskBelow;
  [[nodiscard]] Result<Block> ask_below(AllocRequest const& request) noexcept;
  [[nodiscard]] Result<void> free_below(Block const& block) noexcept;

  DeviceAccount account_;
  Terms const terms_;
  bool const reports_returns_;
};

}  // namespace headroom
