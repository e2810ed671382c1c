#include "ledger/waiting.hpp"

#include <algorithm>
#include <bit>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/test_wait.hpp"

namespace headroom::ledger {
namespace {

// The futex is the low half of the epoch. Private: the key is the address in this process, whatever backs the page.
std::uint32_t* futex_of(flight::Word& epoch_word) noexcept {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<std::uint32_t*>(&epoch_word);
}

}  // namespace

void sleep_on_epoch(flight::Word& epoch_word, std::uint64_t seen, std::chrono::steady_clock::time_point deadline) noexcept {
  test_point(TestPoint::wait_before_sleep);
  using namespace std::chrono;
  const auto left = duration_cast<nanoseconds>(deadline - steady_now()).count();
  if (left <= 0) return;
  if constexpr (kTestPoints) {
    // As the kernel would: no sleep once the word has moved.
    const auto present = static_cast<std::uint32_t>(epoch_word.load(std::memory_order_seq_cst));
    if (present == static_cast<std::uint32_t>(seen) && test_sleep(&epoch_word, deadline)) return;
  }
  timespec relative{};
  relative.tv_sec = static_cast<time_t>(std::min<std::int64_t>(left / 1'000'000'000, INT_MAX));
  relative.tv_nsec = static_cast<long>(left % 1'000'000'000);
  syscall(SYS_futex, futex_of(epoch_word), FUTEX_WAIT_PRIVATE, static_cast<std::uint32_t>(seen), &relative, nullptr, 0);
}

void wake_all(flight::Word& epoch_word) noexcept {
  test_wake(&epoch_word);
  syscall(SYS_futex, futex_of(epoch_word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace headroom::ledger
