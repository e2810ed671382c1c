#include "device/nvml.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include <dlfcn.h>

#include "base/quoted.hpp"

namespace headroom::device::nvml {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";

/// Written once, by whichever thread loaded first (release, compare-exchange); read by all (acquire, pairs with it). Never freed: the
/// library stays open as long as the process.
std::atomic<Table const*> table{nullptr};

constexpr std::array<std::pair<Code, std::string_view>, 14> kMeanings{{
    {kUninitialized, "NVML is not initialised"},
    {kInvalidArgument, "NVML took an argument for invalid"},
    {kNotSupported, "the device does not support that"},
    {kNoPermission, "no permission"},
    {kNotFound, "not found"},
    {kDriverNotLoaded, "the NVIDIA driver is not loaded"},
    {kTimeout, "the driver timed out"},
    {kLibraryNotFound, "the NVIDIA driver's library is missing"},
    {kFunctionNotFound, "the driver's library lacks a function"},
    {kGpuIsLost, "the GPU has fallen off the bus"},
    {kResetRequired, "the GPU needs a reset"},
    {kVersionMismatch, "the driver's library and its kernel module are of different versions"},
    {kArgumentVersionMismatch, "the driver does not know this version of the call"},
    {kGpuNotFound, "no GPU was found"},
}};

/// Fills a pointer with a function of the library; false when it has none of that name.
template <class Function>
bool find(void* library, char const* name, Function*& function) {
  // POSIX promises that an address from dlsym may be called; the language has no other way to say so.
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

/// The name of the first function that is needed and missing; null when none is.
char const* fill(Table& filled, void* library) {
  if (!find(library, "nvmlInit_v2", filled.init)) return "nvmlInit_v2";
  if (!find(library, "nvmlShutdown", filled.shutdown)) return "nvmlShutdown";
  if (!find(library, "nvmlDeviceGetCount_v2", filled.device_count)) return "nvmlDeviceGetCount_v2";
  if (!find(library, "nvmlDeviceGetHandleByIndex_v2", filled.device_handle)) return "nvmlDeviceGetHandleByIndex_v2";
  if (!find(library, "nvmlDeviceGetUUID", filled.uuid)) return "nvmlDeviceGetUUID";
  find(library, "nvmlDeviceGetName", filled.name);
  find(library, "nvmlDeviceGetPciInfo_v3", filled.pci_info);
  find(library, "nvmlDeviceGetMemoryInfo_v2", filled.memory_v2);
  find(library, "nvmlDeviceGetMemoryInfo", filled.memory);
  find(library, "nvmlDeviceGetMigMode", filled.mig_mode);
  find(library, "nvmlDeviceGetMaxMigDeviceCount", filled.mig_count);
  find(library, "nvmlDeviceGetMigDeviceHandleByIndex", filled.mig_handle);
  find(library, "nvmlDeviceGetGpuInstanceId", filled.gpu_instance);
  find(library, "nvmlDeviceGetComputeInstanceId", filled.compute_instance);
  return nullptr;
}

}  // namespace

std::string meaning(Code code) {
  for (auto const& [known, text] : kMeanings) {
    if (known == code) return std::string{text};
  }
  return "NVML failed";
}

tl::unexpected<Error> failure(Code code, std::string const& doing) {
  auto error =
      make_error(ErrorKind::driver, Layer::driver, meaning(code) + " (NVML code " + std::to_string(code) + "), " + doing);
  error.device_code = code;
  return tl::unexpected<Error>{std::move(error)};
}

Result<Table const*> loaded_table() {
  if (auto const* const present = table.load(std::memory_order_acquire)) return present;
  // No lock: dlopen runs the library's own code. Threads that load at once get the same library, and all but one give it back.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    char const* const why = dlerror();
    return failure(kLibraryNotFound, std::string{"looking for "} + kLibrary + ": " + in_quotes(why == nullptr ? "" : why, 160));
  }
  auto filled = std::make_unique<Table>();
  if (char const* const missing = fill(*filled, library)) {
    dlclose(library);
    return failure(kFunctionNotFound, std::string{"looking for "} + missing + " in " + kLibrary);
  }
  Table const* winner = nullptr;
  if (table.compare_exchange_strong(winner, filled.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
    return filled.release();
  }
  dlclose(library);
  return winner;
}

}  // namespace headroom::device::nvml
