// Every manager that the conformance suite runs over, and every way to get memory of one. To add a manager or a resource: write its
// make function, say what it promises, append it to all_managers(). A factory that returns an error (no GPU on this machine) skips its
// tests. Ways that a manager does not have are left out by all_manager_cases().
//
// The suite's source compiles a second time with HEADROOM_GPU_TESTS, and runs over managers of the GPU then: gpu_managers().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/fault_resource.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/null_resource.hpp>
#include <headroom/raw_door.hpp>

#include "cuda_resources.hpp"

namespace headroom::testing {

/// What a manager promises beyond the contract that all share.
struct ManagerTraits {
  bool has_runtime = false;
  bool reserves = true;                         ///< false: the runtime has no finite budget to reserve of
  bool keeps_books = true;                      ///< the resource's bytes_outstanding counts
  bool caches = false;                          ///< freed memory may stay where a larger block cannot use it
  bool owns_ranges = true;                      ///< blocks never overlap (not only their first bytes)
  std::optional<std::uint64_t> device_bytes{};  ///< what fits below the manager's own budget, exactly; absent: anything
};

struct MadeManager {
  std::optional<GpuMemoryManager> manager{};                  // absent: its handle went
  std::vector<GpuMemoryManager> others{};                     ///< further handles on the same books
  std::shared_ptr<DeviceResource> bottom{};                   ///< asked what is still out, and reaped
  std::function<FaultPlan&()> faults{};                       ///< breaks the device; empty: it cannot be broken
  std::shared_ptr<GlobalDeviceBudget const> device_budget{};  ///< null: none on the way
};

struct ManagerFactory {
  std::string name;  ///< letters and digits only: part of the test's name
  std::function<Result<MadeManager>(MemoryBudget)> make;
  ManagerTraits traits;
};

// ── ways in ──

/// A block of a door, freed by pointer. Given back by whoever holds it, as the owners are.
struct DoorBlock {
  std::optional<RawDoor> door;
  RawBlock block;
};

/// Memory, whoever owns it. Unlike a test's own, a door's block has no destructor: release() it.
struct Held {
  std::variant<TrackedBuffer<std::byte>, RuntimeAllocBlock, DoorBlock> owner;

