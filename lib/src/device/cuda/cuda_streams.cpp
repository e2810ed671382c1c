#include "device/cuda/cuda_streams.hpp"

#include <optional>

#include "device/cuda/cuda_errors.hpp"

namespace headroom::device {

std::optional<StreamId> CudaStreams::reuse() {
  std::uint64_t value = 0;
  {
    std::lock_guard const lock(mutex_);
    if (ended_.empty()) return std::nullopt;
    value = ended_.front();
    ended_.pop_front();
  }
  auto const code = device_.quiet([&](CudaApi& api) { return api.stream_query(value); });
  std::lock_guard const lock(mutex_);
  if (code == CudaCode::kSuccess) {
    made_[value] = true;
    ended_count_.fetch_sub(1, std::memory_order_relaxed);
    return StreamId{value};
  }
  ended_.push_back(value);
  return std::nullopt;
}

Result<CudaStreams::Made> CudaStreams::create() {
  if (auto const again = reuse()) return Made{.stream = *again, .had_a_life = true};
  std::uint64_t value = 0;
  if (auto const code = device_.call([&](CudaApi& api) { return api.stream_create(value); }); code != CudaCode::kSuccess) {
    return tl::make_unexpected(cuda_error(device_.api(), code, "making a stream"));
  }
  std::lock_guard const lock(mutex_);
  made_.insert_or_assign(value, true);
  return Made{.stream = {value}};
}

bool CudaStreams::end(StreamId stream) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = made_.find(stream.value);
  if (found == made_.end() || !found->second) return false;
  ended_.push_back(stream.value);
  found->second = false;
  ended_count_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool CudaStreams::is_live(StreamId stream) const noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = made_.find(stream.value);
  return found != made_.end() && found->second;
}

bool CudaStreams::looks_ended(StreamId stream) const noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = made_.find(stream.value);
  return found != made_.end() && !found->second;
}

CudaStreams::~CudaStreams() {
  for (auto const& [value, live] : made_) {
    static_cast<void>(live);
    static_cast<void>(device_.call([&](CudaApi& api) { return api.stream_destroy(value); }));
  }
}

}  // namespace headroom::device
