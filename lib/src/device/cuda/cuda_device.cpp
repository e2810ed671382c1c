#include "device/cuda/cuda_device.hpp"

#include <utility>

#include <headroom/gpu_devices.hpp>

#include "device/cuda/cuda_errors.hpp"
#include "flight/recorder.hpp"

namespace headroom::device {
namespace {

// The runtime's last error before the first calls: what they leave there is ours unless something was pending.
class LastError {
public:
  explicit LastError(CudaApi& api) noexcept : api_(api), pending_(api.peek_last_error()) {}
  LastError(LastError const&) = delete;
  LastError& operator=(LastError const&) = delete;
  ~LastError() {
    if (pending_ == CudaCode::kSuccess) api_.clear_last_error();
  }

private:
  CudaApi& api_;
  int pending_;
};

Result<std::int32_t> count(CudaApi& api) {
  int driver = 0;
  if (auto const code = api.driver_version(driver); code != CudaCode::kSuccess) {
    return tl::make_unexpected(cuda_unusable(api, code, 0));
  }
  // Without a driver every further call says 35, as it does with one that is too old.
  if (driver == 0) return tl::make_unexpected(cuda_unusable(api, CudaCode::kInsufficientDriver, 0));
  int devices = 0;
  auto code = api.device_count(devices);
  if (code == CudaCode::kSuccess && devices == 0) code = CudaCode::kNoDevice;
  if (code != CudaCode::kSuccess) return tl::make_unexpected(cuda_unusable(api, code, driver));
  return devices;
}

}  // namespace

Result<std::int32_t> count_cuda_devices(CudaApi* api) {
  if (api == nullptr) return tl::make_unexpected(built_without_cuda());
  if (flight::in_forked_child()) return tl::make_unexpected(cuda_forked_child());
  LastError const last(*api);
  return count(*api);
}

CudaDevice::CudaDevice(CudaApi& api, std::int32_t ordinal, CudaProperties found)
    : api_(&api),
      identity_(gpu_identity(ordinal, found.uuid, found.pci_bus_id)),
      name_(std::move(found.name)),
      total_bytes_(found.total_bytes) {}

Result<CudaDevice> CudaDevice::open(CudaApi* api, std::int32_t ordinal, Pools pools) {
  if (api == nullptr) return tl::make_unexpected(built_without_cuda());
  // Its fork handler is what tells a child that the GPU is not its own.
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::resource, "the system has no memory for the books (about 16 MiB)");
  }
  if (flight::in_forked_child()) return tl::make_unexpected(cuda_forked_child());
  LastError const last(*api);
  auto const devices = count(*api);
  if (!devices) return tl::make_unexpected(devices.error());
  auto const which = "CUDA device " + std::to_string(ordinal);
  if (ordinal < 0 || ordinal >= *devices) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                which + " does not exist: expected an ordinal from 0 to " + std::to_string(*devices - 1));
  }
  CudaProperties found;
  if (auto const code = api->properties(ordinal, found); code != CudaCode::kSuccess) {
    return tl::make_unexpected(cuda_error(*api, code, "asking for the properties of " + which));
  }
  if (pools == Pools::needed && !found.has_memory_pools) {
    return fail(ErrorKind::unsupported, Layer::driver,
                which + " (" + found.name + ") has no memory pools: use DirectCudaResource there");
  }
  if (auto const code = api->init_device(ordinal); code != CudaCode::kSuccess) {
    return tl::make_unexpected(cuda_error(*api, code, "making the context of " + which));
  }
  return CudaDevice(*api, ordinal, std::move(found));
}

}  // namespace headroom::device
