#include "node_books.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <tuple>
#include <utility>

#include <sys/stat.h>

#include "metrics.hpp"

namespace headroom::exporter {
namespace {

constexpr char kOtherName[] = "other";
constexpr std::size_t kMostNotices = 64;

std::string key_of(Labels const& labels) {
  std::string key;
  for (auto const& label : labels) key.append(label.value).push_back('\0');
  return key;
}

bool is_over(flight::LedgerSnapshot const& ledger) { return ledger.state == flight::LedgerState::closed && ledger.claimed == 0; }

auto series_of(flight::LedgerSnapshot const& ledger) {
  return std::tuple{ledger.device_ordinal, ledger.device_uuid, ledger.name};
}

/// The counters of a process that ended, without its own labels and without what is 0: a series that ends at 0 tells nothing.
std::vector<std::pair<Metric, prometheus::ClientMetric>> last_samples(flight::FlightView const& view,
                                                                      flight::ProcessInfo const& process,
                                                                      std::vector<flight::LedgerSnapshot> ledgers,
                                                                      std::size_t own_labels) {
  Families families;
  families.set_counters_only(true);
  CollectOptions options;
  options.with_host = true;
  collect_into(families, view, process, std::move(ledgers), options);
  auto samples = families.take_samples();
  std::erase_if(samples, [](auto const& entry) {
    auto const& sample = entry.second;
    return sample.counter.value == 0 && sample.histogram.sample_count == 0;
  });
  for (auto& [metric, sample] : samples) {
    auto& labels = sample.label;
    labels.erase(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(std::min(own_labels, labels.size())));
    labels.shrink_to_fit();
    sample.histogram.bucket.shrink_to_fit();
  }
  samples.shrink_to_fit();
  return samples;
}

bool is_there(std::string const& path, FileId id) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && FileId{found.st_dev, found.st_ino} == id;
}

}  // namespace

char const* to_string(Ending ending) noexcept {
  switch (ending) {
    case Ending::exited: return "exited";
    case Ending::killed: return "killed";
    case Ending::unknown: break;
  }
  return "unknown";
}

NodeBooks::NodeBooks(Options options) : options_(std::move(options)) {
  if (!options_.liveness) options_.liveness = [](flight::FlightView const& view) { return view.liveness(); };
  if (!options_.is_whole) options_.is_whole = [](flight::FlightView const&) { return true; };
  if (!options_.is_there) options_.is_there = is_there;
  if (!options_.let_go) options_.let_go = [](flight::FlightView const&) {};
}

std::string NodeBooks::bounded_name(std::string const& name) {
  const std::string safe = safe_label_value(name);
  const bool fits = sums_.contains(safe) || sums_.size() < options_.limits.names;
  return fits ? safe : kOtherName;
}

NodeBooks::Sums& NodeBooks::sums_of(std::string const& name) { return sums_[name]; }

void NodeBooks::remember(Key const& key, bool is_counted) {
  const auto [known, is_new] = over_.try_emplace(key, is_counted);
  known->second = known->second || is_counted;
  if (!is_new) return;
  over_order_.push_back(key);
  while (over_order_.size() > options_.limits.runs) {
    over_.erase(over_order_.front());
    over_order_.pop_front();
  }
}

/// A file under another name than its process gave it is somebody's copy, which is theirs to keep.
void NodeBooks::add_corpse(Process const& process, bool was_found) {
  const auto info = process.view->process();
  std::array<char, 64> own_name{};
  std::snprintf(own_name.data(), own_name.size(), ".%" PRIu64 ".%016" PRIx64 ".flight", info.pid, info.run);
  if (!process.path.ends_with(own_name.data())) return;
  if (corpses_.size() < options_.limits.corpses) {
    corpses_.push_back({.view = process.view, .path = process.path, .id = process.id, .was_found = was_found});
  } else {
    ++corpses_dropped_;
  }
}

flight::Liveness NodeBooks::liveness_of(Process const& process) const {
  const auto liveness = options_.liveness(*process.view);
  // "Dead" of a process whose lock would not be seen here, or that has none, may be a process of another machine or pid namespace.
  return liveness == flight::Liveness::dead && !process.trusts_lock ? flight::Liveness::unknown : liveness;
}

