// What sixteen threads share: two devices, three managers, an overlay, two doors, several streams, and shelves by which blocks and
// reservations change hands.
//
//   plain ─────────────────────────────────────────────▶ host   (10 MiB, stream ordered, fails now and then)
//     └─ overlay ─▶ runtime ─▶ account (8 MiB) ─▶ log ───┘
//   routed ────────────┘
//   forgetful ─▶ runtime ─▶ forgetful frees ─▶ account (2 MiB) ─▶ host   (4 MiB)
//
// What the forgetful stack frees now and then it reports as failed, as a driver may: no retry can work, and only a write-off balances
// the manager's books. Nothing of it is left at the device, so that at the end everything must be zero everywhere.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/raw_door.hpp>
#include <headroom/resource_decorator.hpp>

#include "manager_factories.hpp"

namespace headroom::test {

inline constexpr std::uint64_t kOneMiB = std::uint64_t{1} << 20;

/// Takes every block back, and says of every 29th free that it failed.
class ForgetfulFrees final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "forgetful";
  using ResourceDecorator::ResourceDecorator;
  Result<void> deallocate(Block const& block) override {
    auto freed = ResourceDecorator::deallocate(block);
    if (freed && block.bytes != 0 && frees_.fetch_add(1, std::memory_order_relaxed) % 29 == 28) {
      return fail(ErrorKind::driver, Layer::driver, "the block is gone, the answer was lost");
    }
    return freed;
  }

private:
  std::atomic<std::uint64_t> frees_{0};  // any thread, relaxed: only its value counts
};

/// Which way a block came, and must be launched on or freed by.
enum class Origin : std::uint8_t { plain, overlay, routed, forgetful, door_on_plain, door_on_overlay };
inline constexpr std::size_t kManagers = 4;  // the first four origins are managers

struct Holding {
  testing::Held held;
  Origin origin{};
};

struct SharedToken {
  GpuMemoryReservation reservation;
  Origin origin{};
};

struct World {
  World() {
    host->faults().add(
        {.operation = FaultOperation::allocate, .nth = 53, .every = 53, .times = kFaultForever, .kind = ErrorKind::driver});
    host->faults().add({.operation = FaultOperation::allocate, .nth = 71, .every = 71, .times = kFaultForever});
    host->faults().add(
        {.operation = FaultOperation::deallocate, .nth = 31, .every = 31, .times = kFaultForever, .kind = ErrorKind::driver});
    host->faults().add(
        {.operation = FaultOperation::event, .nth = 97, .every = 97, .times = kFaultForever, .kind = ErrorKind::driver});
    second_host->faults().add(
        {.operation = FaultOperation::allocate, .nth = 59, .every = 59, .times = kFaultForever, .kind = ErrorKind::driver});
    for (int i = 0; i < 4; ++i) {
      streams.push_back(host->create_stream().value());
      second_streams.push_back(second_host->create_stream().value());
    }
  }

  [[nodiscard]] GpuMemoryManager& manager(Origin origin) noexcept { return managers[static_cast<std::size_t>(origin)]; }
  [[nodiscard]] std::vector<StreamId> const& streams_of(Origin origin) const noexcept {
    return origin == Origin::forgetful ? second_streams : streams;
  }
  /// Null: it came without one.
  [[nodiscard]] DeviceRuntime const* runtime_of(Origin origin) const noexcept {
    if (origin == Origin::overlay || origin == Origin::routed) return &runtime;
    return origin == Origin::forgetful ? &second_runtime : nullptr;
  }

  // The largest budget that each manager ever has; what its governor chooses from is that and less.
  static constexpr std::array<std::uint64_t, kManagers> kLargestBudget{6 * kOneMiB, 6 * kOneMiB, 5 * kOneMiB, 2 * kOneMiB};
  static constexpr std::uint64_t kDeviceBudget = 8 * kOneMiB;
  static constexpr std::uint64_t kSecondDeviceBudget = 2 * kOneMiB;

  std::shared_ptr<HostResource> host =
      HostResource::create({.total_bytes = 10 * kOneMiB, .touch_memory = false, .stream_ordered = true}).value();
  std::shared_ptr<HostResource> second_host =
      HostResource::create({.total_bytes = 4 * kOneMiB, .touch_memory = false, .stream_ordered = true}).value();
  Device device = host_device_over(host).value();
  Device second_device = host_device_over(second_host).value();
  std::shared_ptr<GlobalDeviceBudget> account =
      GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kDeviceBudget), LoggingResource::create(host).value()).value();
  std::shared_ptr<GlobalDeviceBudget> second_account =
      GlobalDeviceBudget::create(second_device, MemoryBudget::with_limit(kSecondDeviceBudget)).value();
  DeviceRuntime runtime = DeviceRuntime::create(device, {.stack = account}).value();
  DeviceRuntime other_runtime = DeviceRuntime::create(device, {.stack = account}).value();  // for overlays that come and go
  DeviceRuntime second_runtime =
      DeviceRuntime::create(second_device, {.stack = decorate<ForgetfulFrees>(second_account).value()}).value();
  std::vector<StreamId> streams;
  std::vector<StreamId> second_streams;
  GpuMemoryManager plain = GpuMemoryManager::create(device, MemoryBudget::with_limit(kLargestBudget[0]), "plain").value();
  std::array<GpuMemoryManager, kManagers> managers{
      plain, plain.with_runtime_overlay(runtime).value(),
      GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(kLargestBudget[2]), runtime, "routed").value(),
      GpuMemoryManager::with_runtime(second_device, MemoryBudget::with_limit(kLargestBudget[3]), second_runtime, "forgetful")
          .value()};
  RawDoor door_on_plain = RawDoor::create(managers[0]).value();
  RawDoor door_on_overlay = RawDoor::create(managers[1]).value();

  // Blocks that wait for another thread to free them, and reservations that any thread may spend.
  std::mutex mutex;  // guards what follows
  std::vector<Holding> shelf;
  std::array<std::shared_ptr<SharedToken>, 6> tokens;
};

}  // namespace headroom::test
