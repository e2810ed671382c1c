#include "device/nvml_session.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

#include <pthread.h>

namespace headroom::device::nvml {
namespace {

/// Sessions that are open, or being opened or closed: raised before NVML is started, lowered after it was ended. Any thread; relaxed,
/// since the only reader who decides by it is alone: the child of a fork.
std::atomic<std::uint32_t> sessions{0};
/// Written in a forked child before it has a second thread; relaxed, since every thread of the child is made later.
std::atomic<bool> inherited{false};

void after_fork_in_child() {
  if (sessions.load(std::memory_order_relaxed) != 0) inherited.store(true, std::memory_order_relaxed);
}

/// Before the first session, so that no fork goes unseen. Where it fails, for want of memory, forks do.
void watch_forks() {
  static int const outcome = pthread_atfork(nullptr, nullptr, &after_fork_in_child);
  static_cast<void>(outcome);
}

}  // namespace

bool usable_after_fork() noexcept { return !inherited.load(std::memory_order_relaxed); }

Session::Session(Table const& table, bool is_started) noexcept : table_(&table), is_started_(is_started) {}

Session::Session(Session&& other) noexcept : table_(std::exchange(other.table_, nullptr)), is_started_(other.is_started_) {}

Session& Session::operator=(Session&& other) noexcept {
  if (this != &other) {
    close();
    table_ = std::exchange(other.table_, nullptr);
    is_started_ = other.is_started_;
  }
  return *this;
}

Session::~Session() { close(); }

void Session::close() noexcept {
  auto const* const table = std::exchange(table_, nullptr);
  // What a child inherited is the parent's to end.
  if (table == nullptr || !usable_after_fork()) return;
  // An end that fails leaves NVML open, which harms nobody; there is nobody to tell either.
  if (is_started_) static_cast<void>(table->shutdown());
  sessions.fetch_sub(1, std::memory_order_relaxed);
}

Result<Session> Session::open(Table const& table) {
  watch_forks();
  if (!usable_after_fork()) {
    return fail(ErrorKind::unsupported, Layer::driver,
                "this process was forked while NVML was open in its parent; close the session before the fork, or exec");
  }
  sessions.fetch_add(1, std::memory_order_relaxed);
  auto const code = table.init();
  if (code == kSuccess) return Session{table, true};
  // nvmlInit_v2 fails where there is a driver, but no GPU.
  if (code == kNotFound || code == kGpuNotFound) return Session{table, false};
  sessions.fetch_sub(1, std::memory_order_relaxed);
  return failure(code, "starting NVML");
}

Result<std::vector<GpuDevice>> Session::devices() const {
  if (!usable_after_fork()) {
    return fail(ErrorKind::unsupported, Layer::driver,
                "this process was forked after the session was opened; open NVML in the parent");
  }
  if (table_ == nullptr || !is_started_) return std::vector<GpuDevice>{};
  return read_devices(*table_);
}

}  // namespace headroom::device::nvml