  [[nodiscard]] void* data() const {
    if (auto const* buffer = std::get_if<0>(&owner)) return buffer->data();
    if (auto const* raw = std::get_if<1>(&owner)) return raw->data();
    return std::get<2>(owner).block.pointer;
  }
  [[nodiscard]] std::uint64_t size_bytes() const {
    if (auto const* buffer = std::get_if<0>(&owner)) return buffer->size_bytes();
    if (auto const* raw = std::get_if<1>(&owner)) return raw->size_bytes();
    return std::get<2>(owner).block.bytes;
  }
  [[nodiscard]] Result<void> release() {
    if (auto* buffer = std::get_if<0>(&owner)) return buffer->release();
    if (auto* raw = std::get_if<1>(&owner)) return raw->release();
    auto& held = std::get<2>(owner);
    return held.door->deallocate(held.block);
  }
};

struct AllocationWay {
  std::string name;
  bool needs_runtime = false;
  bool needs_reservation = false;
  bool counts_as_typed = true;  ///< alloc_count moves, else raw_alloc_count
  /// Of this manager: a function that allocates, from any thread.
  std::function<std::function<Result<Held>(std::uint64_t, AllocOptions const&)>(GpuMemoryManager const&)> open;
};

template <class Owner>
Result<Held> held(Result<Owner> owner) {
  return std::move(owner).map([](Owner&& given) { return Held{std::move(given)}; });
}

inline std::vector<AllocationWay> all_ways() {
  using Allocate = std::function<Result<Held>(std::uint64_t, AllocOptions const&)>;
  return {
      {.name = "Typed",
       .open = [](GpuMemoryManager const& manager) -> Allocate {
         return [manager = manager](std::uint64_t bytes, AllocOptions const& options) mutable {
           return held(manager.alloc<std::byte>(bytes, options));
         };
       }},
      {.name = "Raw",
       .needs_runtime = true,
       .counts_as_typed = false,
       .open = [](GpuMemoryManager const& manager) -> Allocate {
         return [manager = manager](std::uint64_t bytes, AllocOptions const& options) mutable {
           return held(manager.alloc_raw(bytes, options));
         };
       }},
      // A reservation of its own for each block, gone before the block is.
      {.name = "Reserved",
       .needs_reservation = true,
       .open = [](GpuMemoryManager const& manager) -> Allocate {
         return [manager](std::uint64_t bytes, AllocOptions const& options) {
           return manager.reserve_bytes(bytes).and_then(
               [&](GpuMemoryReservation reservation) { return held(reservation.alloc<std::byte>(bytes, options)); });
         };
       }},
      {.name = "ReservedRaw",
       .needs_runtime = true,
       .needs_reservation = true,
       .counts_as_typed = false,
       .open = [](GpuMemoryManager const& manager) -> Allocate {
         return [manager](std::uint64_t bytes, AllocOptions const& options) {
           return manager.reserve_bytes(bytes).and_then(
               [&](GpuMemoryReservation reservation) { return held(reservation.alloc_raw(bytes, options)); });
         };
       }},
      {.name = "Door",
       .counts_as_typed = false,
       .open = [](GpuMemoryManager const& manager) -> Allocate {
         return [door = RawDoor::create(manager).value()](std::uint64_t bytes, AllocOptions const& options) mutable {
           return door.allocate_block(bytes, options.alignment, options.stream, options.tag).map([&](RawBlock const& block) {
             return Held{DoorBlock{door, block}};
           });
         };
       }},
  };
}

// ── managers ──

/// What every device below holds; its budget where there is one.
inline constexpr std::uint64_t kSuiteDeviceBytes = std::uint64_t{16} << 20;

inline Result<MadeManager> make_plain_on(HostOptions const& options, MemoryBudget budget) {
  auto host = HostResource::create(options);
  if (!host) return tl::make_unexpected(std::move(host.error()));
  return GpuMemoryManager::create(host_device_over(*host).value(), budget).map([&](GpuMemoryManager manager) {
    return MadeManager{
        .manager = std::move(manager), .bottom = *host, .faults = [raw = host->get()]() -> FaultPlan& { return raw->faults(); }};
  });
}

/// How a manager comes by its runtime.
enum class Attach : std::uint8_t { with_runtime, overlay };

inline Result<MadeManager> attach(Device const& device, std::shared_ptr<DeviceResource> stack, MemoryBudget budget, Attach how,
                                  MadeManager made) {
  auto runtime = DeviceRuntime::create(device, {.stack = std::move(stack)});
  if (!runtime) return tl::make_unexpected(std::move(runtime.error()));
  if (how == Attach::with_runtime) {
    made.manager = GpuMemoryManager::with_runtime(device, budget, *runtime).value();
  } else {
    auto parent = GpuMemoryManager::create(device, budget).value();
    made.manager = parent.with_runtime_overlay(*runtime).value();
    made.others.push_back(std::move(parent));
  }
  return made;
}

/// Through a runtime over the device's own resource, or over GlobalDeviceBudget → LoggingResource → HostResource.
enum class Stack : std::uint8_t { own, usual };

inline Result<MadeManager> make_attached(HostOptions const& options, MemoryBudget budget, Stack stack, Attach how) {
  auto host = HostResource::create(options);
  if (!host) return tl::make_unexpected(std::move(host.error()));
  const auto device = host_device_over(*host).value();
  MadeManager made{.bottom = *host, .faults = [raw = host->get()]() -> FaultPlan& { return raw->faults(); }};
  if (stack == Stack::own) return attach(device, nullptr, budget, how, std::move(made));
  auto top =
      GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kSuiteDeviceBytes), LoggingResource::create(*host).value());
  if (!top) return tl::make_unexpected(std::move(top.error()));
  made.device_budget = *top;
  return attach(device, *top, budget, how, std::move(made));
}

