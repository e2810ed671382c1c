// Forks around CUDA: the child of a process that used headroom refuses work on the device with a clear error, and neither its life nor
// its end touches what its parent holds. A child made before anything of headroom or CUDA was used is a process like any other.
//
//   gpu_forks HOW       HOW: before   fork first; then child and parent each bring up their own device
//                            between  headroom is in use (on the host), CUDA is not; fork
//                            after    a manager of the device with a written buffer; fork; the child tries everything
//                            bare     CUDA alone is in use, nothing of headroom; fork: how the others would end without headroom
//
// Exits with 7; 77 with the library's error where no device can be used; 1 and a line that says what was wrong; 2: HOW is unknown.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/cuda_resource.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/runtime.hpp>

namespace {

using headroom::ErrorKind;
using headroom::GpuMemoryManager;
using headroom::MemoryBudget;
using headroom::Result;
using headroom::TrackedBuffer;

constexpr int kChosen = 7;
constexpr int kNoDevice = 77;
constexpr std::uint64_t kBytes = 1 << 20;
constexpr int kPattern = 0x5a;

[[nodiscard]] bool wrong(std::string const& what) {
  std::fprintf(stderr, "gpu_forks: %s\n", what.c_str());
  return false;
}
template <class T>
[[nodiscard]] bool refused(char const* call, Result<T> const& result, ErrorKind kind) {
  if (result) return wrong(std::string{call} + " succeeded in a forked child");
  if (result.error().kind != kind) return wrong(std::string{call} + ": " + result.error().to_string());
  if (result.error().to_string().find("forked child") == std::string::npos) {
    return wrong(std::string{call} + " does not say why: " + result.error().to_string());
  }
  return true;
}

struct OnDevice {
  headroom::Device device;
  headroom::DeviceRuntime runtime;
  GpuMemoryManager manager;
  TrackedBuffer<std::byte> buffer;
};

Result<OnDevice> bring_up() {
  auto device = headroom::cuda_device(0);
  if (!device) return tl::make_unexpected(device.error());
  auto runtime = headroom::DeviceRuntime::create(*device);
  if (!runtime) return tl::make_unexpected(runtime.error());
  auto manager = GpuMemoryManager::with_runtime(*device, MemoryBudget::with_limit(2 * kBytes), *runtime);
  if (!manager) return tl::make_unexpected(manager.error());
  auto buffer = manager->alloc<std::byte>(kBytes);
  if (!buffer) return tl::make_unexpected(buffer.error());
  return OnDevice{*device, *runtime, *manager, *std::move(buffer)};
}

bool write(OnDevice const& on) {
  return cudaMemset(on.buffer.data(), kPattern, kBytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

bool is_intact(OnDevice& on) {
  static std::array<std::byte, kBytes> seen;
  seen.fill(std::byte{0});
  if (cudaMemcpy(seen.data(), on.buffer.data(), kBytes, cudaMemcpyDeviceToHost) != cudaSuccess) return wrong("the copy failed");
  for (auto const byte : seen) {
    if (byte != std::byte{kPattern}) return wrong("the buffer has other bytes");
  }
  if (on.manager.allocated_bytes() != kBytes || !on.manager.audit().clean()) return wrong(on.manager.audit().to_string());
  auto more = on.manager.alloc<std::byte>(kBytes);
  if (!more) return wrong(more.error().to_string());
  return static_cast<bool>(more->release());
}

/// Runs `child` in a forked child, which then ends as programs do, statics and all. What it ended with: 128 + N by signal N, which is 9
/// when it did not end by itself.
template <class Child>
int status_of_child(Child child) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) std::exit(child());
  if (pid < 0) return 1;
  int status = 0;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  for (;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0) return 1;
    if (std::chrono::steady_clock::now() > patience) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}
bool chosen(int status) {
  return status == kChosen || wrong("the child ended with " + std::to_string(status) + ", expected " + std::to_string(kChosen));
}

int no_device(headroom::Error const& error) {
  std::fprintf(stderr, "gpu_forks: %s\n", error.to_string().c_str());
  return kNoDevice;
}

int before() {
  const int status = status_of_child([] {
    auto on = bring_up();
    if (!on) return kNoDevice;  // the parent says why
    return write(*on) && is_intact(*on) ? kChosen : 1;
  });
  auto on = bring_up();
  if (!on) return status == kNoDevice ? no_device(on.error()) : 1;
  return chosen(status) && write(*on) && is_intact(*on) ? kChosen : 1;
}

int between() {
  const auto host = headroom::host_device().value();
  auto on_host = GpuMemoryManager::create(host, MemoryBudget::with_limit(1000)).value();
  auto held = on_host.alloc<std::byte>(1000).value();
  const int status = status_of_child([] {
    const auto device = headroom::cuda_device(0);
    if (!device && device.error().kind != ErrorKind::unsupported) return kNoDevice;
    const auto up = bring_up();
    return refused("bringing up the device", up, ErrorKind::unsupported) ? kChosen : 1;
  });
  auto on = bring_up();
  if (!on) return status == kNoDevice || status == kChosen ? no_device(on.error()) : 1;
  return chosen(status) && write(*on) && is_intact(*on) && on_host.allocated_bytes() == 1000 ? kChosen : 1;
}

bool child_is_refused(OnDevice& on, headroom::StreamLease& lease) {
  auto& resource = on.device.resource();
  const headroom::Block block{
      .pointer = on.buffer.data(), .bytes = kBytes, .alignment = headroom::kMinimumAlignment, .stream = {}, .generation = 0};
  return refused("alloc", on.manager.alloc<std::byte>(1), ErrorKind::unsupported) &&
         refused("alloc_raw", on.manager.alloc_raw(1, headroom::AllocTag{}), ErrorKind::unsupported) &&
         refused("acquire_stream", on.runtime.acquire_stream(), ErrorKind::unsupported) &&
         refused("synchronize", on.runtime.synchronize(lease.id()), ErrorKind::unsupported) &&
         refused("allocate", resource.allocate({.bytes = 1}), ErrorKind::unsupported) &&
         refused("deallocate", resource.deallocate(block), ErrorKind::unsupported) &&
         refused("fill_zero", resource.fill_zero(block, 0, kBytes, {}), ErrorKind::unsupported) &&
         refused("create_stream", resource.create_stream(), ErrorKind::unsupported) &&
         refused("reap_pending", resource.reap_pending(headroom::ReapMode::synchronize), ErrorKind::unsupported) &&
         on.buffer.release().has_value();  // lets go of what is the parent's, and no more
}

int after() {
  auto on = bring_up();
  if (!on) return no_device(on.error());
  auto lease = on->runtime.acquire_stream();
  if (!lease || !write(*on)) return 1;
  const int status = status_of_child([&] { return child_is_refused(*on, *lease) ? kChosen : 1; });
  // A second child, that ends with destructors of what it inherited.
  const int moved = status_of_child([&] {
    {
      auto const inherited = std::move(*on);
      auto const also = std::move(*lease);
    }
    return kChosen;
  });
  return chosen(status) && chosen(moved) && is_intact(*on) ? kChosen : 1;
}

int bare() {
  void* memory = nullptr;
  if (const auto code = cudaMalloc(&memory, kBytes); code != cudaSuccess) {
    std::fprintf(stderr, "gpu_forks: no device for CUDA: %s\n", cudaGetErrorString(code));
    return kNoDevice;
  }
  const int status = status_of_child([] { return kChosen; });
  return chosen(status) && cudaFree(memory) == cudaSuccess ? kChosen : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view how = count > 1 ? arguments[1] : "";
  if (how == "before") return before();
  if (how == "between") return between();
  if (how == "after") return after();
  if (how == "bare") return bare();
  return 2;
}
