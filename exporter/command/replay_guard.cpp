#include "command/replay_guard.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <mutex>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/arguments.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

tl::unexpected<Error> wrong(std::string_view text, std::string const& expected) {
  return fail(ErrorKind::invalid_argument, Layer::request, "'" + printable(text) + "'; expected " + expected);
}

// What stands before the next colon, which goes as well; the rest when there is none.
std::string_view take_field(std::string_view& text) noexcept {
  const auto colon = text.find(':');
  const auto field = text.substr(0, colon);
  text = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  return field;
}

}  // namespace

Result<HookPlan> parse_hook(std::string_view text) {
  const std::string expected = "NAME:SIZE:PRIORITY or NAME:SIZE:PRIORITY:OVERHEAD, such as cache:2GiB:1";
  const auto colons = std::ranges::count(text, ':');
  if (colons < 2 || colons > 3) return wrong(text, expected);
  std::string_view rest = text;
  HookPlan hook;
  hook.name = take_field(rest);
  if (hook.name.empty()) return wrong(text, expected);
  const auto bytes = parse_byte_size(take_field(rest));
  if (!bytes) return tl::unexpected{bytes.error()};
  hook.bytes = *bytes;
  const std::string_view priority = take_field(rest);
  const auto [end, failed] = std::from_chars(priority.data(), priority.data() + priority.size(), hook.priority);
  if (failed != std::errc{} || end != priority.data() + priority.size()) {
    return wrong(priority, "a priority: a whole number of 32 bits, low first");
  }
  if (colons == 3) {
    const auto overhead = parse_byte_size(rest);
    if (!overhead) return tl::unexpected{overhead.error()};
    hook.overhead_bytes = *overhead;
  }
  return hook;
}

Result<OomPolicy> parse_policy(std::string_view text) {
  if (text == "fail") return OomPolicy::fail();
  if (text == "retry") return OomPolicy::retry_after_free();
  if (text == "checkpoint") return OomPolicy::checkpoint_and_fail();
  if (text.starts_with("wait:")) {
    constexpr std::uint64_t kDay = 86'400'000;
    const auto milliseconds = parse_count(text.substr(5), 0);
    if (milliseconds && *milliseconds <= kDay) return OomPolicy::wait_and_retry(std::chrono::milliseconds{*milliseconds});
  }
  return wrong(text, "fail or retry or wait:MS (milliseconds, at most a day) or checkpoint");
}

/// Of all hooks of one guard. What a hook frees is for the request that is short: nobody takes it back before the hook is done.
class ReplayGuard::Refills {
public:
  class HookRuns {
  public:
    explicit HookRuns(Refills& refills) noexcept : refills_{refills} { refills_.running_.fetch_add(1); }
    ~HookRuns() { refills_.running_.fetch_sub(1); }
    HookRuns(HookRuns const&) = delete;
    HookRuns& operator=(HookRuns const&) = delete;

  private:
    Refills& refills_;
  };

  /// Whether caches may take memory now: with no pressure, or because they could not when there was none.
  [[nodiscard]] bool may_fill(PressureLevel level) noexcept {
    const bool wanted = level == PressureLevel::none || due_.load();
    const bool may = wanted && running_.load() == 0;
    due_.store(wanted && !may);
    return may;
  }

private:
  // Any thread; seq_cst, since nothing here is hot.
  std::atomic<std::uint32_t> running_{0};  // hooks that run now
  std::atomic<bool> due_{false};           // put off to the next change
};

/// The memory of one hook.
class ReplayGuard::Holder {
public:
  Holder(HookPlan plan, GpuMemoryManager manager, std::shared_ptr<Refills> refills)
      : plan_{std::move(plan)}, tag_{plan_.name}, manager_{std::move(manager)}, refills_{std::move(refills)} {}