/// A manager without a runtime whose device is itself a stack: FaultResource → GlobalDeviceBudget → HostResource.
inline Result<MadeManager> make_on_stacked_device(HostOptions const& options, MemoryBudget budget) {
  auto host = HostResource::create(options);
  if (!host) return tl::make_unexpected(std::move(host.error()));
  auto account = GlobalDeviceBudget::create(host_device_over(*host).value(), MemoryBudget::with_limit(kSuiteDeviceBytes));
  if (!account) return tl::make_unexpected(std::move(account.error()));
  auto fault = FaultResource::create(*account).value();
  auto device = Device::custom("stacked", fault).value();
  return GpuMemoryManager::create(device, budget).map([&](GpuMemoryManager manager) {
    return MadeManager{.manager = std::move(manager),
                       .bottom = fault,
                       .faults = [raw = fault.get()]() -> FaultPlan& { return raw->faults(); },
                       .device_budget = *account};
  });
}

/// On a fault layer, so that it can be broken.
inline Result<MadeManager> make_on_null(MemoryBudget budget) {
  auto fault = FaultResource::create(std::make_shared<NullResource>()).value();
  return GpuMemoryManager::create(Device::custom("null", fault).value(), budget).map([&](GpuMemoryManager manager) {
    return MadeManager{
        .manager = std::move(manager), .bottom = fault, .faults = [raw = fault.get()]() -> FaultPlan& { return raw->faults(); }};
  });
}

/// A manager over a CUDA resource: plain, or through a runtime over GlobalDeviceBudget → FaultResource → the resource.
template <class Resource>
Result<MadeManager> make_plain_on_cuda(std::shared_ptr<Resource> const& resource, MemoryBudget budget) {
  auto fault = FaultResource::create(resource).value();
  auto device = Device::custom("cuda", fault, 0, std::string{resource->device_uuid()}, DeviceKind::cuda).value();
  return GpuMemoryManager::create(std::move(device), budget).map([&](GpuMemoryManager manager) {
    return MadeManager{.manager = std::move(manager), .bottom = resource, .faults = [raw = fault.get()]() -> FaultPlan& {
                         return raw->faults();
                       }};
  });
}
template <class Resource>
Result<MadeManager> make_attached_on_cuda(std::shared_ptr<Resource> const& resource, MemoryBudget budget, Attach how) {
  auto fault = FaultResource::create(resource).value();
  const auto device = cuda_device_over(resource).value();
  auto top = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kSuiteDeviceBytes), fault);
  if (!top) return tl::make_unexpected(std::move(top.error()));
  MadeManager made{
      .bottom = resource, .faults = [raw = fault.get()]() -> FaultPlan& { return raw->faults(); }, .device_budget = *top};
  return attach(device, *top, budget, how, std::move(made));
}

/// Over the first GPU of this machine; errors, so that tests are skipped, where there is none.
inline std::vector<ManagerFactory> gpu_managers() {
  return {
      {"PlainOnCudaDirect",
       [](MemoryBudget budget) {
         return DirectCudaResource::create(0).and_then([&](auto const& cuda) { return make_plain_on_cuda(cuda, budget); });
       },
       {}},
      {"PlainOnCudaAsync",
       [](MemoryBudget budget) {
         return AsyncCudaResource::create(0).and_then([&](auto const& cuda) { return make_plain_on_cuda(cuda, budget); });
       },
       {}},
      {"RuntimeOverCudaAsync",
       [](MemoryBudget budget) {
         return AsyncCudaResource::create(0).and_then(
             [&](auto const& cuda) { return make_attached_on_cuda(cuda, budget, Attach::with_runtime); });
       },
       {.has_runtime = true, .device_bytes = kSuiteDeviceBytes}},
      {"OverlayOverCudaAsync",
       [](MemoryBudget budget) {
         return AsyncCudaResource::create(0).and_then(
             [&](auto const& cuda) { return make_attached_on_cuda(cuda, budget, Attach::overlay); });
       },
       {.has_runtime = true, .device_bytes = kSuiteDeviceBytes}},
  };
}

