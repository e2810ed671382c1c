#include "truncation_guard.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headroom::exporter {
namespace {

struct Slot {
  // Written under the registry's lock, read by the handler. `first` is stored last when a mapping comes (release, read with acquire, so
  // that its end is there) and first when it goes; 0 = free.
  std::atomic<std::uintptr_t> first{0};
  std::atomic<std::uintptr_t> end{0};
  // Set by the handler, release; read acquire by whoever read the pages: the fault came before, on its own thread.
  std::atomic<bool> damaged{false};
};

// Constant initialised, and never destroyed in a way that matters: the handler may run to the very end.
constinit std::array<Slot, kGuardedMappings> slots{};
// How many of them were ever used. Raised under the lock before a slot is, release; read by the handler, acquire.
constinit std::atomic<std::size_t> used{0};
constinit std::atomic<std::uintptr_t> page_bytes{0};  // written once, before the handler is installed; relaxed
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<std::size_t>::is_always_lock_free);

struct sigaction before{};  // whose signal it was; written once, before the handler can run

struct Registry {
  std::mutex mutex;
  std::vector<std::size_t> free;
  std::map<std::uintptr_t, std::size_t> by_address;
};
/// Leaked: mappings may be let go by statics that are destroyed late.
Registry& registry() {
  static auto* const it = new Registry;
  return *it;
}

/// A slot, until it is let go.
struct Registration {
  static constexpr std::size_t kNone = kGuardedMappings;
  std::size_t index = kNone;
  std::uintptr_t first = 0;

  Registration() = default;
  Registration(Registration const&) = delete;
  Registration& operator=(Registration const&) = delete;
  ~Registration() {
    if (index == kNone) return;
    Registry& all = registry();
    const std::lock_guard lock{all.mutex};
    slots[index].first.store(0, std::memory_order_release);
    all.by_address.erase(first);
    all.free.push_back(index);
  }
};

/// Puts zeros under `address` if it belongs to a registered mapping.
bool mend(std::uintptr_t address) noexcept {
  const std::size_t count = used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = slots[i];
    const auto first = slot.first.load(std::memory_order_acquire);
    if (first == 0 || address < first || address >= slot.end.load(std::memory_order_relaxed)) continue;
    slot.damaged.store(true, std::memory_order_release);
    const auto page = page_bytes.load(std::memory_order_relaxed);
    void* const at = reinterpret_cast<void*>(address & ~(page - 1));  // NOLINT(performance-no-int-to-ptr)
    // Two threads that meet the same page each put one there: both are zeros.
    // The system call itself: what a sanitizer does around mmap() has no place in a signal handler, and would take the new page for a
    // write that races with those who read it.
    const long mapped = syscall(SYS_mmap, at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    return static_cast<std::uintptr_t>(mapped) == (address & ~(page - 1));
  }
  return false;
}

extern "C" void on_bus_error(int number, siginfo_t* info, void* context) {
  if (info->si_code == BUS_ADRERR && mend(reinterpret_cast<std::uintptr_t>(info->si_addr))) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  // The access is made again as soon as this returns, and ends the process as it would have without us.
  (void)sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

bool install_truncation_guard() noexcept {
  static const bool installed = [] {
    page_bytes.store(static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), std::memory_order_relaxed);
    if (sigaction(SIGBUS, nullptr, &before) != 0) return false;
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    // On whatever stack there is; the signal stays blocked meanwhile, so that a fault in the handler ends the process.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  return installed;
}

std::shared_ptr<void const> guard_mapping(std::span<const std::byte> mapping) {
  auto registration = std::make_shared<Registration>();
  const auto first = reinterpret_cast<std::uintptr_t>(mapping.data());
  Registry& all = registry();
  const std::lock_guard lock{all.mutex};
  const std::size_t count = used.load(std::memory_order_relaxed);
  if (all.free.empty() && count == kGuardedMappings) return nullptr;
  const std::size_t index = all.free.empty() ? count : all.free.back();
  all.free.reserve(count + 1);  // so that letting go needs no memory
  all.by_address[first] = index;
  if (all.free.empty()) {
    used.store(count + 1, std::memory_order_release);
  } else {
    all.free.pop_back();
  }
  registration->index = index;
  registration->first = first;
  slots[index].damaged.store(false, std::memory_order_relaxed);
  slots[index].end.store(first + mapping.size(), std::memory_order_relaxed);
  slots[index].first.store(first, std::memory_order_release);
  return registration;
}

bool is_damaged(std::byte const* first) noexcept {
  Registry& all = registry();
  const std::lock_guard lock{all.mutex};
  const auto found = all.by_address.find(reinterpret_cast<std::uintptr_t>(first));
  return found != all.by_address.end() && slots[found->second].damaged.load(std::memory_order_acquire);
}

}  // namespace headroom::exporter