  /// Takes blocks until it holds all, or is refused.
  Result<void> fill() {
    for (;;) {
      std::uint64_t bytes = 0;
      {
        const std::scoped_lock lock{mutex_};
        bytes = std::min(kBlockBytes, plan_.bytes - held_);
        held_ += bytes;  // asked for: nobody else asks for the same
      }
      if (bytes == 0) return {};
      auto block = manager_.alloc<std::byte>(bytes, tag_);
      const std::scoped_lock lock{mutex_};
      if (!block) {
        held_ -= bytes;
        return tl::unexpected{std::move(block.error())};
      }
      blocks_.push_back(std::move(*block));
    }
  }
  /// … as far as there is room: a cache that grows asks for nothing that would be refused.
  void fill_again() {
    std::uint64_t missing = 0;
    {
      const std::scoped_lock lock{mutex_};
      missing = plan_.bytes - held_;
    }
    if (missing != 0 && manager_.check_budget(missing)) static_cast<void>(fill());
  }

  std::uint64_t free_oldest(std::uint64_t wanted) {
    std::uint64_t freed = 0;
    while (freed < wanted) {
      TrackedBuffer<std::byte> block;
      {
        const std::scoped_lock lock{mutex_};
        if (blocks_.empty()) return freed;
        block = std::move(blocks_.front());
        blocks_.pop_front();
        held_ -= block.size_bytes();
      }
      const std::uint64_t bytes = block.size_bytes();
      if (block.release()) freed += bytes;  // what the device does not take back is counted as a failed free
    }
    return freed;
  }

  [[nodiscard]] OomHook hook(std::shared_ptr<Holder> self) const {
    return {.name = plan_.name,
            .priority = plan_.priority,
            .estimated_free_bytes = plan_.bytes,
            .execution_overhead_bytes = plan_.overhead_bytes,
            .callback = [self = std::move(self)](HookContext const& context) {
              const Refills::HookRuns runs{*self->refills_};
              return self->free_oldest(context.shortfall_bytes);
            }};
  }

private:
  const HookPlan plan_;
  const AllocTag tag_;
  GpuMemoryManager manager_;
  const std::shared_ptr<Refills> refills_;
  std::mutex mutex_;  // the two below; never held over a call into the manager
  std::deque<TrackedBuffer<std::byte>> blocks_;
  std::uint64_t held_ = 0;
};

ReplayGuard::ReplayGuard(MemoryGuard const& guard) : guard_{guard} {}
ReplayGuard::~ReplayGuard() = default;

Result<std::unique_ptr<ReplayGuard>> ReplayGuard::make(GpuMemoryManager const& manager, std::vector<HookPlan> const& hooks,
                                                       OomPolicy policy) {
  auto guard = MemoryGuardBuilder(manager).oom_policy(policy).build();
  if (!guard) return tl::unexpected{std::move(guard.error())};
  // So that runs are counted: a replay has nothing of its own to store.
  guard->on_oom([] {});
  std::unique_ptr<ReplayGuard> made{new ReplayGuard{*guard}};
  const auto refills = std::make_shared<Refills>();
  for (HookPlan const& plan : hooks) {
    const bool twice = std::ranges::count(hooks, plan.name, &HookPlan::name) > 1;
    if (twice) return wrong(plan.name, "each hook's name once");
    auto holder = std::make_shared<Holder>(plan, manager, refills);
    if (auto filled = holder->fill(); !filled) return tl::unexpected{std::move(filled.error())};
    if (auto added = guard->register_hook(holder->hook(holder)); !added) return tl::unexpected{std::move(added.error())};
    made->holders_.push_back(std::move(holder));
  }
  if (hooks.empty()) return made;
  auto listening = guard->add_pressure_listener([holders = made->holders_, refills](PressureChange const& change) {
    if (!refills->may_fill(change.to)) return;
    for (auto const& holder : holders) holder->fill_again();
  });
  if (!listening) return tl::unexpected{std::move(listening.error())};
  return made;
}

}  // namespace headroom::command
