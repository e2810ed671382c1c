// NVML over made-up GPUs: as a table for unit tests, and behind the fake libnvidia-ml.so.1 of the integration tests.
//
// One FakeNvml at a time is the one that the functions of the table speak of. Change it only between readings.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/nvml.hpp"

namespace headroom::test {

namespace nvml = device::nvml;

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U, kMiB = std::uint64_t{1} << 20U;

struct FakeFigures {
  std::uint64_t total = 80 * kGiB, reserved = 600 * kMiB, free = 70 * kGiB;
  nvml::Code v2_code = nvml::kSuccess, v1_code = nvml::kSuccess;
};

struct FakeInstance {
  std::string uuid;
  unsigned gpu_instance = 0, compute_instance = 0;
  FakeFigures memory{};
};

struct FakeGpu {
  std::string uuid;
  std::string name = "NVIDIA H100 80GB HBM3";
  std::string bus_id;  ///< as NVML writes it: eight digits of domain, upper case
  FakeFigures memory{};
  unsigned mig = 0;  ///< 1: partitioned
  std::vector<FakeInstance> instances{};
  nvml::Code handle_code = nvml::kSuccess, uuid_code = nvml::kSuccess, pci_code = nvml::kSuccess, mig_code = nvml::kSuccess;
};

class FakeNvml {
public:
  FakeNvml() { current() = this; }
  explicit FakeNvml(std::vector<FakeGpu> machine) : gpus(std::move(machine)) { current() = this; }
  FakeNvml(FakeNvml const&) = delete;
  FakeNvml& operator=(FakeNvml const&) = delete;
  ~FakeNvml() { current() = nullptr; }

  std::vector<FakeGpu> gpus;
  nvml::Code init_code = nvml::kSuccess, count_code = nvml::kSuccess;
  unsigned extra_count = 0;             ///< GPUs that are counted and not there
  std::function<void()> on_count{};     ///< called in the middle of a reading
  std::atomic<int> starts{0}, ends{0};  // any thread, relaxed: counts

  [[nodiscard]] static nvml::Table table() {
    nvml::Table table;
    table.init = &init;
    table.shutdown = &shutdown;
    table.device_count = &device_count;
    table.device_handle = &device_handle;
    table.uuid = &uuid;
    table.name = &name;
    table.pci_info = &pci_info;
    table.memory_v2 = &memory_v2;
    table.memory = &memory;
    table.mig_mode = &mig_mode;
    table.mig_count = &mig_count;
    table.mig_handle = &mig_handle;
    table.gpu_instance = &gpu_instance;
    table.compute_instance = &compute_instance;
    return table;
  }

  // The functions, by the names of the table.
  static nvml::Code init() {
    auto& fake = *current();
    if (fake.init_code == nvml::kSuccess) fake.starts.fetch_add(1, std::memory_order_relaxed);
    return fake.init_code;
  }
  static nvml::Code shutdown() {
    current()->ends.fetch_add(1, std::memory_order_relaxed);
    return nvml::kSuccess;
  }
  static nvml::Code device_count(unsigned* count) {
    auto const& fake = *current();
    if (fake.on_count) fake.on_count();
    *count = static_cast<unsigned>(fake.gpus.size()) + fake.extra_count;
    return fake.count_code;
  }
  static nvml::Code device_handle(unsigned index, nvml::DeviceHandle* device) {
    auto& gpus = current()->gpus;
    if (index >= gpus.size()) return nvml::kInvalidArgument;
    *device = to_handle(index, 0);
    return gpus[index].handle_code;
  }
  static nvml::Code uuid(nvml::DeviceHandle device, char* text, unsigned bytes) {
    auto const& gpu = gpu_of(device);
    if (auto const* const instance = instance_of(device)) return put(instance->uuid, text, bytes);
    return gpu.uuid_code == nvml::kSuccess ? put(gpu.uuid, text, bytes) : gpu.uuid_code;
  }
  static nvml::Code name(nvml::DeviceHandle device, char* text, unsigned bytes) { return put(gpu_of(device).name, text, bytes); }
  static nvml::Code pci_info(nvml::DeviceHandle device, nvml::PciInfo* info) {
    auto const& gpu = gpu_of(device);
    static_cast<void>(put(gpu.bus_id, info->bus_id, sizeof info->bus_id));
    return gpu.pci_code;
  }
  static nvml::Code memory_v2(nvml::DeviceHandle device, nvml::MemoryV2* memory) {
    auto const& figures = figures_of(device);
    if (memory->version != 0x02000028) return nvml::kArgumentVersionMismatch;
    if (figures.v2_code != nvml::kSuccess) return figures.v2_code;
    memory->total = figures.total;
    memory->reserved = figures.reserved;
    memory->free = figures.free;
    memory->used = figures.total - figures.reserved - figures.free;
    return nvml::kSuccess;
  }
  static nvml::Code memory(nvml::DeviceHandle device, nvml::Memory* memory) {
    auto const& figures = figures_of(device);
    if (figures.v1_code != nvml::kSuccess) return figures.v1_code;
    *memory = {.total = figures.total, .free = figures.free, .used = figures.total - figures.free};
    return nvml::kSuccess;
  }
  static nvml::Code mig_mode(nvml::DeviceHandle device, unsigned* mode, unsigned* pending) {
    auto const& gpu = gpu_of(device);
    *mode = *pending = gpu.mig;
    return gpu.mig_code;
  }
  static nvml::Code mig_count(nvml::DeviceHandle /*device*/, unsigned* count) {
    *count = kPlaces;
    return nvml::kSuccess;
  }
  static nvml::Code mig_handle(nvml::DeviceHandle device, unsigned index, nvml::DeviceHandle* instance) {
    if (index >= gpu_of(device).instances.size()) return nvml::kNotFound;
    *instance = to_handle(number_of(device) / kStep, index + 1);
    return nvml::kSuccess;
  }
  static nvml::Code gpu_instance(nvml::DeviceHandle device, unsigned* id) {
    auto const* const instance = instance_of(device);
    if (instance == nullptr) return nvml::kNotSupported;
    *id = instance->gpu_instance;
    return nvml::kSuccess;
  }
  static nvml::Code compute_instance(nvml::DeviceHandle device, unsigned* id) {
    auto const* const instance = instance_of(device);
    if (instance == nullptr) return nvml::kNotSupported;
    *id = instance->compute_instance;
    return nvml::kSuccess;
  }

private:
  static constexpr unsigned kPlaces = 7;  // of instances on one GPU
  static constexpr std::size_t kStep = 64;

