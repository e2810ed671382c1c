#include "device/cuda/cuda_events.hpp"

#include "device/cuda/cuda_errors.hpp"

namespace headroom::device {

Result<CudaApi::Event> CudaEvents::take() {
  {
    std::lock_guard const lock(mutex_);
    if (!idle_.empty()) {
      auto const event = idle_.back();
      idle_.pop_back();
      return event;
    }
    idle_.reserve(++made_);  // so that giving back needs no memory
  }
  CudaApi::Event event = 0;
  auto const code = device_.call([&](CudaApi& api) { return api.event_create(event); });
  if (code == CudaCode::kSuccess) return event;
  {
    std::lock_guard const lock(mutex_);
    --made_;
  }
  return tl::make_unexpected(cuda_error(device_.api(), code, "making an event"));
}

Result<CudaApi::Event> CudaEvents::record(StreamId stream) {
  auto event = take();
  if (!event) return event;
  auto const code = device_.call([&](CudaApi& api) { return api.event_record(*event, stream.value); });
  if (code == CudaCode::kSuccess) return event;
  give_back(*event);
  return tl::make_unexpected(cuda_error(device_.api(), code, "recording an event on " + cuda_stream(stream)));
}

void CudaEvents::give_back(CudaApi::Event event) noexcept {
  std::lock_guard const lock(mutex_);
  idle_.push_back(event);
}

CudaEvents::~CudaEvents() {
  for (auto const event : idle_) {
    static_cast<void>(device_.call([&](CudaApi& api) { return api.event_destroy(event); }));
  }
}

}  // namespace headroom::device
