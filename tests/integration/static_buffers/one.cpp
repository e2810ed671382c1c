// Static buffers and a static manager in two translation units (case S66): whichever end first, and however the process ends, its
// exit status is the one that it chose, and it says nothing.
//
//   static_buffers HOW       HOW: return, exit, quick_exit, thread, quick_thread, abandoned
//
// Exits with 7; with 1 when the memory that was taken before main is not what it should be, with 2 when HOW is unknown.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "two.hpp"

namespace {

constexpr int kChosen = 7;
constexpr std::uint64_t kBytesOfOne = 200;

// A buffer whose static is older than any manager: its memory outlives the manager's last handle.
headroom::TrackedBuffer<std::byte>& oldest() {
  static headroom::TrackedBuffer<std::byte> buffer;
  return buffer;
}
[[maybe_unused]] auto const& made_first = oldest();

// Made here before the manager's own translation unit had its turn, or after it: destroyed after the manager, or before it.
auto held_by_one = static_manager().alloc<std::byte>(kBytesOfOne).value();

[[noreturn]] void end_on_a_thread(void (*end)(int)) {
  std::thread{[end] { end(kChosen); }}.detach();
  for (;;) std::this_thread::sleep_for(std::chrono::seconds{1});
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view how = count > 1 ? arguments[1] : "";
  auto& manager = static_manager();
  if (manager.allocated_bytes() != kBytesOfOne + kBytesOfTwo) return 1;
  oldest() = manager.alloc<std::byte>(100).value();
  if (manager.alloc<std::byte>(1)) return 1;  // the budget of 1000 is spent by three statics
  if (!held_by_one.release()) return 1;       // taken before main, freed in it
  held_by_one = manager.alloc<std::byte>(kBytesOfOne).value();
  if (manager.allocated_bytes() != 1000 || !manager.audit().clean()) return 1;
  if (how == "return") return kChosen;
  if (how == "exit") std::exit(kChosen);
  if (how == "quick_exit") std::quick_exit(kChosen);
  if (how == "thread") end_on_a_thread([](int status) { std::exit(status); });
  if (how == "quick_thread") end_on_a_thread([](int status) { std::quick_exit(status); });
  if (how == "abandoned") {
    // Threads that still allocate while the statics go.
    for (int i = 0; i < 2; ++i) {
      std::thread{[copy = manager]() mutable {
        for (;;) static_cast<void>(copy.alloc<std::byte>(1));
      }}.detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    std::exit(kChosen);
  }
  return 2;
}
