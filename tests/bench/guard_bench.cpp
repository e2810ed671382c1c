// What a guard's doors cost beside the manager's own (`pair`), on a resource whose zero-fill is free, and that a thousand hooks cost a
// request that fits nothing.
#include <string>

#include <headroom/guard.hpp>

#include "managers.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

const AllocTag kTag{"bench"};

MemoryGuard make_guard(std::string_view name, int hooks) {
  auto guard = MemoryGuardBuilder(test::null_manager(MemoryBudget::with_limit(std::uint64_t{1} << 40), name)).build().value();
  for (int i = 0; i < hooks; ++i) {
    static_cast<void>(
        guard.register_hook({.name = "hook-" + std::to_string(i), .callback = [](HookContext const&) { return 0U; }}));
  }
  return guard;
}

void guard_safe_alloc(benchmark::State& state) {
  static const MemoryGuard& guard = *new MemoryGuard{make_guard("bench-guard", 0)};
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] { benchmark::DoNotOptimize(guard.safe_alloc<std::byte>(1024, kTag)); });
  }
  sampler.report(state);
  target(state, state.threads() == 1 ? 110 : 0);
}
BENCHMARK(guard_safe_alloc)->Apply(all_thread_counts);

void guard_with_a_thousand_hooks(benchmark::State& state) {
  static const MemoryGuard& guard = *new MemoryGuard{make_guard("bench-hooks", 1000)};
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] { benchmark::DoNotOptimize(guard.safe_alloc_with_hooks<std::byte>(1024, kTag)); });
  }
  sampler.report(state);
  target(state, 110);
}
BENCHMARK(guard_with_a_thousand_hooks);

}  // namespace
}  // namespace headroom::bench
