#include "guard/checkpoint.hpp"

#include <new>
#include <string>
#include <utility>

#include "base/test_wait.hpp"
#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "guard/callback_scope.hpp"
#include "guard/deadline.hpp"
#include "ledger/waiting.hpp"
#include "manager/errors.hpp"

namespace headroom::guard {
namespace {

// How many checkpoint callbacks this thread is in: one guard's may make another guard's request fail.
thread_local constinit std::uint32_t depth = 0;

struct Inside {
  Inside() noexcept { ++depth; }
  ~Inside() { --depth; }
  Inside(Inside const&) = delete;
  Inside& operator=(Inside const&) = delete;
  CallbackScope scope{headroom::guard::Callback::checkpoint};
};

}  // namespace

bool inside_checkpoint() noexcept { return depth != 0; }

Result<void> Checkpoint::set(std::function<void()> callback) {
  // The mutex may have been held, at the fork, by a thread that the child does not have; nothing is allocated there anyway.
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  std::shared_ptr<Callback const> next;
  try {
    if (callback) next = std::make_shared<Callback const>(std::move(callback));
  } catch (std::bad_alloc const&) {
    return fail(ErrorKind::io, Layer::guard,
                words([] { return std::string{"the system has no memory for another callback: the one before stays"}; }));
  }
  const std::scoped_lock lock{mutex_};
  std::swap(callback_, next);  // the one before is destroyed after the lock: `next` was declared first
  return success();
}

Checkpoint::Outcome Checkpoint::run(std::uint64_t mark, std::chrono::nanoseconds limit,
                                    std::function<void()> const& before) noexcept {
  std::shared_ptr<Callback const> callback;
  std::uint64_t shared_run = 0;
  // Here and after the call, which may fork: as in set().
  if (flight::in_forked_child()) return Outcome::none;
  {
    const std::scoped_lock lock{mutex_};
    if (callback_ == nullptr) return Outcome::none;
    const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
    if (running_ || begun > mark) {
      shared_run = begun;
    } else {
      running_ = true;
      begun_.store(begun + 1, std::memory_order_release);
      callback = callback_;
    }
  }
  if (before) before();
  if (callback == nullptr) return wait_for_end(shared_run, limit) ? Outcome::shared : Outcome::busy;

  Outcome outcome = Outcome::ran;
  try {
    const Inside inside;
    (*callback)();
  } catch (...) {
    outcome = Outcome::threw;
  }
  if (flight::in_forked_child()) return outcome;
  {
    const std::scoped_lock lock{mutex_};
    running_ = false;
    ended_.store(begun_.load(std::memory_order_relaxed), std::memory_order_release);
  }
  ledger::wake_all(ended_);
  // What may be the last reference goes under no lock, and outside the callback's scope.
  callback.reset();
  return outcome;
}

bool Checkpoint::wait_for_end(std::uint64_t run, std::chrono::nanoseconds limit) noexcept {
  const auto deadline = after(steady_now(), limit);
  for (;;) {
    const std::uint64_t ended = ended_.load(std::memory_order_acquire);
    if (ended >= run) return true;
    // The run may be waiting for this very thread.
    if (inside_callback() || steady_now() >= deadline) return false;
    ledger::sleep_on_epoch(ended_, ended, deadline);
  }
}

}  // namespace headroom::guard
