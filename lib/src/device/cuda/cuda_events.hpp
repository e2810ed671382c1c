// headroom: CUDA events, kept for the next use. Making one costs about as much as several records.
//
// Thread safety: every member, from any thread; no lock is held over a CUDA call. Bounds: as many as were in use at once.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <headroom/device.hpp>

#include "device/cuda/cuda_device.hpp"

namespace headroom::device {

class CudaEvents {
public:
  explicit CudaEvents(CudaDevice const& device) noexcept : device_(device) {}
  CudaEvents(CudaEvents const&) = delete;
  CudaEvents& operator=(CudaEvents const&) = delete;
  /// Nobody uses the resource any more.
  ~CudaEvents();

  /// Recorded on the stream. Errors: driver.
  [[nodiscard]] Result<CudaApi::Event> record(StreamId stream);
  void give_back(CudaApi::Event event) noexcept;

private:
  [[nodiscard]] Result<CudaApi::Event> take();

  CudaDevice const& device_;
  std::mutex mutex_;  // guards what follows
  std::vector<CudaApi::Event> idle_;
  std::size_t made_ = 0;
};

}  // namespace headroom::device