  static FakeNvml*& current() {
    static FakeNvml* instance = nullptr;
    return instance;
  }

  // A handle is an address into this array, so that it is a pointer that the sanitizers accept, and never read through.
  static char* handles() {
    static char places[kStep * kStep];
    return places;
  }
  static nvml::DeviceHandle to_handle(std::size_t gpu, std::size_t instance) {
    return reinterpret_cast<nvml::DeviceHandle>(handles() + gpu * kStep + instance);
  }
  static std::size_t number_of(nvml::DeviceHandle device) {
    return static_cast<std::size_t>(reinterpret_cast<char*>(device) - handles());
  }
  static FakeGpu& gpu_of(nvml::DeviceHandle device) { return current()->gpus[number_of(device) / kStep]; }
  static FakeInstance* instance_of(nvml::DeviceHandle device) {
    auto const place = number_of(device) % kStep;
    return place == 0 ? nullptr : &gpu_of(device).instances[place - 1];
  }
  static FakeFigures const& figures_of(nvml::DeviceHandle device) {
    auto const* const instance = instance_of(device);
    return instance != nullptr ? instance->memory : gpu_of(device).memory;
  }
  static nvml::Code put(std::string const& value, char* text, std::size_t bytes) {
    if (value.size() + 1 > bytes) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
    std::memcpy(text, value.c_str(), value.size() + 1);
    return nvml::kSuccess;
  }
};

/// "GPU-0000000N-1111-2222-3333-444444444444"
[[nodiscard]] inline std::string fake_uuid(unsigned number) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-%08x-1111-2222-3333-444444444444", number);
  return text;
}

/// "00000000:N8:00.0", with N one hexadecimal digit.
[[nodiscard]] inline std::string fake_bus_id(unsigned number) {
  char text[64];
  std::snprintf(text, sizeof text, "00000000:%X8:00.0", number);
  return text;
}

/// So many equal GPUs, in the order of the bus.
[[nodiscard]] inline std::vector<FakeGpu> equal_gpus(unsigned count) {
  std::vector<FakeGpu> gpus;
  for (unsigned number = 0; number < count; ++number) {
    gpus.push_back({.uuid = fake_uuid(number), .bus_id = fake_bus_id(number)});
  }
  return gpus;
}

/// Makes a GPU a partitioned one with two instances, 1/0 and 2/0, of 40 and 20 GiB.
inline void partition(FakeGpu& gpu, unsigned number) {
  char uuid[64];
  gpu.mig = 1;
  for (unsigned place = 0; place < 2; ++place) {
    std::snprintf(uuid, sizeof uuid, "MIG-%08x-%04x-5555-6666-777777777777", number, place + 1);
    gpu.instances.push_back({.uuid = uuid,
                             .gpu_instance = place + 1,
                             .compute_instance = 0,
                             .memory = {.total = (40 - 20 * place) * kGiB, .reserved = 100 * kMiB, .free = 10 * kGiB}});
  }
}

}  // namespace headroom::test
