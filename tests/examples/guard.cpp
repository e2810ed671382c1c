#include <headroom/headroom.hpp>

#include <cstdio>
#include <vector>

int main() {
  // [readme]
  auto device = headroom::host_device().value();
  auto guard = headroom::MemoryGuardBuilder(device)
                   .budget_bytes(64 << 20)
                   .oom_policy(headroom::OomPolicy::wait_and_retry(std::chrono::milliseconds{200}))
                   .build()
                   .value();

  static const headroom::AllocTag kCache{"cache"};
  std::vector<headroom::TrackedBuffer<std::byte>> cache;
  for (int i = 0; i < 3; ++i) cache.push_back(guard.safe_alloc<std::byte>(16 << 20, kCache).value());  // zeroed, 48 MiB in all

  auto evict = [&](headroom::HookContext const& wanted) {
    std::uint64_t freed = 0;
    for (; freed < wanted.shortfall_bytes && !cache.empty(); cache.pop_back()) freed += cache.back().size_bytes();
    return freed;  // only reported: whether the request fits now is what counts
  };
  auto told = [](headroom::PressureChange const& change) {
    std::printf("pressure: %s\n", std::string{to_string(change.to)}.c_str());
  };
  if (!guard.register_hook({.name = "cache", .estimated_free_bytes = 48 << 20, .callback = evict})) return 1;
  if (!guard.add_pressure_listener(told)) return 1;

  auto batch = guard.safe_alloc_with_hooks<float>(10 << 20);  // 40 MiB: the cache gives way
  std::puts(guard.to_string().c_str());
  // [readme]
  return batch && cache.size() == 1 && guard.manager().audit().clean() ? 0 : 1;
}