inline std::vector<ManagerFactory> all_managers() {
  constexpr std::uint64_t kBytes = kSuiteDeviceBytes;
  constexpr HostOptions kAddresses{.total_bytes = kBytes, .touch_memory = false};
  constexpr HostOptions kOrdered{.total_bytes = kBytes, .touch_memory = false, .stream_ordered = true};
  // The device has more than its budget, so that the budget, not the device, says that it is full.
  constexpr HostOptions kAboveBudget{.total_bytes = 2 * kBytes, .stream_ordered = true};
  const auto plain = [](HostOptions const& options) {
    return [=](MemoryBudget budget) { return make_plain_on(options, budget); };
  };
  const auto attached = [](HostOptions const& options, Stack stack, Attach how) {
    return [=](MemoryBudget budget) { return make_attached(options, budget, stack, how); };
  };
  return {
      {"PlainTouching", plain({.total_bytes = kBytes}), {.device_bytes = kBytes}},
      {"PlainAddressesOnly", plain(kAddresses), {.device_bytes = kBytes}},
      {"PlainStreamOrdered", plain(kOrdered), {.device_bytes = kBytes}},
      {"PlainCached",
       plain({.total_bytes = kBytes, .release_threshold_bytes = kBytes / 4}),
       {.caches = true, .device_bytes = kBytes}},
      {"PlainOnNull", make_on_null, {.keeps_books = false, .owns_ranges = false}},
      {"RuntimeOverOwnResource",
       attached(kOrdered, Stack::own, Attach::with_runtime),
       {.has_runtime = true, .reserves = false, .device_bytes = kBytes}},
      {"RuntimeOverUsualStack",
       attached(kAboveBudget, Stack::usual, Attach::with_runtime),
       {.has_runtime = true, .device_bytes = kBytes}},
      {"OverlayOfPlain",
       attached(kAddresses, Stack::own, Attach::overlay),
       {.has_runtime = true, .reserves = false, .device_bytes = kBytes}},
      {"OverlayOverUsualStack",
       attached(kAboveBudget, Stack::usual, Attach::overlay),
       {.has_runtime = true, .device_bytes = kBytes}},
      {"PlainOnFakeCudaDirect",
       [](MemoryBudget budget) {
         return make_fake_direct({.bytes = kSuiteDeviceBytes}).and_then([&](auto const& both) {
           return make_plain_on_cuda(both.resource, budget);
         });
       },
       {.device_bytes = kBytes}},
      {"PlainOnFakeCudaAsync",
       [](MemoryBudget budget) {
         return make_fake_async({.bytes = kSuiteDeviceBytes}).and_then([&](auto const& both) {
           return make_plain_on_cuda(both.resource, budget);
         });
       },
       {.device_bytes = kBytes}},
      {"RuntimeOverFakeCudaAsync",
       [](MemoryBudget budget) {
         return make_fake_async({.bytes = 2 * kSuiteDeviceBytes}).and_then([&](auto const& both) {
           return make_attached_on_cuda(both.resource, budget, Attach::with_runtime);
         });
       },
       {.has_runtime = true, .device_bytes = kBytes}},
      {"OverlayOverFakeCudaAsync",
       [](MemoryBudget budget) {
         return make_fake_async({.devices = 2, .bytes = 2 * kSuiteDeviceBytes}, 1).and_then([&](auto const& both) {
           return make_attached_on_cuda(both.resource, budget, Attach::overlay);
         });
       },
       {.has_runtime = true, .device_bytes = kBytes}},
      {"StackedDevice",
       [kAboveBudget](MemoryBudget budget) { return make_on_stacked_device(kAboveBudget, budget); },
       {.device_bytes = kBytes}},
  };
}

/// What this binary's suite runs over.
inline std::vector<ManagerFactory> suite_managers() {
#ifdef HEADROOM_GPU_TESTS
  return gpu_managers();
#else
  return all_managers();
#endif
}

/// A manager and a way in.
struct ManagerCase {
  ManagerFactory factory;
  AllocationWay way;
  friend std::ostream& operator<<(std::ostream& out, ManagerCase const& tested) {
    return out << tested.factory.name << tested.way.name;
  }
};

inline std::vector<ManagerCase> all_manager_cases() {
  std::vector<ManagerCase> cases;
  for (auto const& factory : suite_managers()) {
    for (auto const& way : all_ways()) {
      if ((way.needs_runtime && !factory.traits.has_runtime) || (way.needs_reservation && !factory.traits.reserves)) continue;
      cases.push_back({factory, way});
    }
  }
  return cases;
}

}  // namespace headroom::testing
