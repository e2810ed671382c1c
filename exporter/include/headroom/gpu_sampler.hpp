// headroom: the machine's GPUs, read in bounded time.
// Layer: exporter
//
// A driver in trouble answers late or never, and whoever asks it waits as long. Hence a reading runs on a thread of its own, which
// nobody waits for beyond `patience`: the caller gets the last whole reading if that is young enough, else nothing. A reading that
// hangs stays the only one: nothing is started on top of it, and nobody waits for it a second time.
//
// Use it where something must be answered: exporters, viewers, listings. gpu_devices() is enough where waiting is no harm.
// Fork: in a child it has nothing to say. Exit: a reading under way is waited for, but no longer than a second, so that the driver's
// library is not taken down under it. Thread safety: every member from any thread.
// Cost: a short-lived thread for each reading, at most one every `fresh`; where the driver's library is missing, one a minute.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/gpu_devices.hpp>

namespace headroom {

struct GpuSample {
  std::vector<GpuDevice> devices;               ///< empty where `error` is set, and where there is no GPU
  std::optional<Error> error;                   ///< why nothing can be known; see gpu_devices.hpp
  std::chrono::steady_clock::time_point taken;  ///< when the reading began
};

struct GpuSamplerOptions {
  std::chrono::milliseconds fresh{1'000};        ///< a younger reading is not repeated
  std::chrono::milliseconds patience{250};       ///< how long sample() waits for a reading
  std::chrono::milliseconds max_age{10'000};     ///< an older reading is not shown: its figures are no longer true
  std::chrono::milliseconds look_again{60'000};  ///< where the driver's library is missing: how long that stays true
  std::chrono::milliseconds stuck_after{5'000};  ///< a reading that takes longer is taken for one that hangs
};

class GpuSampler {
public:
  /// One reading. Never called by two threads at once.
  using Source = std::function<Result<std::vector<GpuDevice>>()>;

  /// Keeps NVML open between readings, and opens it anew after an error.
  [[nodiscard]] static Source nvml();

  explicit GpuSampler(Source source = nvml(), GpuSamplerOptions options = {});
  GpuSampler(GpuSampler const&) = delete;
  GpuSampler& operator=(GpuSampler const&) = delete;
  /// Waits for a reading under way and for the end of the source, for a second each; what hangs is left behind.
  ~GpuSampler();

  /// The newest reading, from now if need be; null when none is young enough.
  [[nodiscard]] std::shared_ptr<GpuSample const> sample();

  /// True while a reading is under way that seems to hang.
  [[nodiscard]] bool is_stuck() const;

private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace headroom
