// headroom: one GPU, and how to call into CUDA on it without leaving a trace in the program.
//
// Around each call the device is made current and what was current before restored, and the thread's last error is looked after:
// CUDA keeps one, and a call that fails replaces it. If nothing was pending before, the error is ours alone and is cleared. If one of
// the program's was pending, it is overwritten already and cannot be put back; then nothing is cleared, so that the program still
// finds a failure where it left one. `quiet` is for calls that never touch the last error and saves the look at it.
//
// Thread safety: every member, from any thread. Cost of a call: a look at the current context, and one at the last error.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/device.hpp>
#include <headroom/error.hpp>

#include "device/cuda/cuda_api.hpp"

namespace headroom::device {

/// How many devices there are. `api` may be null. Errors: as cuda_device_count.
[[nodiscard]] Result<std::int32_t> count_cuda_devices(CudaApi* api);

class CudaDevice {
public:
  enum class Pools : std::uint8_t { not_needed, needed };
  /// Makes the primary context unless it exists. `api` may be null. Errors: as AsyncCudaResource::create.
  [[nodiscard]] static Result<CudaDevice> open(CudaApi* api, std::int32_t ordinal, Pools pools);

  [[nodiscard]] CudaApi& api() const noexcept { return *api_; }
  [[nodiscard]] DeviceIdentity const& identity() const noexcept { return identity_; }
  [[nodiscard]] std::int32_t ordinal() const noexcept { return identity_.ordinal; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] std::string const& uuid() const noexcept { return identity_.uuid; }  ///< "GPU-…"
  [[nodiscard]] std::string const& pci_bus_id() const noexcept { return identity_.pci_address; }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept { return total_bytes_; }

  /// `call(api)` on this device; its code, or that of the failure to get there.
  template <class Call>
  [[nodiscard]] int call(Call const& call) const noexcept {
    auto const pending = api_->peek_last_error();
    auto const code = quiet(call);
    if (code != CudaCode::kSuccess && pending == CudaCode::kSuccess) api_->clear_last_error();
    return code;
  }
  /// The same for calls that leave the last error alone.
  template <class Call>
  [[nodiscard]] int quiet(Call const& call) const noexcept {
    CudaApi::Context previous = 0;
    if (auto const code = api_->enter(ordinal(), previous); code != CudaCode::kSuccess) [[unlikely]]
      return code;
    auto const code = call(*api_);
    if (previous != 0) [[unlikely]]
      api_->leave(previous);
    return code;
  }

private:
  CudaDevice(CudaApi& api, std::int32_t ordinal, CudaProperties found);

  CudaApi* api_;
  DeviceIdentity identity_;
  std::string name_;
  std::uint64_t total_bytes_;
};

}  // namespace headroom::device
