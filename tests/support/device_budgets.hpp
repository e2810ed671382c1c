// Stacks with a device budget for tests, and their account as a reader of the flight file sees it.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <headroom/device_account.hpp>
#include <headroom/fault_resource.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/host_resource.hpp>

#include "recording_resource.hpp"

namespace headroom::test {

/// budget → watching → throwing → fault → host: every way in which a stack can fail, and a look into the middle of it.
struct BudgetStack {
  std::shared_ptr<HostResource> host;
  Device device;
  std::shared_ptr<FaultResource> fault;
  std::shared_ptr<ThrowingDecorator> throwing;
  std::shared_ptr<WatchingDecorator> watching;
  std::shared_ptr<GlobalDeviceBudget> budget;

  [[nodiscard]] DeviceAccountStats stats() const { return budget->account().stats(); }
};

inline Result<BudgetStack> try_stack_on(std::shared_ptr<HostResource> host, MemoryBudget budget, std::string name = "gpu") {
  auto device = Device::custom(std::move(name), host).value();
  auto fault = FaultResource::create(host).value();
  auto throwing = decorate<ThrowingDecorator>(fault).value();
  auto watching = decorate<WatchingDecorator>(throwing).value();
  auto top = GlobalDeviceBudget::create(device, budget, watching);
  if (!top) return tl::make_unexpected(std::move(top.error()));
  return BudgetStack{std::move(host), std::move(device), std::move(fault), std::move(throwing), std::move(watching), *top};
}

inline BudgetStack stack_on(std::shared_ptr<HostResource> host, MemoryBudget budget, std::string name = "gpu") {
  return try_stack_on(std::move(host), budget, std::move(name)).value();
}

inline std::shared_ptr<HostResource> host_of(HostOptions options = {}) {
  options.touch_memory = false;
  return HostResource::create(options).value();
}

inline BudgetStack stack_of(MemoryBudget budget, HostOptions const& options = {}) { return stack_on(host_of(options), budget); }

inline HostOptions stream_ordered() { return {.stream_ordered = true}; }

inline flight::LedgerSnapshot snapshot_of(DeviceAccount const& account) {
  const auto view = flight::FlightView::of_this_process();
  for (auto& ledger : view.value().ledgers()) {
    if (ledger.cell == account.ledger_cell()) return ledger;
  }
  ADD_FAILURE() << "no ledger of " << account.name() << " in the flight memory";
  return {};
}

/// All words of an account that nothing is out of.
inline void expect_empty(DeviceAccount const& account) {
  const auto stats = account.stats();
  EXPECT_EQ(stats.claimed, 0U);
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_EQ(stats.pending_free, 0U);
  EXPECT_EQ(stats.unspent, 0U);
  EXPECT_EQ(stats.unspent_reservations, 0U);
  EXPECT_EQ(stats.tag_bytes.value_or(0), 0U);
  EXPECT_EQ(stats.allocations, stats.frees);
  if (account.ledger_cell()) {
    EXPECT_EQ(snapshot_of(account).in_flight_bytes, 0U);
  }
}

/// The books balance at rest: claimed = allocated + unspent, allocated = live by tags + pending.
inline void expect_balanced(DeviceAccount const& account) {
  const auto stats = account.stats();
  EXPECT_EQ(stats.claimed, stats.allocated + stats.unspent);
  // Where all tests run in one process, earlier ones may have used up the cells, and nothing is known by tag.
  if (stats.tag_bytes) {
    EXPECT_EQ(stats.allocated, *stats.tag_bytes + stats.pending_free);
  }
  EXPECT_GE(stats.peak, stats.allocated);
}

}  // namespace headroom::test
