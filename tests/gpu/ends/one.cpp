// Static buffers and a static manager of a GPU in two translation units: whichever end first, before or after CUDA's own exit handlers
// ran, and however the process ends, its exit status is the one that it chose.
//
//   gpu_ends HOW       HOW: return, exit, quick_exit, thread, quick_thread, throw, pending, unloaded
//
// Exits with 7 (`throw`: SIGABRT, as ever); 77 with the library's error where no device can be used; 1 when something is not what it
// should be, 2 when HOW is unknown. `unloaded` writes what CUDA says to the last static of all, after its own exit handlers.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <cuda_runtime_api.h>

#include "two.hpp"

namespace {

constexpr int kChosen = 7;
constexpr int kNoDevice = 77;
constexpr std::uint64_t kBytesOfOne = 200;

// Made before anything here touches CUDA, so that it ends after CUDA's exit handlers.
struct Witness {
  bool asked = false;
  Witness() = default;
  ~Witness() {
    if (asked) std::printf("after the last static CUDA says %d\n", static_cast<int>(cudaFree(nullptr)));
  }
  Witness(Witness const&) = delete;
  Witness& operator=(Witness const&) = delete;
};
Witness& witness() {
  static Witness instance;
  return instance;
}

// A buffer whose static is older than CUDA (where this unit comes first) and than any manager: it is freed after both.
headroom::TrackedBuffer<std::byte>& oldest() {
  static headroom::TrackedBuffer<std::byte> buffer;
  return buffer;
}
[[maybe_unused]] auto const& made_first = (witness(), oldest());

// Made here before the manager's own translation unit had its turn, or after it: destroyed after the manager, or before it.
auto held_by_one =
    static_manager().and_then([](headroom::GpuMemoryManager manager) { return manager.alloc<std::byte>(kBytesOfOne); });

[[noreturn]] void end_on_a_thread(void (*end)(int)) {
  std::thread{[end] { end(kChosen); }}.detach();
  for (;;) std::this_thread::sleep_for(std::chrono::seconds{1});
}

/// A block whose free still waits for a use on another stream when the process ends.
bool leave_a_free_pending() {
  auto& resource = static_device()->resource();
  if (!resource.tracks_uses()) return false;
  const auto own = resource.create_stream();
  const auto other = resource.create_stream();
  if (!own || !other) return false;
  const auto block = resource.allocate({.bytes = std::uint64_t{256} << 20, .stream = *own});
  if (!block || !resource.prepare_use(*block, *other, headroom::UseKind::write)) return false;
  for (int i = 0; i < 20; ++i) {
    if (!resource.fill_zero(*block, 0, block->bytes, *other)) return false;
  }
  return resource.finish_use(*block, *other, headroom::UseKind::write) && resource.deallocate(*block);
}

bool statics_are_right() {
  auto& manager = *static_manager();
  if (!held_by_one || manager.allocated_bytes() != kBytesOfOne + kBytesOfTwo) return false;
  auto rest = manager.alloc<std::byte>(100);
  if (!rest) return false;
  oldest() = *std::move(rest);
  if (manager.alloc<std::byte>(1)) return false;  // the budget of 1000 is spent by three statics
  if (!held_by_one->release()) return false;      // taken before main, freed in it
  held_by_one = manager.alloc<std::byte>(kBytesOfOne);
  return held_by_one.has_value() && manager.allocated_bytes() == 1000 && manager.audit().clean();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view how = count > 1 ? arguments[1] : "";
  if (!static_manager()) {
    std::fprintf(stderr, "gpu_ends: %s\n", static_manager().error().to_string().c_str());
    return kNoDevice;
  }
  if (!statics_are_right()) return 1;
  if (how == "return") return kChosen;
  if (how == "exit") std::exit(kChosen);
  if (how == "quick_exit") std::quick_exit(kChosen);
  if (how == "thread") end_on_a_thread([](int status) { std::exit(status); });
  if (how == "quick_thread") end_on_a_thread([](int status) { std::quick_exit(status); });
  if (how == "throw") throw kChosen;  // nobody catches it
  if (how == "pending") return leave_a_free_pending() ? kChosen : 1;
  if (how == "unloaded") {
    witness().asked = true;
    return kChosen;
  }
  return 2;
}