/// How the process ended; nothing while it has not, for all that is known.
std::optional<Ending> NodeBooks::ending_of(Process const& process) const {
  switch (liveness_of(process)) {
    case flight::Liveness::living: return std::nullopt;
    case flight::Liveness::dead:
      return process.view->process().state == flight::ProcessState::closed ? Ending::exited : Ending::killed;
    case flight::Liveness::unknown: break;
  }
  if (options_.is_there(process.path, process.id)) return std::nullopt;
  return Ending::unknown;
}

/// The ledgers that have series: accounts, those that are open, and of the closed ones of a name the newest, unless one of that name is
/// open. Who was hidden once stays so, or sums would fall.
std::vector<flight::LedgerSnapshot> NodeBooks::shown_ledgers(Process& process,
                                                             std::vector<flight::LedgerSnapshot> ledgers) const {
  if (!options_.keeps_closed) {
    std::erase_if(ledgers, is_over);
    return ledgers;
  }
  // Open ones first, then the newest.
  std::ranges::sort(ledgers, [](auto const& left, auto const& right) {
    return std::tuple{is_over(left), right.created_ticks, left.cell} < std::tuple{is_over(right), left.created_ticks, right.cell};
  });
  std::set<std::tuple<std::int64_t, std::string, std::string>> taken;
  std::erase_if(ledgers, [&](flight::LedgerSnapshot const& ledger) {
    if (ledger.is_device_account) return is_over(ledger);
    auto& cell = process.cells[ledger.cell];
    const bool is_first = taken.insert(series_of(ledger)).second;
    cell.is_hidden = cell.is_hidden || (is_over(ledger) && !is_first);
    return is_over(ledger) && cell.is_hidden;
  });
  return ledgers;
}

/// Reads the process anew and brings its Totals up to date; nothing when its file is damaged, and then nothing has changed.
std::optional<NodeBooks::Figures> NodeBooks::read_process(Process& process) const {
  auto const& view = *process.view;
  // Before the ledgers, so that nothing is in both.
  const Totals earlier = Totals::of_ledger(view.earlier_tallies());
  Figures figures{.process = view.process(), .ledgers = view.all_ledgers()};
  if (!options_.is_whole(view) || figures.process.run != process.run) return std::nullopt;
  Totals tallied = earlier;
  for (auto const& ledger : figures.ledgers) {
    if (ledger.is_device_account) continue;
    figures.allocated += ledger.allocated;
    auto& cell = process.cells[ledger.cell];
    const Totals totals = Totals::of_ledger(ledger);
    tallied += totals.without_counters();
    if (cell.generation != ledger.generation) {
      cell.before += cell.now;
      cell.now = {};
      cell.is_hidden = false;
      cell.generation = ledger.generation;
    }
    // While a cell changes hands its tallies are 0 already, and its counters are those of its base.
    cell.now = cell.now.or_more(totals.without_counters());
    cell.counters = cell.counters.or_more(totals.counters() + Totals::of_earlier(ledger.earlier));
  }
  figures.ledgers = shown_ledgers(process, std::move(figures.ledgers));
  const Totals recorder = Totals::of_recorder(figures.process);
  process.shown = {};
  for (auto const& ledger : figures.ledgers) {
    if (!ledger.is_device_account) process.shown += Totals::of_ledger(ledger);
  }
  process.shown += recorder;
  // What was seen of each cell's owners, or, if that is more, what the file says of all of them: a program of an earlier version does
  // not say it, and while a cell changes hands it may be too little for a moment.
  Totals seen, counters;
  for (auto const& [index, cell] : process.cells) {
    seen += cell.before + cell.now;
    counters += cell.counters;
  }
  process.lifetime = process.lifetime.or_more(seen.or_more(tallied) + counters + recorder);
  return figures;
}

