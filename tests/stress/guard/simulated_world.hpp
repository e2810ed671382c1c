// What the threads of one simulated program share: one guard over a small device, hooks and listeners that do all that they may, and
// counters of the test's own, which are compared with the guard's when everything has ended.
//
//   guard ─▶ manager ─▶ counted device (independent count of live bytes) ─▶ host (faults on purpose)
//
// One thread runs at a time (schedule.hpp), and turns change only inside calls of the library and in steps: what stands here needs no
// lock, but whoever takes a buffer out of a list takes it out before it calls the library.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/resource_decorator.hpp>

#include "guards.hpp"
#include "schedule.hpp"

namespace headroom::test {

/// Counts what the device gave and took back, on its own, and asks before each block whether the budget allowed it.
class CountedDevice final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "counted";
  explicit CountedDevice(InnerResource inner) : ResourceDecorator{std::move(inner)} {}
  Result<Block> allocate(AllocRequest const& request) override;
  Result<void> deallocate(Block const& block) override;

  std::uint64_t live = 0;     ///< bytes
  std::uint64_t refused = 0;  ///< of them: their free was refused at least once, and the block is still there
  std::uint64_t outside = 0;  ///< of live: a reservation that the budget does not count
  std::uint64_t most = 0;     ///< of live
  std::uint64_t blocks = 0, refusals = 0;
  bool next_is_outside = false;  ///< the next block is that reservation
  /// The largest limit that may have judged the block that is being allocated by the present thread. Empty: any.
  std::function<std::uint64_t()> most_allowed;

private:
  struct Refused {
    void const* pointer;
    std::uint64_t generation;
  };
  std::vector<Refused> refused_;
  Refused outside_block_{};
};

/// One simulated thread.
struct Actor {
  explicit Actor(std::uint64_t seed) : random{seed} {}
  Random random;
  std::vector<Bytes> held;
  std::vector<GpuMemoryReservation> tokens;
  std::vector<ListenerId> listeners;
  std::uint64_t waits_for = 0;     ///< bytes of the request that it makes now, the innermost; 0 = none
  std::uint64_t most_allowed = 0;  ///< the largest limit since its outermost request began
  int hooks = 0;                   ///< how many hooks it is in: 0 or 1
  int callbacks = 0;
};

/// Counted by the test itself.
struct Counted {
  std::uint64_t failures = 0;  ///< requests that returned an error
  std::uint64_t broken = 0;    ///< … whose later try met another error, which is a refusal of its own
  std::uint64_t grants = 0;
  std::uint64_t reserve_failures = 0;
  std::uint64_t hook_runs = 0, hook_throws = 0, hook_freed = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t notices = 0;
  std::uint64_t written_off = 0;
  std::uint64_t released = 0;  ///< reservations, in bytes, by release_reservation()
  std::uint64_t operations = 0;
};

class SimulatedWorld {
public:
  SimulatedWorld(Schedule& schedule, std::uint64_t seed);
  ~SimulatedWorld();
  SimulatedWorld(SimulatedWorld const&) = delete;
  SimulatedWorld& operator=(SimulatedWorld const&) = delete;

  /// The program of one thread: a few operations, chosen by its random numbers.
  void act(std::size_t index);
  /// Of every thread asleep: none may wait for room that there is, or under a policy that does not wait.
  void check_sleepers();
  /// After all threads ended: what is left is given back, and everything must balance.
  void finish();
  [[nodiscard]] std::size_t actors() const noexcept { return actors_.size(); }
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] Counted const& counted() const noexcept { return counted_; }
  [[nodiscard]] CountedDevice const& device() const noexcept { return *device_; }
  /// As they were when all threads had ended. After finish().
  [[nodiscard]] GuardStats const& stats() const noexcept { return end_stats_; }

private:
  struct HookState {
    explicit HookState(SimulatedWorld& of) : world{of} {}
    // Freed by whoever drops the last reference, which may be a hook that removed this one.
    ~HookState() {
      if (!cache.empty()) world.knows_hook_freed_ = false;
    }
    HookState(HookState const&) = delete;
    HookState& operator=(HookState const&) = delete;
    SimulatedWorld& world;
    std::string name{};
    std::deque<Bytes> cache{};
  };
  // The thread's own scope of one operation: which limits may have judged it.
  class Operation;

  [[nodiscard]] Actor& me() { return *actors_[static_cast<std::size_t>(Schedule::self())]; }
  [[nodiscard]] std::uint64_t any_size(Random& random) const { return 64 * (1 + random.below(budget_ / 128)); }
  void one_operation(Actor& actor);
  void allocate(Actor& actor);
  void take_in(Result<Bytes> result, std::vector<Bytes>& into);
  void note_failure(Error const& error);
  void free_one(std::vector<Bytes>& from);
  void give_back(Bytes buffer);
  void reserve(Actor& actor);
  void register_hook(Actor& actor);
  std::uint64_t run_hook(HookState& hook, HookContext const& context);
  void add_listener(Actor& actor);
  void hear(std::shared_ptr<std::optional<ListenerId>> const& id, std::uint64_t kind);
  void set_callback(Actor& actor);
  void checkpoint();
  void set_budget(std::uint64_t bytes);
  void set_policy(Random& random);
  void inject(Random& random);
  void under_the_lock(Actor& actor);
  void allocate_inside(Random& random, std::vector<Bytes>& into);

  Schedule& schedule_;
  Random random_;  // of callbacks, which run on any thread
  std::uint64_t budget_;
  std::shared_ptr<HostResource> host_;
  std::shared_ptr<CountedDevice> device_;
  std::optional<MemoryGuard> guard_;
  std::optional<GpuMemoryManager> manager_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<Bytes> shelf_;
  int lock_owner_ = -1;  // a lock of the program, which hooks take and threads hold while they allocate
  int hook_names_ = 0;
  std::uint64_t listener_acts_ = 0;
  bool fills_fail_ = false;
  bool wrote_off_ = false;
  bool has_emergency_ = false;
  std::uint64_t largest_limit_ = 0;  // of all that there were; ~0 once it was unlimited
  bool knows_hook_freed_ = true;     // counted_.hook_freed is all that hooks freed
  Counted counted_;
  GuardStats end_stats_;
};

class SimulatedWorld::Operation {
public:
  Operation(SimulatedWorld& world, Actor& actor, std::uint64_t bytes)
      : actor_{actor}, outer_{std::exchange(actor.waits_for, bytes)} {
    if (outer_ != 0) return;  // a callback's: limits count since the outermost request began
    const std::uint64_t limit = world.guard_->budget();
    actor_.most_allowed = limit == 0 ? ~std::uint64_t{0} : limit;
  }
  ~Operation() { actor_.waits_for = outer_; }
  Operation(Operation const&) = delete;
  Operation& operator=(Operation const&) = delete;

private:
  Actor& actor_;
  std::uint64_t const outer_;  // bytes of the request that a callback of which makes this one; 0 = none
};

}  // namespace headroom::test
