// Managers for tests: a host device that one keeps a hand on, and the books as a reader of the flight file sees them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/flight_reader.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/null_resource.hpp>

namespace headroom::test {

struct HostManager {
  std::shared_ptr<HostResource> resource;
  GpuMemoryManager manager;
};

/// A manager over a host device of its own. Addresses only unless the options say otherwise.
inline HostManager host_manager(MemoryBudget budget, HostOptions options = {.touch_memory = false}, std::string_view name = {}) {
  auto resource = HostResource::create(options).value();
  auto device = host_device_over(resource).value();
  return {resource, GpuMemoryManager::create(device, budget, name).value()};
}

inline GpuMemoryManager null_manager(MemoryBudget budget, std::string_view name = {}) {
  return GpuMemoryManager::create(null_device().value(), budget, name).value();
}

/// What a reader of this process's flight memory sees of the manager.
inline flight::LedgerSnapshot snapshot_of(GpuMemoryManager const& manager) {
  const auto view = flight::FlightView::of_this_process();
  for (auto& ledger : view.value().ledgers()) {
    if (ledger.cell == manager.ledger_cell()) return ledger;
  }
  ADD_FAILURE() << "no ledger of " << manager.name() << " in the flight memory";
  return {};
}

inline std::uint64_t tag_bytes(flight::LedgerSnapshot const& ledger, std::string_view name) {
  for (auto const& tag : ledger.tags) {
    if (tag.name == name) return tag.bytes;
  }
  return 0;
}

/// The newest events of the given kind, in order of their ring.
inline std::vector<flight::Event> events_of(flight::EventKind kind) {
  flight::EventReader reader{flight::FlightView::of_this_process().value()};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  flight::sort_timeline(events);
  std::erase_if(events, [&](auto const& event) { return event.kind != kind; });
  return events;
}

/// The events that come after it was made.
class EventWatch {
public:
  EventWatch() : reader_{flight::FlightView::of_this_process().value()} {
    static_cast<void>(poll());
    events_.clear();
  }
  /// Those of one kind in a manager's ledger; a record of two halves counts once.
  [[nodiscard]] std::vector<flight::Event> of(GpuMemoryManager const& manager, flight::EventKind kind) {
    std::vector<flight::Event> found = poll();
    std::erase_if(found, [&](flight::Event const& event) {
      return event.kind != kind || event.ledger() != manager.ledger_cell() || (event.flags() & flight::kFlagContinues) != 0;
    });
    return found;
  }
  [[nodiscard]] std::size_t count(GpuMemoryManager const& manager, flight::EventKind kind) { return of(manager, kind).size(); }

private:
  std::vector<flight::Event> const& poll() {
    std::vector<flight::Gap> gaps;
    reader_.poll(events_, gaps);
    return events_;
  }
  flight::EventReader reader_;
  std::vector<flight::Event> events_;
};

}  // namespace headroom::test
