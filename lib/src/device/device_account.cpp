// DeviceAccount: a seat, and what can be read of the account.
#include <headroom/device_account.hpp>

#include <utility>

#include "device/account_core.hpp"

namespace headroom {

using flight::LedgerCounters;

DeviceAccount::DeviceAccount(device::AccountCore& core, std::weak_ptr<DeviceResource> stack) noexcept
    : core_(&core), stack_(std::move(stack)) {}

DeviceAccount::DeviceAccount(DeviceAccount&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), stack_(std::move(other.stack_)) {}

DeviceAccount::~DeviceAccount() {
  if (core_ != nullptr) core_->leave(stack_);
}

std::string const& DeviceAccount::name() const noexcept { return core_->name(); }
MemoryBudget DeviceAccount::budget() const noexcept { return core_->ledger().budget(); }
std::uint64_t DeviceAccount::claimed_bytes() const noexcept { return core_->ledger().words().claimed; }
std::uint64_t DeviceAccount::allocated_bytes() const noexcept { return core_->ledger().words().allocated; }
std::uint64_t DeviceAccount::pending_free_bytes() const noexcept { return core_->pending_free_bytes(); }
std::uint64_t DeviceAccount::peak_bytes() const noexcept { return core_->ledger().words().peak; }

std::optional<std::uint64_t> DeviceAccount::remaining_bytes() const noexcept {
  const auto limit = budget().limit_bytes();
  if (!limit) return std::nullopt;
  const std::uint64_t claimed = claimed_bytes();
  return *limit > claimed ? *limit - claimed : 0;
}

DeviceAccountStats DeviceAccount::stats() const {
  auto const& ledger = core_->ledger();
  DeviceAccountStats stats;
  const auto words = ledger.words();
  stats.claimed = words.claimed;
  stats.allocated = words.allocated;
  stats.peak = words.peak;
  stats.pending_free = core_->pending_free_bytes();
  stats.unspent = ledger.cell().unspent.load(std::memory_order_acquire);
  stats.unspent_reservations = ledger.cell().unspent_reservations.load(std::memory_order_relaxed);
  stats.limit = ledger.budget().limit_bytes();
  // Frees first: a free that is seen has its allocation counted already.
  stats.frees = ledger.sum(&LedgerCounters::frees);
  stats.allocations = ledger.sum(&LedgerCounters::allocations);
  for (auto const& by_layer : ledger.tallies().refusals) {
    for (auto const& count : by_layer) stats.refusals += count.load(std::memory_order_relaxed);
  }
  for (auto const& count : ledger.tallies().free_failures) stats.failed_frees += count.load(std::memory_order_relaxed);
  if (ledger.counts_all_tags()) stats.tag_bytes = ledger.all_tag_bytes();
  return stats;
}

std::optional<std::uint32_t> DeviceAccount::ledger_cell() const noexcept {
  const std::uint32_t index = core_->ledger().index();
  return index == flight::kNoCell ? std::nullopt : std::optional{index};
}

}  // namespace headroom
