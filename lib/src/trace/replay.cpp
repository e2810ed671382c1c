#include <headroom/replay.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <headroom/byte_size.hpp>

#include "trace/replay_loops.hpp"
#include "trace/replay_pace.hpp"
#include "trace/replay_player.hpp"
#include "trace/replay_steps.hpp"

namespace headroom {

struct ReplayResult::LiveSet {
  std::vector<trace::Slot> slots;
};

ReplayResult::ReplayResult(ReplayFigures figures, std::optional<ReplayRefusal> first_refusal,
                           std::unique_ptr<LiveSet> live) noexcept
    : figures_{figures}, first_refusal_{std::move(first_refusal)}, live_{std::move(live)} {}
ReplayResult::ReplayResult(ReplayResult&&) noexcept = default;
ReplayResult& ReplayResult::operator=(ReplayResult&&) noexcept = default;
ReplayResult::~ReplayResult() = default;

namespace {

[[nodiscard]] Result<void> check(TraceHistory::Data const& data, GpuMemoryManager const& manager, ReplayOptions const& options) {
  auto const refuse = [](ErrorKind kind, std::string message) { return fail(kind, Layer::request, std::move(message)); };
  if (options.loops == 0) return refuse(ErrorKind::invalid_argument, "0 loops; expected at least 1");
  auto const is_speed = !options.speed || (std::isfinite(*options.speed) && *options.speed > 0);
  if (!is_speed) {
    return refuse(ErrorKind::invalid_argument, "speed " + std::to_string(*options.speed) + "; expected a number above 0");
  }
  if (options.guard && options.guard->manager().ledger_cell() != manager.ledger_cell()) {
    return refuse(ErrorKind::invalid_argument, "the guard is of the manager '" + options.guard->manager().name() +
                                                   "'; expected one of '" + manager.name() + "'");
  }
  if (options.stretch && options.stretch->count() <= 0) {
    return refuse(ErrorKind::invalid_argument, "a loop stretched to nothing; expected a time above 0");
  }
  if (data.thread_ids.size() > kMaxReplayThreads) {
    return refuse(ErrorKind::unsupported, data.name + ": " + format_count(data.thread_ids.size()) +
                                              " recorded threads; a replay runs at most " + format_count(kMaxReplayThreads));
  }
  return {};
}

/// File order reuses slots; in free order every allocation has its own.
[[nodiscard]] std::size_t slots_needed(TraceHistory::Data const& data, ReplayOrder order) {
  // Steps without a slot name slot 0.
  if (order == ReplayOrder::file) return std::max<std::size_t>(data.slots, 1);
  auto const is_allocation = [](trace::Step const& step) { return step.what() == trace::StepAction::allocate; };
  return std::max<std::size_t>(static_cast<std::size_t>(std::ranges::count_if(data.steps, is_allocation)), 1);
}

}  // namespace

Result<ReplayResult> replay(TraceHistory const& history, GpuMemoryManager manager, ReplayOptions const& options) {
  auto const& data = history.data();
  if (auto const good = check(data, manager, options); !good) return tl::unexpected{good.error()};

  trace::Player player{data, std::move(manager), options};
  trace::Pace pace{data, options};
  trace::Loops loops{data, player, pace, options, slots_needed(data, options.order)};
  auto const ran = options.order == ReplayOrder::file ? run_in_file_order(data, player, pace, loops, options.progress)
                                                      : run_in_free_order(data, player, pace, loops, options.progress);
  if (!ran) return tl::unexpected{ran.error()};

  auto const figures = loops.finish();
  auto live = std::make_unique<ReplayResult::LiveSet>(ReplayResult::LiveSet{std::move(loops.slots())});
  return ReplayResult{figures, loops.take_first_refusal(), std::move(live)};
}

}  // namespace headroom
