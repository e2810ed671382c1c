#include "device/device_figures.hpp"

#include <functional>
#include <string_view>
#include <thread>

#include <headroom/device_account.hpp>
#include <headroom/resource_decorator.hpp>

#include "device/device_account_cell.hpp"
#include "device/device_limit.hpp"
#include "ledger/cells.hpp"

namespace headroom::device {
namespace {

using flight::kBytesMask;

// Looks for a moment at which the books stood still.
constexpr int kLooks = 64;
constexpr int kLooksForGauge = 4;

// Taken from the device by anyone but a cache or rounding of ours.
std::optional<std::uint64_t> used(MemoryInfo const& memory) noexcept {
  if (!memory.total || !memory.free) return std::nullopt;
  return less(less(*memory.total, *memory.free), memory.slack.value_or(0));
}

std::uint64_t in_ledgers(std::uint64_t device) {
  std::uint64_t sum = 0;
  ledger::for_each_cell([&](flight::LedgerCell const& words) {
    if (words.physical_device.load(std::memory_order_relaxed) != device) return;
    // Of a manager whose overlay goes through an account: that has those blocks too.
    if (words.parent_cell.load(std::memory_order_relaxed) != 0) return;
    sum += words.alloc.load(std::memory_order_seq_cst) & kBytesMask;
  });
  return sum;
}

// The words of an account. Each carries a number that moves with every change, so that equal words mean that nothing happened.
struct Books {
  std::uint64_t claim = 0, alloc = 0, unspent = 0;
  friend bool operator==(Books const&, Books const&) = default;
  [[nodiscard]] std::uint64_t allocated() const noexcept { return alloc & kBytesMask; }
  /// No request stands between the claim and the device's answer.
  [[nodiscard]] bool is_settled() const noexcept { return (claim & kBytesMask) == allocated() + unspent; }
};

Books books_of(ledger::Ledger const& account) noexcept {
  auto const& cell = account.cell();
  return {.claim = cell.claim.load(std::memory_order_seq_cst),
          .alloc = cell.alloc.load(std::memory_order_seq_cst),
          .unspent = cell.unspent.load(std::memory_order_acquire)};
}

std::uint64_t stored(std::optional<std::uint64_t> figure) noexcept { return figure ? *figure + 1 : 0; }

}  // namespace

std::uint64_t physical_device(DeviceResource& top) noexcept {
  DeviceResource& bottom = bottom_of(top);
  const std::string_view uuid = bottom.device_uuid();
  // An address may be another device's later on, and the books of one that is gone may still hold what was left in it. Numbers of
  // objects are even, hashes odd.
  return uuid.empty() ? bottom.instance() << 1 : std::hash<std::string_view>{}(uuid) | 1;
}

DeviceFigures figures_of(DeviceResource& top) noexcept {
  const std::uint64_t device = physical_device(top);
  MemoryInfo memory;
  std::uint64_t explained = in_ledgers(device);
  for (int look = 0; look < kLooksForGauge; ++look) {
    memory = top.memory_info();
    const std::uint64_t again = in_ledgers(device);
    const bool still = again == explained;
    explained = again;
    if (still) break;
  }
  // A layer of the user's own may not pass the question on.
  if (!memory.total) memory = bottom_of(top).memory_info();
  DeviceFigures figures{.total = memory.total, .free = memory.free, .outside = {}};
  if (const auto taken = used(memory)) figures.outside = less(*taken, explained);
  return figures;
}

void write_figures(flight::LedgerCell& cell, DeviceFigures const& figures) noexcept {
  cell.device_total.store(stored(figures.total), std::memory_order_relaxed);
  cell.device_free.store(stored(figures.free), std::memory_order_relaxed);
  cell.device_outside.store(stored(figures.outside), std::memory_order_relaxed);
}

DeviceFigures refresh_figures(ledger::Ledger& ledger, DeviceResource& top) noexcept {
  const DeviceFigures figures = figures_of(top);
  write_figures(ledger.cell(), figures);
  if (auto const* const budget = budget_in(top)) budget->refresh();
  return figures;
}

void add_device_figures(Error& error, DeviceFigures const& figures) noexcept {
  if (!error.device_free) error.device_free = figures.free;
  if (!error.device_total) error.device_total = figures.total;
  if (!error.device_outside) error.device_outside = figures.outside;
}

std::optional<std::uint64_t> outside_account(DeviceResource const& below, ledger::Ledger const& account) noexcept {
  Books before = books_of(account);
  for (int look = 0; look < kLooks; ++look) {
    const auto taken = used(below.memory_info());
    if (!taken) return std::nullopt;
    const Books after = books_of(account);
    if (after == before && after.is_settled()) return less(*taken, after.allocated());
    before = after;
    std::this_thread::yield();
  }
  return std::nullopt;
}

}  // namespace headroom::device
