#include "node_followed.hpp"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "state_json.hpp"

namespace headroom::exporter {
namespace {

constexpr std::uint64_t kTicksPerReading = 4;  // of processes without stories

bool is_manager(flight::LedgerSnapshot const& ledger) { return !ledger.is_device_account; }

}  // namespace

NodeFollowed::NodeFollowed(Options options) : options_(std::move(options)) {
  if (!options_.is_whole) options_.is_whole = [](flight::FlightView const&) { return true; };
  if (!options_.let_go) options_.let_go = [](flight::FlightView const&) {};
}

NodeFollowed::Process::Process(FileId file, std::uint64_t run_number, std::shared_ptr<flight::FlightView const> mapped)
    : id(file),
      run(run_number),
      name(state_id(mapped->process())),
      started_realtime_ns(mapped->process().start_realtime_ns),
      view(std::move(mapped)),
      followed(*view, false) {}

void NodeFollowed::count_failed(Result<void> const& read) noexcept {
  if (!read) errors_.fetch_add(1, std::memory_order_relaxed);
}

/// Whether what was just read can be trusted; `run`: as it was read.
bool NodeFollowed::is_whole(Process const& process, std::uint64_t run) const {
  return options_.is_whole(*process.view) && run == process.run;
}

void NodeFollowed::arrive(std::shared_ptr<flight::FlightView const> view, FileId id) {
  const auto run = view->process().run;
  auto process = std::make_shared<Process>(id, run, std::move(view));
  if (!options_.is_whole(*process->view)) return;
  const std::lock_guard lock{mutex_};
  if (living_.size() >= options_.limits.processes) return;
  process->phase = arrived_++ % kTicksPerReading;
  living_.try_emplace({id, run}, std::move(process));
}

void NodeFollowed::forget(Process const& process) {
  const std::lock_guard lock{mutex_};
  living_.erase({process.id, process.run});
}

std::vector<std::shared_ptr<NodeFollowed::Process>> NodeFollowed::living() const {
  std::vector<std::shared_ptr<Process>> list;
  {
    const std::lock_guard lock{mutex_};
    list.reserve(living_.size());
    for (auto const& [key, process] : living_) list.push_back(process);
  }
  std::ranges::sort(list, std::ranges::greater{},
                    [](auto const& process) { return std::tuple{process->started_realtime_ns, process->run, process->id}; });
  return list;
}

std::vector<std::shared_ptr<NodeFollowed::Ended const>> NodeFollowed::ended() const {
  const std::lock_guard lock{mutex_};
  return {ended_.begin(), ended_.end()};
}

NodeFollowed::LeftOut NodeFollowed::left_out() const {
  const std::lock_guard lock{mutex_};
  return left_out_;
}

// Who has stories ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Finds a place among those with stories, perhaps that of `loser`. People come before failures, and nobody is turned out for either who
/// was looked at a moment ago.
bool NodeFollowed::find_place(Process& process, Interest interest, Clock::time_point now, std::shared_ptr<Process>& loser) {
  const std::lock_guard lock{mutex_};
  if (process.has_place) return true;
  std::size_t places = 0;
  for (auto const& [key, other] : living_) {
    if (!other->has_place) continue;
    ++places;
    const auto last = interest == Interest::asked ? other->asked : std::max(other->asked, other->failed);
    const bool may_stay = last != Clock::time_point{} && now - last < options_.limits.keep_stories;
    const auto rank = [](Process const& one) { return std::max(one.asked, one.failed); };
    if (!may_stay && (!loser || rank(*other) < rank(*loser))) loser = other;
  }
  if (places < options_.limits.stories) {
    loser.reset();
  } else if (!loser) {
    return false;
  } else {
    loser->has_place = false;
  }
  process.has_place = true;
  return true;
}

bool NodeFollowed::take_place(Process& process, Interest interest, Clock::time_point now) {
  {
    const std::lock_guard lock{mutex_};
    (interest == Interest::asked ? process.asked : process.failed) = now;
  }
  if (process.followed.has_stories()) return true;
  const std::lock_guard opening{opening_};
  std::shared_ptr<Process> loser;
  if (!find_place(process, interest, now, loser)) return false;
  if (loser) loser->followed.end_stories();
  count_failed(process.followed.begin_stories());
  options_.let_go(*process.view);
  return true;
}

bool NodeFollowed::attend(Process& process, Clock::time_point now) { return take_place(process, Interest::asked, now); }

std::optional<Look> NodeFollowed::look(Process& process, Followed::LookOptions options) {
  auto look = process.followed.look(options);
  options_.let_go(*process.view);
  if (!is_whole(process, look.process.run)) {
    forget(process);
    return std::nullopt;
  }
  // A lock that would not be seen here tells nothing.
  const bool trusts_lock = process.trusts_lock.load(std::memory_order_relaxed);
  if (look.liveness == flight::Liveness::dead && !trusts_lock) look.liveness = flight::Liveness::unknown;
  return look;
}

// What happens ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

void NodeFollowed::tick(std::function<std::vector<NodeBooks::Known>()> const& known, Clock::time_point now) {
  // In this order: whoever arrives in between is known to the books before it is here.
  const auto before = living();
  learn(known(), before);

  const auto present = living();
  std::size_t used = 0;
  for (auto const& process : present) used += process->followed.last_reading().histories;
  std::size_t room = options_.limits.histories - std::min(used, options_.limits.histories);
  std::uint64_t without_past = 0;
  for (auto const& process : present) {
    const bool is_due = process->phase == turn_ % kTicksPerReading || !process->failures || process->followed.has_stories();
    try {
      if (is_due) sample(*process, now, room);
    } catch (std::exception const&) {
      errors_.fetch_add(1, std::memory_order_relaxed);
    }
    without_past += process->followed.last_reading().left_out;
  }
  ++turn_;
  const std::lock_guard lock{mutex_};
  left_out_.histories = without_past;
}

void NodeFollowed::sample(Process& process, Clock::time_point now, std::size_t& room) {
  const auto had = process.followed.last_reading().histories;
  process.followed.allow_histories(had + room);
  count_failed(process.followed.tick_at_rest());
  const auto reading = process.followed.last_reading();
  const bool has_failed = process.failures && reading.failures > *process.failures;
  process.failures = reading.failures;
  room = room + had - std::min(reading.histories, room + had);
  if (has_failed) static_cast<void>(take_place(process, Interest::failed, now));
  rest(process, now);
  const auto run = process.view->header().run;
  options_.let_go(*process.view);
  if (!is_whole(process, run)) forget(process);
}

/// Nobody has cared for its stories for a long time.
void NodeFollowed::rest(Process& process, Clock::time_point now) {
  if (!process.followed.has_stories()) return;
  const std::lock_guard opening{opening_};
  {
    const std::lock_guard lock{mutex_};
    if (now - std::max(process.asked, process.failed) < options_.limits.rest_stories) return;
    process.has_place = false;
  }
  process.followed.end_stories();
}

void NodeFollowed::learn(std::vector<NodeBooks::Known> const& known, std::vector<std::shared_ptr<Process>> const& before) {
  std::map<Key, NodeBooks::Known const*> by_key;
  std::set<Key> kept;
  for (auto const& one : known) {
    by_key.emplace(Key{one.id, one.run}, &one);
    if (one.ending) kept.emplace(one.id, one.run);
  }
  for (auto const& process : before) {
    const auto found = by_key.find({process->id, process->run});
    if (found == by_key.end()) {
      forget(*process);  // damaged, or its time is over
    } else if (auto const& ending = found->second->ending; !ending) {
      process->trusts_lock.store(found->second->trusts_lock, std::memory_order_relaxed);
    } else {
      try {
        end(*process, *ending);
      } catch (std::exception const&) {
        errors_.fetch_add(1, std::memory_order_relaxed);
      }
      forget(*process);
    }
  }
  std::uint64_t there = 0;
  for (auto const& one : known) {
    if (one.ending) continue;
    ++there;
    const bool is_new = [&] {
      const std::lock_guard lock{mutex_};
      return !living_.contains({one.id, one.run}) && living_.size() < options_.limits.processes;
    }();
    if (is_new) arrive(one.view, one.id);
  }
  forget_ended(kept);
  const std::lock_guard lock{mutex_};
  left_out_.processes = there - std::min<std::uint64_t>(there, living_.size());
  left_out_.ended = kept.size() - std::min(kept.size(), ended_.size());
}

/// The books have let go of all others.
void NodeFollowed::forget_ended(std::set<Key> const& kept) {
  const std::lock_guard lock{mutex_};
  std::erase_if(ended_, [&](auto const& one) { return !kept.contains({one->id, one->run}); });
}

/// Its last look: the mapping goes with it, and the memory of a file that has no name any more.
void NodeFollowed::end(Process& process, Ending ending) {
  auto look = process.followed.look({});
  const bool has_failed = std::ranges::any_of(look.ledgers, [](auto const& ledger) { return ledger.failures() > 0; });
  if (ending != Ending::exited || has_failed || process.followed.has_stories()) {
    const std::lock_guard opening{opening_};
    count_failed(process.followed.finish());
    look = process.followed.look({});
  }
  options_.let_go(*process.view);
  if (!is_whole(process, look.process.run)) return;
  look.liveness = ending == Ending::unknown ? flight::Liveness::unknown : flight::Liveness::dead;
  auto const figures = process_json(look, false, {});
  add_ended({.id = process.id,
             .run = process.run,
             .name = process.name,
             .realtime_ns = look.realtime_ns,
             .figures = figures.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
             .details = std::make_shared<Look const>(std::move(look))});
}

void NodeFollowed::add_ended(Ended ended) {
  auto const& limits = options_.limits;
  auto entry = std::make_shared<Ended const>(std::move(ended));
  const std::lock_guard lock{mutex_};
  ended_.push_front(std::move(entry));
  if (ended_.size() > limits.ended) ended_.pop_back();
  std::size_t details = 0;
  std::size_t managers = 0;
  for (auto& one : ended_) {
    if (!one->details) continue;
    managers += static_cast<std::size_t>(std::ranges::count_if(one->details->ledgers, is_manager));
    if (++details <= limits.ended_details && managers <= limits.ended_managers) continue;
    auto without = *one;
    without.details.reset();
    one = std::make_shared<Ended const>(std::move(without));
  }
}

}  // namespace headroom::exporter
