// NVML: the functions that we use, as a table that is filled at run time, or by a test.
//
// The driver's header is not on every machine and its library never at build time, so the few types, codes and functions are
// declared here, in our own words but the library's names where its documentation must be found. Sizes and numbers are its ABI.
#pragma once

#include <cstddef>
#include <string>

#include <headroom/error.hpp>

namespace headroom::device::nvml {

using Code = int;  // nvmlReturn_t
inline constexpr Code kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNoPermission = 4, kNotFound = 6,
                      kDriverNotLoaded = 9, kTimeout = 10, kLibraryNotFound = 12, kFunctionNotFound = 13, kGpuIsLost = 15,
                      kResetRequired = 16, kVersionMismatch = 18, kArgumentVersionMismatch = 25, kGpuNotFound = 28,
                      kUnknown = 999;

struct Device;  // opaque: the library's
using DeviceHandle = Device*;

/// nvmlMemory_t. `used` contains what the driver reserves.
struct Memory {
  unsigned long long total, free, used;
};
static_assert(sizeof(Memory) == 24);

/// nvmlMemory_v2_t. `version` says which structure the caller means.
struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, total) == 8);
inline constexpr unsigned kMemoryV2Version = sizeof(MemoryV2) | (2U << 24U);

/// nvmlPciInfo_t, third version.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];  // with a domain of eight digits
};
static_assert(sizeof(PciInfo) == 68);

inline constexpr unsigned kTextBytes = 96;     // of names and UUIDs, as NVML documents them
inline constexpr unsigned kMostDevices = 256;  // a count above it is nonsense, and must not become a loop

/// The functions; null where the library has none. The first five are needed, the others cost only what they would have told.
struct Table {
  Code (*init)() = nullptr;
  Code (*shutdown)() = nullptr;
  Code (*device_count)(unsigned int* count) = nullptr;
  Code (*device_handle)(unsigned int index, DeviceHandle* device) = nullptr;
  Code (*uuid)(DeviceHandle device, char* text, unsigned int bytes) = nullptr;

  Code (*name)(DeviceHandle device, char* text, unsigned int bytes) = nullptr;
  Code (*pci_info)(DeviceHandle device, PciInfo* info) = nullptr;
  Code (*memory_v2)(DeviceHandle device, MemoryV2* memory) = nullptr;
  Code (*memory)(DeviceHandle device, Memory* memory) = nullptr;
  Code (*mig_mode)(DeviceHandle device, unsigned int* current, unsigned int* pending) = nullptr;
  Code (*mig_count)(DeviceHandle device, unsigned int* count) = nullptr;  // how many there can be
  Code (*mig_handle)(DeviceHandle device, unsigned int index, DeviceHandle* instance) = nullptr;
  Code (*gpu_instance)(DeviceHandle instance, unsigned int* id) = nullptr;
  Code (*compute_instance)(DeviceHandle instance, unsigned int* id) = nullptr;
};

/// What a code means, in a few words: "the driver is not loaded".
[[nodiscard]] std::string meaning(Code code);

/// Layer and kind `driver`, with the code, what it means, and what was being done.
[[nodiscard]] tl::unexpected<Error> failure(Code code, std::string const& doing);

/// The table of libnvidia-ml.so.1, opened at the first call that finds it and kept for ever. That there is none is looked up anew at
/// every call: drivers come later. Errors: 12 no library, 13 a function that is needed is missing.
[[nodiscard]] Result<Table const*> loaded_table();

}  // namespace headroom::device::nvml
