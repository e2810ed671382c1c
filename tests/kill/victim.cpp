// A busy program that waits to be killed: kill_victim TRUTH-FILE THREADS POINT
// POINT: the test point at which the first thread likes to stay, −1: nobody ever stays anywhere.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <headroom/flight_publish.hpp>
#include <headroom/manager.hpp>

#include "flight/thread_state.hpp"
#include "pattern.hpp"

namespace headroom::kill {
namespace {

// Hands out patterned addresses, sometimes none at all, and refuses some frees once.
class PatternResource final : public DeviceResource {
public:
  Result<Block> allocate(AllocRequest const& request) override {
    const std::uint64_t serial = next_.fetch_add(1, std::memory_order_relaxed);
    if (serial % 41 == 0) return tl::unexpected{make_error(ErrorKind::device_out_of_memory, Layer::driver, "no more for now")};
    return Block{.pointer = reinterpret_cast<void*>(address_of(serial, request.bytes)),  // NOLINT(performance-no-int-to-ptr)
                 .bytes = request.bytes,
                 .alignment = request.alignment,
                 .stream = request.stream,
                 .generation = serial,
                 .device = 0,
                 .tag = request.tag};
  }
  Result<void> deallocate(Block const& block) override {
    const bool refused = free_fails_once(reinterpret_cast<std::uint64_t>(block.pointer)) && !retrying;
    if (refused) return tl::unexpected{make_error(ErrorKind::driver, Layer::driver, "not now")};
    return {};
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "pattern"; }

  static inline thread_local bool retrying = false;

private:
  std::atomic<std::uint64_t> next_{1};
};

thread_local bool favourite = false;
thread_local std::uint32_t noise = 1;
int stay_at = -1;

void stay(long ns) noexcept {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

// Names the step in the lane, as the format provides for; then, perhaps, stays a while.
void at_point(TestPoint point) noexcept {
  flight::LaneBooks* lane = flight::thread_state.lane;
  if (lane != nullptr && flight::thread_state.in_flight_depth == 1) {
    lane->header.in_flight_step.store(static_cast<std::uint64_t>(point) + 1, std::memory_order_release);
  }
  if (stay_at < 0) return;
  if (favourite && static_cast<int>(point) == stay_at) return stay(4'000'000);
  noise = noise * 1664525U + 1013904223U;
  if (noise >> 24 == 0) stay(noise >> 12 & 0xFFFF);
}

void work(GpuMemoryManager manager, Truth& truth, unsigned seed, bool tight) {
  std::vector<AllocTag> tags;
  for (std::uint64_t i = 0; i < kTags; ++i) tags.emplace_back(tag_name(i));
  std::minstd_rand random{seed};
  noise = seed;
  truth.thread_id.store(static_cast<std::uint64_t>(syscall(SYS_gettid)), std::memory_order_release);
  const auto count = [](std::atomic<std::uint64_t>& what) {
    what.store(what.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  };
  std::vector<TrackedBuffer<std::byte>> held(12);
  for (;;) {
    auto& place = held[random() % held.size()];
    if (place.size() != 0) {
      count(place.release() ? truth.frees : truth.failed_frees);
      continue;
    }
    const std::uint64_t bytes = random() % 50 == 0 ? 0 : 1 + random() % kLargest;
    auto buffer = manager.alloc<std::byte>(
        bytes, AllocOptions{.tag = tags[bytes % kTags], .stream = {stream_of(bytes)}, .alignment = alignment_of(bytes)});
    if (bytes == 0) continue;
    count(buffer ? truth.allocations : truth.refusals);
    if (buffer) place = std::move(*buffer);
    if (random() % 16 == 0) {
      PatternResource::retrying = true;
      if (tight) {
        for (std::size_t freed = manager.retry_failed_deallocations(); freed != 0; --freed) count(truth.frees);
      } else {
        static_cast<void>(manager.write_off_failed_deallocations());
      }
      PatternResource::retrying = false;
    }
  }
}

}  // namespace

int run(int argc, char** argv) {
  if (argc != 4) return 64;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = open(argv[1], O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, sizeof(Truths), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) return 65;
  auto& truths = *static_cast<Truths*>(memory);
  const int threads = std::atoi(argv[2]);
  stay_at = std::atoi(argv[3]);
  auto device = Device::custom("pattern", std::make_shared<PatternResource>()).value();
  const auto tight = GpuMemoryManager::create(device, MemoryBudget::with_limit(kLimit), "tight").value();
  const auto open_end = GpuMemoryManager::create(device, MemoryBudget::observe(kLimit), "open").value();
  test_point_handler.store(at_point);
  std::printf("%s\n", flight::own_file().c_str());
  std::fflush(stdout);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      favourite = i == 0;
      const auto index = static_cast<std::size_t>(i);
      work(is_tight(index) ? tight : open_end, truths.threads[index], static_cast<unsigned>(getpid() * 64 + i), is_tight(index));
    });
  }
  for (auto& worker : workers) worker.join();
  return 0;
}

}  // namespace headroom::kill

int main(int argc, char** argv) { return headroom::kill::run(argc, argv); }
