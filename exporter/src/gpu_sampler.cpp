#include <headroom/gpu_sampler.hpp>

#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "block_signals.hpp"
#include "fork_registry.hpp"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLastPatience{1};  // at the end, for what is still under way
constexpr std::int32_t kNoLibrary = 12;           // NVML's code

}  // namespace

class GpuSampler::State final : public exporter::ForkAware, public std::enable_shared_from_this<State> {
public:
  using Lock = std::unique_lock<std::mutex>;

  State(Source source, GpuSamplerOptions options) : options_(options), source_(std::move(source)) {}

  std::shared_ptr<GpuSample const> sample() {
    Lock lock{mutex_};
    if (!is_closed_ && !is_fresh()) wait_for_reading(lock);
    return newest_ && Clock::now() - newest_->taken <= max_age() ? newest_ : nullptr;
  }

  [[nodiscard]] bool is_stuck() {
    const std::lock_guard lock{mutex_};
    return is_busy_ && Clock::now() - busy_since_ >= options_.stuck_after;
  }

  /// Once, before the sampler goes.
  void stop() noexcept {
    Lock lock{mutex_};
    if (is_forked_) return;  // listed for ever: its condition may have waiters that do not exist here
    is_closed_ = true;
    if (is_quiet_within(kLastPatience, lock)) {
      // Closing NVML asks the driver once more, so this is not waited for at any length either.
      if (run(lock, [](State& state) { state.source_ = nullptr; })) {
        static_cast<void>(is_quiet_within(kLastPatience, lock));
      }
    }
    lock.unlock();
    exporter::remove_fork_aware(*this);
  }

  // A child gets the loader and NVML as they are at this moment: better not in the middle of a call, if that can be had.
  void before_fork() noexcept override {
    Lock lock{mutex_};
    if (!is_overdue_) static_cast<void>(is_quiet_within(options_.patience, lock));
    static_cast<void>(lock.release());
  }
  void after_fork_in_parent() noexcept override { mutex_.unlock(); }
  void after_fork_in_child() noexcept override {
    is_closed_ = is_forked_ = true;
    mutex_.unlock();
  }
  void stop_at_exit() noexcept override {
    {
      Lock lock{mutex_};
      is_closed_ = true;
      static_cast<void>(is_quiet_within(kLastPatience, lock));
    }
    exporter::remove_fork_aware(*this);
  }

private:
  [[nodiscard]] bool lacks_library() const { return newest_->error && newest_->error->device_code == kNoLibrary; }
  [[nodiscard]] bool is_fresh() const {
    if (!newest_) return false;
    const auto age = Clock::now() - newest_->taken;
    return age < (lacks_library() ? options_.look_again : options_.fresh);
  }
  [[nodiscard]] Clock::duration max_age() const { return lacks_library() ? options_.look_again : options_.max_age; }

  [[nodiscard]] bool is_quiet_within(std::chrono::milliseconds patience, Lock& lock) noexcept {
    return quiet_.wait_for(lock, patience, [this] { return !is_busy_; });
  }

  void wait_for_reading(Lock& lock) {
    if (is_busy_ && is_overdue_) return;
    if (!is_busy_ && !run(lock, &read)) return;
    if (!is_quiet_within(options_.patience, lock)) is_overdue_ = true;
  }

  /// Starts `job` on a thread of its own; is_busy_ until it is done. False when there is no thread to be had.
  template <class Job>
  bool run(Lock& lock, Job job) {
    is_busy_ = true;
    is_overdue_ = false;
    busy_since_ = Clock::now();
    lock.unlock();
    bool has_started = true;
    try {
      const exporter::BlockSignals block;
      std::thread{[self = shared_from_this(), job] {
        (void)pthread_setname_np(pthread_self(), "headroom-nvml");
        job(*self);
        // Under the lock, so that whoever waits may take the state down as soon as it has it.
        const std::lock_guard done{self->mutex_};
        self->is_busy_ = false;
        self->quiet_.notify_all();
      }}.detach();
    } catch (std::system_error const&) {
      has_started = false;
    }
    lock.lock();
    if (!has_started) is_busy_ = false;
    return has_started;
  }

  static void read(State& state) {
    auto sample = std::make_shared<GpuSample>();
    sample->taken = Clock::now();
    try {
      auto devices = state.source_();
      if (devices) {
        sample->devices = std::move(*devices);
      } else {
        sample->error = std::move(devices.error());
      }
    } catch (std::exception const& error) {
      sample->error = make_error(ErrorKind::driver, Layer::driver, std::string{"reading the GPUs: "} + error.what());
    }
    const std::lock_guard lock{state.mutex_};
    state.newest_ = std::move(sample);
  }

  GpuSamplerOptions const options_;
  Source source_;  // by the one thread that is_busy_ stands for

  std::mutex mutex_;  // guards what follows; never held over a call of the source
  std::condition_variable quiet_;
  std::shared_ptr<GpuSample const> newest_;
  bool is_busy_ = false;
  bool is_overdue_ = false;  // somebody stopped waiting for it; meaningless while not busy, as the next
  Clock::time_point busy_since_{};
  bool is_closed_ = false;
  bool is_forked_ = false;
};

GpuSampler::Source GpuSampler::nvml() {
  // std::function wants to be copied; all copies are one session.
  return [session = std::make_shared<std::optional<GpuSession>>()]() -> Result<std::vector<GpuDevice>> {
    if (!*session) {
      auto opened = GpuSession::open();
      if (!opened) return tl::unexpected{std::move(opened.error())};
      session->emplace(std::move(*opened));
    }
    auto devices = (*session)->devices();
    // A driver may have been replaced, or a GPU added: the next reading starts anew.
    if (!devices || devices->empty()) session->reset();
    return devices;
  };
}

GpuSampler::GpuSampler(Source source, GpuSamplerOptions options) : state_(std::make_shared<State>(std::move(source), options)) {
  exporter::add_fork_aware(state_);
}

GpuSampler::~GpuSampler() { state_->stop(); }

std::shared_ptr<GpuSample const> GpuSampler::sample() { return state_->sample(); }

bool GpuSampler::is_stuck() const { return state_->is_stuck(); }

}  // namespace headroom
