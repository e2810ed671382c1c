// A busy program that waits to be killed: kill_victim TRUTH-FILE THREADS POINT OPERATION PASSAGE
// POINT: the test point at which the first thread comes to stand, −1: nobody ever stands anywhere. OPERATION: only within that one
// (flight::InFlight). PASSAGE: how often it comes there before it stays, from 1 on. The others go on meanwhile.
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
// Written before the threads start.
int stand_at = -1;
int stand_within = 0;
int passages_left = 0;  // then the favourite's own
std::atomic<std::uint64_t>* standing = nullptr;

void stay(long ns) noexcept {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

[[noreturn]] void stand_for_ever() noexcept {
  standing->store(1, std::memory_order_release);
  for (;;) pause();
}

// Names the step in the lane, as the format provides for; then, perhaps, stays a while, or for ever.
void at_point(TestPoint point) noexcept {
  flight::LaneBooks* lane = flight::thread_state.lane;
  if (lane != nullptr && flight::thread_state.in_flight_depth == 1) {
    lane->header.in_flight_step.store(static_cast<std::uint64_t>(point) + 1, std::memory_order_release);
  }
  if (stand_at < 0) return;
  if (favourite && static_cast<int>(point) == stand_at && lane != nullptr && flight::thread_state.in_flight_depth == 1 &&
      lane->header.in_flight.load(std::memory_order_relaxed) >> 60 == static_cast<unsigned>(stand_within) &&
      --passages_left == 0) {
    stand_for_ever();
  }
  noise = noise * 1664525U + 1013904223U;
  if (noise >> 24 == 0) stay(noise >> 12 & 0xFFFF);
}

using Buffer = TrackedBuffer<std::byte>;

class Worker {
public:
  Worker(GpuMemoryManager manager, Truth& truth, unsigned seed, bool tight)
      : manager_{std::move(manager)}, truth_{truth}, random_{seed}, tight_{tight} {
    for (std::uint64_t i = 0; i < kTags; ++i) tags_.emplace_back(tag_name(i));
  }

  [[noreturn]] void run() {
    for (;;) {
      auto& place = held_[random_() % held_.size()];
      if (place.size() != 0) {
        count(place.release() ? truth_.frees : truth_.failed_frees);
        continue;
      }
      if (random_() % 4 == 0) use_reservations(place);
      if (place.size() == 0) allocate(place);
      if (random_() % 16 == 0) settle_failed_frees();
    }
  }

private:
  static void count(std::atomic<std::uint64_t>& what) {
    what.store(what.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  [[nodiscard]] AllocOptions options(std::uint64_t bytes) const {
    return {.tag = tags_[bytes % kTags], .stream = {stream_of(bytes)}, .alignment = alignment_of(bytes)};
  }
  void take(Result<Buffer> buffer, Buffer& place) {
    count(buffer ? truth_.allocations : truth_.refusals);
    if (buffer) place = std::move(*buffer);
  }

  void allocate(Buffer& place) {
    const std::uint64_t bytes = random_() % 50 == 0 ? 0 : 1 + random_() % kLargest;
    auto buffer = manager_.alloc<std::byte>(bytes, options(bytes));
    if (bytes != 0) take(std::move(buffer), place);
  }

  // One reservation is held over many rounds: made when there is none, spent of when there is one, dropped now and then.
  void use_reservations(Buffer& place) {
    if (reservation_.total_bytes() == 0) {
      const std::uint64_t bytes = 1 + random_() % kLargestReservation;
      const TagScope scope{tags_[bytes % kTags]};
      auto made = manager_.reserve_bytes(bytes);
      count(made ? truth_.reservations : truth_.refusals);
      if (made) reservation_ = std::move(*made);
    } else if (random_() % 4 == 0) {
      reservation_ = {};
      count(truth_.drops);
    } else {
      const std::uint64_t rest = reservation_.remaining_bytes();
      // Sometimes more than there is.
      const std::uint64_t bytes = random_() % 8 == 0 ? rest + 1 : 1 + random_() % (rest / 2 + 1);
      take(reservation_.alloc<std::byte>(bytes, options(bytes)), place);
    }
  }

  void settle_failed_frees() {
    PatternResource::retrying = true;
    if (tight_) {
      for (std::size_t freed = manager_.retry_failed_deallocations(); freed != 0; --freed) count(truth_.frees);
    } else {
      static_cast<void>(manager_.write_off_failed_deallocations());
    }
    PatternResource::retrying = false;
  }

  GpuMemoryManager manager_;
  Truth& truth_;
  std::minstd_rand random_;
  bool tight_;
  std::vector<AllocTag> tags_;
  std::vector<Buffer> held_{12};
  GpuMemoryReservation reservation_;
};

void work(GpuMemoryManager const& manager, Truth& truth, unsigned seed, bool tight) {
  noise = seed;
  truth.thread_id.store(static_cast<std::uint64_t>(syscall(SYS_gettid)), std::memory_order_release);
  Worker{manager, truth, seed, tight}.run();
}

}  // namespace

int run(int argc, char** argv) {
  if (argc != 6) return 64;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = open(argv[1], O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, sizeof(Truths), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) return 65;
  auto& truths = *static_cast<Truths*>(memory);
  const int threads = std::atoi(argv[2]);
  stand_at = std::atoi(argv[3]);
  stand_within = std::atoi(argv[4]);
  passages_left = std::atoi(argv[5]);
  standing = &truths.standing;
  auto device = Device::custom("pattern", std::make_shared<PatternResource>()).value();
  const auto tight = GpuMemoryManager::create(device, MemoryBudget::with_limit(kLimit), "tight").value();
  const auto open_end = GpuMemoryManager::create(device, MemoryBudget::observe(kLimit), "open").value();
  test_point_handler.store(at_point);
  std::printf("%s\n", flight::own_file().c_str());
  std::fflush(stdout);
  std::vector<std::thread> workers;
  std::atomic<bool> favourite_has_lane{false};
  for (int i = 0; i < threads; ++i) {
    if (i == 1) favourite_has_lane.wait(false);  // where there are more threads than lanes, it must not go without
    workers.emplace_back([&, i] {
      favourite = i == 0;
      if (favourite) {
        static_cast<void>(flight::this_thread());
        favourite_has_lane = true;
        favourite_has_lane.notify_one();
      }
      const auto index = static_cast<std::size_t>(i);
      work(is_tight(index) ? tight : open_end, truths.threads[index], static_cast<unsigned>(getpid() * 64 + i), is_tight(index));
    });
  }
  for (auto& worker : workers) worker.join();
  return 0;
}

}  // namespace headroom::kill

int main(int argc, char** argv) { return headroom::kill::run(argc, argv); }