NodeBooks::Arrival NodeBooks::arrive(std::shared_ptr<flight::FlightView const> view, std::string path, FileId id,
                                     Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  const auto info = view->process();
  auto const& header = view->header();
  Process process;
  process.run = info.run;
  process.view = std::move(view);
  process.path = std::move(path);
  process.id = id;
  process.labels = process_labels(info, true);
  process.trusts_lock = static_cast<flight::AliveBy>(header.alive_by) == flight::AliveBy::ofd_lock &&
                        (info.boot_id == options_.boot_id || info.host == options_.host);
  Key key = key_of(process.labels);
  const auto ending = ending_of(process);
  if (const auto known = processes_.find(key); known != processes_.end()) {
    const bool is_same = known->second.id == id;
    // A copy of its file may have come before the process itself.
    const bool is_better = known->second.ended && !ending && options_.is_whole(*process.view);
    if (!is_better) {
      if (!is_same) ++duplicates_;
      return Arrival::is_known;
    }
    --kept_;
    processes_.erase(known);
  } else if (const auto over = over_.find(key); over != over_.end()) {
    // A copy that was found dead says nothing against the process itself, which is in no sum yet.
    if (over->second || ending) return Arrival::is_known;
  }
  if (!options_.is_whole(*process.view)) return Arrival::broken;
  const bool is_of_this_boot = !options_.boot_id.empty() && info.boot_id == options_.boot_id;
  const bool began_before = is_of_this_boot ? header.start_monotonic_ns < options_.began_monotonic_ns
                                            : info.start_realtime_ns < options_.began_realtime_ns;
  if (ending && began_before) {
    ++found_dead_;
    remember(key, false);
    if (*ending == Ending::killed) add_corpse(process, true);
    return Arrival::found_dead;
  }
  if (processes_.size() >= options_.limits.mapped) return Arrival::too_many;
  process.name = bounded_name(info.program);
  static_cast<void>(sums_of(process.name));                      // its sums exist from here on, with 0
  if (with_series_ >= options_.limits.series) see_endings(now);  // who has ended makes room
  process.has_series = with_series_ < options_.limits.series;
  with_series_ += std::size_t{process.has_series};
  const auto at = processes_.emplace(std::move(key), std::move(process)).first;
  if (ending) {
    end(at->second, *ending, now);
  } else {
    // At once, so that whatever happens to the file, this much is known.
    static_cast<void>(read_process(at->second));
    options_.let_go(*at->second.view);
  }
  return Arrival::taken;
}

void NodeBooks::end(Process& process, Ending ending, Clock::time_point now) {
  // What may fail for want of memory comes first: then it has not ended yet, and the next look tries again.
  auto& sums = sums_of(process.name);
  auto figures = read_process(process);
  if (figures && process.has_series) {
    process.live_bytes = figures->allocated;
    process.samples = std::make_shared<std::vector<std::pair<Metric, prometheus::ClientMetric>> const>(
        last_samples(*process.view, figures->process, std::move(figures->ledgers), process.labels.size()));
    // Damaged while its samples were made: they may say anything.
    if (!options_.is_whole(*process.view)) process.samples.reset();
  }
  if (!process.samples) process.shown = {};
  if (ending == Ending::killed) add_corpse(process, false);
  ++sums.died[static_cast<std::size_t>(ending)];
  process.ended = now;
  process.ending = ending;
  ++kept_;
  with_series_ -= std::size_t{process.has_series};
  process.cells.clear();
  process.view.reset();
}

void NodeBooks::fold(std::map<Key, Process>::iterator process) {
  sums_of(process->second.name).exited += process->second.lifetime;
  if (token_.use_count() > 1) folded_lately_.insert_or_assign(process->first, process->second.lifetime);
  if (process->second.ended) {
    --kept_;
  } else {
    with_series_ -= std::size_t{process->second.has_series};
  }
  remember(process->first, true);
  processes_.erase(process);
}

/// Nothing in the file can be trusted any more, but what was read of it before.
void NodeBooks::damage(std::map<Key, Process>::iterator process) {
  ++truncated_;
  if (notices_.size() < kMostNotices) {
    notices_.push_back(
        process->second.path +
        ": was truncated or written to by somebody; its process is no longer served, what it had counted is in the "
        "sums");
  }
  fold(process);
}

void NodeBooks::see_endings(Clock::time_point now) {
  for (auto at = processes_.begin(); at != processes_.end();) {
    const auto process = at++;
    if (process->second.ended) continue;
    const auto ending = ending_of(process->second);
    if (!options_.is_whole(*process->second.view)) {
      damage(process);
    } else if (ending) {
      end(process->second, *ending, now);
    }
  }
}

void NodeBooks::expire(Clock::time_point now) {
  for (auto at = processes_.begin(); at != processes_.end();) {
    const auto process = at++;
    if (process->second.ended && now - *process->second.ended >= options_.keep_dead) fold(process);
  }
  while (kept_ > options_.limits.kept) {
    const auto oldest = std::ranges::min_element(processes_, [](auto const& left, auto const& right) {
      return left.second.ended.value_or(Clock::time_point::max()) < right.second.ended.value_or(Clock::time_point::max());
    });
    ++folded_early_;
    fold(oldest);
  }
}

