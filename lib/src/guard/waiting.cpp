// Recovery's wait: tried again whenever there may be room, until the deadline.
//
// For its own budget a request announces itself in the ledger before each try, and sleeps on the ledger's epoch: no give-back is missed
// (ledger/waiting.hpp). For a budget or a device below nothing signals. Such a request sleeps on the guard's own word instead, which
// moves with budget and policy: its tries claim bytes and give them back, and on the ledger's epoch two of them would wake each other
// for ever.
#include <algorithm>

#include "base/test_wait.hpp"
#include "guard/recovery.hpp"
#include "ledger/waiting.hpp"

namespace headroom::guard {
namespace {

using namespace std::chrono_literals;
using Waiting = ledger::WaitProtocol<StdAtomics>;

constexpr std::chrono::nanoseconds kShortestPause = 1ms;
constexpr std::chrono::nanoseconds kLongestPause = 50ms;

// In the ledger's count of waiters, for as long as it lives.
class Announced {
public:
  explicit Announced(flight::LedgerCell& cell) noexcept : cell_{cell} { Waiting::announce(cell_.waiters); }
  ~Announced() { Waiting::leave(cell_.waiters); }
  Announced(Announced const&) = delete;
  Announced& operator=(Announced const&) = delete;
  [[nodiscard]] std::uint64_t epoch() const noexcept { return Waiting::epoch(cell_.epoch); }
  void sleep(std::uint64_t seen, std::chrono::steady_clock::time_point deadline) const noexcept {
    ledger::sleep_on_epoch(cell_.epoch, seen, deadline);
  }

private:
  flight::LedgerCell& cell_;
};

}  // namespace

bool Recovery::by_waiting() {
  if (can_never_fit()) return false;
  flight::LedgerTallies& tallies = core_->ledger().tallies();
  tallies.policy_waits.fetch_add(1, std::memory_order_relaxed);
  // From the refusal, as the deadline; what hooks took was their time.
  const auto begin = request_.hooks ? steady_now() : started_;
  record_begin(flight::PolicyStep::waited);
  bool granted = false;
  std::chrono::nanoseconds pause = kShortestPause;
  for (;;) {
    const std::uint64_t changes = core_->changes().load(std::memory_order_seq_cst);
    std::optional<Announced> announced{std::in_place, core_->ledger().cell()};
    test_point(TestPoint::wait_before_epoch);
    const std::uint64_t epoch = announced->epoch();
    // Read after both words: whoever changes it moves them afterwards.
    policy_ = core_->policy();
    if (policy_.kind() != OomPolicy::Kind::wait_and_retry) break;
    // Read before the try: what comes back until the deadline is tried for.
    const bool last_try = steady_now() >= started_ + policy_.timeout();
    granted = try_again();
    if (granted || broken_ || last_try || can_never_fit()) break;
    if (short_of_own_budget()) {
      announced->sleep(epoch, started_ + policy_.timeout());
      continue;
    }
    announced.reset();
    ledger::sleep_on_epoch(core_->changes(), changes, std::min(steady_now() + pause, started_ + policy_.timeout()));
    pause = std::min(pause * 2, kLongestPause);
  }
  const auto waited = steady_now() - begin;
  tried_.waited = waited;
  tallies.policy_wait_ns.fetch_add(static_cast<std::uint64_t>(waited.count()), std::memory_order_relaxed);
  record(flight::PolicyStep::waited, waited, bytes(), granted);
  return granted;
}

}  // namespace headroom::guard
