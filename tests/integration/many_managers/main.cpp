// A program with several managers, devices, threads, awkward names, hooks and refusals, so that somebody can look at what is left of it.
//
//   many_managers [PAIRS]
//
// "weights" and "cache" share device 0, "spill" has a device 2 of its own, whose addresses are those of device 0. Each of three threads
// allocates and frees PAIRS times (default 200), which may wash the oldest records away; then "cache" is asked for more than its budget,
// and its hook runs. It prints "ready" and waits until it is killed, with blocks of all managers live.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

namespace {

using namespace std::string_view_literals;
using headroom::AllocTag;
using headroom::GpuMemoryManager;
using headroom::MemoryBudget;

constexpr std::uint64_t kKiB = 1024;
constexpr std::string_view kTags[] = {"plain"sv,
                                      "two\nlines"sv,
                                      R"("quoted" \x41 \)"sv,
                                      "nul\0inside"sv,
                                      "no \xFF utf"sv,
                                      "semi;colon:1"sv,
                                      "gr\xC3\xB6\xC3\x9F"
                                      "e"sv,
                                      ""sv};

[[nodiscard]] headroom::Device device(std::int32_t ordinal) {
  return headroom::host_device({.total_bytes = std::uint64_t{1} << 30U, .touch_memory = false, .ordinal = ordinal}).value();
}

/// `first` stays: where records are washed away, that of its allocation goes first.
void churn(GpuMemoryManager manager, unsigned pairs, headroom::TrackedBuffer<std::byte>& first) {
  first = manager.alloc<std::byte>(100, AllocTag{"held"}).value();
  std::vector<headroom::TrackedBuffer<std::byte>> held;
  for (unsigned i = 0; i < pairs; ++i) {
    held.push_back(manager.alloc<std::byte>(kKiB * (1 + i % 7), AllocTag{kTags[i % std::size(kTags)]}).value());
    if (held.size() > 5) held.erase(held.begin() + i % 5);
  }
}

}  // namespace

int main(int count, char** arguments) {
  auto const pairs = count > 1 ? static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)) : 200U;
  auto const shared = device(0);
  auto weights = GpuMemoryManager::create(shared, MemoryBudget::unlimited(), "weights").value();
  auto cache = GpuMemoryManager::create(shared, MemoryBudget::with_limit(256 * kKiB), "cache").value();
  auto spill = GpuMemoryManager::create(device(2), MemoryBudget::unlimited(), "spill \"2\"").value();

  std::vector<headroom::TrackedBuffer<std::byte>> held;
  for (auto const tag : kTags) held.push_back(weights.alloc<std::byte>(3 * kKiB, AllocTag{tag}).value());
  headroom::TrackedBuffer<std::byte> firsts[3];
  {
    std::jthread const one{churn, weights, pairs, std::ref(firsts[0])};
    std::jthread const two{churn, cache, pairs, std::ref(firsts[1])};
    std::jthread const three{churn, spill, pairs, std::ref(firsts[2])};
  }
  auto const guard = headroom::MemoryGuardBuilder(cache).build().value();
  headroom::OomHook nothing{.name = "nothing to give",
                            .callback = [](headroom::HookContext const&) -> std::uint64_t { return 0; }};
  if (!guard.register_hook(std::move(nothing))) return 1;
  if (guard.safe_alloc_with_hooks<std::byte>(512 * kKiB)) return 1;
  held.push_back(spill.alloc<std::byte>(kKiB).value());
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}