std::vector<NodeBooks::Corpse> NodeBooks::look(Clock::time_point now, std::vector<std::string>& notices) {
  const std::lock_guard lock{mutex_};
  if (token_.use_count() == 1) folded_lately_.clear();
  see_endings(now);
  expire(now);
  notices.insert(notices.end(), std::make_move_iterator(notices_.begin()), std::make_move_iterator(notices_.end()));
  notices_.clear();
  return std::exchange(corpses_, {});
}

std::vector<NodeBooks::Known> NodeBooks::known() {
  const std::lock_guard lock{mutex_};
  std::vector<Known> list;
  list.reserve(processes_.size());
  for (auto const& [key, process] : processes_) {
    list.push_back({.id = process.id,
                    .run = process.run,
                    .view = process.view,
                    .trusts_lock = process.trusts_lock,
                    .ending = process.ended ? std::optional{process.ending} : std::nullopt});
  }
  return list;
}

void NodeBooks::add_ended(Reading& reading, Process const& process) {
  reading.sums[process.name].exited += process.lifetime.beyond(process.shown);
  if (!process.has_series) return;
  reading.kept.push_back(
      {.labels = process.labels, .ending = process.ending, .live_bytes = process.live_bytes, .samples = process.samples});
}

NodeBooks::Reading NodeBooks::begin(Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  if (token_.use_count() == 1) folded_lately_.clear();
  see_endings(now);
  expire(now);
  Reading reading;
  reading.in_progress_ = token_;
  reading.sums = sums_;
  for (auto const& [key, process] : processes_) {
    if (process.ended) {
      add_ended(reading, process);
    } else {
      reading.waiting_.push_back({.key = key, .name = process.name});
    }
  }
  reading.found_dead = found_dead_;
  reading.folded_early = folded_early_;
  reading.corpses_dropped = corpses_dropped_;
  reading.truncated = truncated_;
  reading.duplicates = duplicates_;
  return reading;
}

bool NodeBooks::read_some(Reading& reading, std::size_t most, Clock::time_point now) {
  reading.living.clear();
  if (reading.waiting_.empty()) {
    reading.in_progress_.reset();
    return false;
  }
  const std::lock_guard lock{mutex_};
  while (!reading.waiting_.empty() && reading.living.size() < most) {
    const auto [key, name] = std::move(reading.waiting_.back());
    reading.waiting_.pop_back();
    const auto entry = processes_.find(key);
    if (entry == processes_.end()) {
      if (const auto folded = folded_lately_.find(key); folded != folded_lately_.end()) {
        reading.sums[name].exited += folded->second;
      }
      continue;
    }
    auto& process = entry->second;
    if (!process.ended) {
      // Gauges of who ended since the scrape began are not shown either.
      if (const auto ending = ending_of(process)) end(process, *ending, now);
    }
    if (process.ended) {
      add_ended(reading, process);
      continue;
    }
    auto figures = read_process(process);
    if (!figures) {
      reading.sums[name].exited += process.lifetime;
      damage(entry);
      continue;
    }
    const bool is_certain = liveness_of(process) != flight::Liveness::unknown;
    if (process.has_series) {
      ++(is_certain ? reading.certain : reading.uncertain);
    } else {
      options_.let_go(*process.view);
      process.shown = {};
      ++reading.folded;
      reading.folded_allocated_bytes += figures->allocated;
    }
    reading.sums[name].exited += process.lifetime.beyond(process.shown);
    if (!process.has_series) continue;
    reading.living.push_back({.view = process.view,
                              .process = std::move(figures->process),
                              .ledgers = std::move(figures->ledgers),
                              .is_certain = is_certain,
                              .name = name,
                              .lifetime = process.lifetime,
                              .shown = process.shown});
  }
  return true;
}

NodeBooks::Reading NodeBooks::read(Clock::time_point now) {
  auto reading = begin(now);
  static_cast<void>(read_some(reading, options_.limits.mapped, now));
  reading.in_progress_.reset();
  return reading;
}

void NodeBooks::withdraw(Reading& reading, Living const& living) { reading.sums[living.name].exited += living.shown; }

}  // namespace headroom::exporter
