#include "thread_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include <headroom/follow_words.hpp>

namespace headroom::viewer {
namespace {

constexpr std::size_t kMostWaiting = 64;  // no more threads than that have a lane

class Threads {
public:
  explicit Threads(follow::Model const& model)
      : model_{model}, now_{model.source().now_ticks()}, is_living_{model.source().liveness() != flight::Liveness::dead} {}

  void take_lanes() {
    auto const operations = model_.source().in_flight();
    for (auto const& lane : model_.source().lanes()) {
      if (!lane.owned) continue;
      ThreadRow row{.thread = lane.thread,
                    .name = lane.thread_name,
                    .doing = "idle",
                    .lane = lane.lane,
                    .events = lane.main_head,
                    .journal_events = lane.journal_head};
      auto const operation = std::ranges::find(operations, lane.lane, &flight::InFlightOperation::lane);
      if (operation != operations.end() && operation->operation != flight::InFlight::none) begin(row, *operation);
      rows_.push_back(std::move(row));
    }
  }

  void take_hooks() {
    for (auto const& hook : model_.source().hooks()) {
      if (!hook.running_since_ticks) continue;
      auto& row = row_of(hook.running_thread);
      auto const age = age_of(*hook.running_since_ticks);
      auto text = "running hook '" + hook.name + '\'';
      if (hook.limit_ns != 0) text += " (limit " + follow::duration_in_words(hook.limit_ns) + ')';
      row.doing = row.is_idle ? std::move(text) : std::move(text) + ", in it " + row.doing;
      row.is_slow = row.is_slow || (hook.limit_ns != 0 && age > hook.limit_ns);
      row.since_ns = shown(age);
      row.is_idle = false;
    }
  }

  /// Who waits for room, for the checkpoint callback, or for another thread's run of a hook.
  void take_shortages() {
    for (auto const& story : model_.failures(kMostWaiting)) {
      auto const is_under_way = story.end == follow::FailureEnd::under_way && story.doing && !story.incomplete;
      if (!is_under_way) continue;
      auto& row = row_of(model_.source().thread_id(story.thread));
      if (!row.is_idle) continue;
      row.doing = follow::shortage_in_words(*story.doing, story.requested);
      row.since_ns = shown(age_of(story.doing_since == 0 ? story.ticks : story.doing_since));
      row.manager = story.ledger_name;
      row.is_idle = false;
      row.is_slow = true;
    }
  }

  [[nodiscard]] std::vector<ThreadRow> take() && { return std::move(rows_); }

private:
  void begin(ThreadRow& row, flight::InFlightOperation const& operation) const {
    auto const age = age_of(operation.since_ticks);
    auto const* const book = model_.ledger(operation.ledger);
    // Of the dead the last operation never ended: it counts as slow, however long it took.
    row.is_slow = !is_living_ || age >= follow::kWaitsForDeviceNs;
    row.doing =
        follow::operation_in_words(operation.operation, operation.bytes,
                                   book != nullptr ? std::string_view{book->device_name} : std::string_view{}, row.is_slow);
    row.since_ns = shown(age);
    if (book != nullptr) row.manager = book->name;
    row.is_idle = false;
  }

  [[nodiscard]] std::uint64_t age_of(std::uint64_t ticks) const { return model_.duration_ns(now_ - std::min(now_, ticks)); }
  [[nodiscard]] std::optional<std::uint64_t> shown(std::uint64_t age) const {
    return is_living_ ? std::optional{age} : std::nullopt;
  }

  ThreadRow& row_of(std::uint64_t thread) {
    auto const found = std::ranges::find(rows_, thread, &ThreadRow::thread);
    if (found != rows_.end()) return *found;
    rows_.push_back({.thread = thread, .doing = "idle"});
    return rows_.back();
  }

  follow::Model const& model_;
  std::uint64_t now_;
  bool is_living_;
  std::vector<ThreadRow> rows_;
};

}  // namespace

std::vector<ThreadRow> thread_rows(follow::Model const& model) {
  Threads threads{model};
  threads.take_lanes();
  threads.take_hooks();
  threads.take_shortages();
  return std::move(threads).take();
}

std::uint64_t own_memory_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::uint64_t whole = 0;
  std::uint64_t resident = 0;
  if (!(file >> whole >> resident)) return 0;
  auto const page = sysconf(_SC_PAGESIZE);
  return page > 0 ? resident * static_cast<std::uint64_t>(page) : 0;
}

}  // namespace headroom::viewer
