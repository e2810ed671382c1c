// A libnvidia-ml.so.1 of made-up GPUs, for programs that open it at run time. FAKE_NVML says which machine it is:
//   eight (the default)  eight H100, the last of them with two MIG instances
//   none                 a driver without a device
//   error:CODE           NVML does not start, with that code
//   old                  eight, and a driver that has only the older call for memory
//   lost                 eight, of which GPU 1 has fallen off the bus
//   hang                 eight, and the first call about devices never returns
// FAKE_NVML_WITHOUT_UUID, at compile time, leaves a function out.
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

#include "fake_nvml.hpp"

namespace {

using headroom::test::FakeNvml;
namespace nvml = headroom::device::nvml;

struct Machine {
  Machine() {
    char const* const value = std::getenv("FAKE_NVML");
    std::string_view const kind = value == nullptr ? "eight" : value;
    constexpr std::string_view kError = "error:";
    if (kind == "none") return;
    if (kind.starts_with(kError)) {
      fake.init_code = std::atoi(std::string{kind.substr(kError.size())}.c_str());
      return;
    }
    fake.gpus = headroom::test::equal_gpus(8);
    headroom::test::partition(fake.gpus[7], 7);
    if (kind == "old") {
      for (auto& gpu : fake.gpus) gpu.memory.v2_code = nvml::kFunctionNotFound;
    }
    if (kind == "lost") fake.gpus[1].memory.v2_code = nvml::kGpuIsLost;
    if (kind == "hang") {
      fake.on_count = [] {
        while (true) pause();
      };
    }
  }
  FakeNvml fake;
};

// Made when the library is opened, never destroyed: a thread may hang in here to the end.
Machine& machine = *new Machine;

}  // namespace

extern "C" {
nvml::Code nvmlInit_v2() {
  static_cast<void>(machine);
  return FakeNvml::init();
}
nvml::Code nvmlShutdown() { return FakeNvml::shutdown(); }
nvml::Code nvmlDeviceGetCount_v2(unsigned* count) { return FakeNvml::device_count(count); }
nvml::Code nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::DeviceHandle* device) {
  return FakeNvml::device_handle(index, device);
}
#ifndef FAKE_NVML_WITHOUT_UUID
nvml::Code nvmlDeviceGetUUID(nvml::DeviceHandle device, char* text, unsigned bytes) {
  return FakeNvml::uuid(device, text, bytes);
}
#endif
nvml::Code nvmlDeviceGetName(nvml::DeviceHandle device, char* text, unsigned bytes) {
  return FakeNvml::name(device, text, bytes);
}
nvml::Code nvmlDeviceGetPciInfo_v3(nvml::DeviceHandle device, nvml::PciInfo* info) { return FakeNvml::pci_info(device, info); }
nvml::Code nvmlDeviceGetMemoryInfo_v2(nvml::DeviceHandle device, nvml::MemoryV2* memory) {
  return FakeNvml::memory_v2(device, memory);
}
nvml::Code nvmlDeviceGetMemoryInfo(nvml::DeviceHandle device, nvml::Memory* memory) { return FakeNvml::memory(device, memory); }
nvml::Code nvmlDeviceGetMigMode(nvml::DeviceHandle device, unsigned* current, unsigned* pending) {
  return FakeNvml::mig_mode(device, current, pending);
}
nvml::Code nvmlDeviceGetMaxMigDeviceCount(nvml::DeviceHandle device, unsigned* count) {
  return FakeNvml::mig_count(device, count);
}
nvml::Code nvmlDeviceGetMigDeviceHandleByIndex(nvml::DeviceHandle device, unsigned index, nvml::DeviceHandle* instance) {
  return FakeNvml::mig_handle(device, index, instance);
}
nvml::Code nvmlDeviceGetGpuInstanceId(nvml::DeviceHandle instance, unsigned* id) { return FakeNvml::gpu_instance(instance, id); }
nvml::Code nvmlDeviceGetComputeInstanceId(nvml::DeviceHandle instance, unsigned* id) {
  return FakeNvml::compute_instance(instance, id);
}
}
