#include "node_service.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <headroom/byte_size.hpp>

#include "block_signals.hpp"
#include "node_metrics.hpp"
#include "truncation_guard.hpp"

namespace headroom::exporter {
namespace {

constexpr std::chrono::milliseconds kLookEvery{250};
constexpr std::size_t kPortion = 4;  // processes that are read, shown and let go of at a time

/// As the recorder reads them, for files to be compared with.
std::string boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string text;
  std::getline(file, text);
  return text;
}

std::string host_name() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) return {};
  return std::string{host}.substr(0, sizeof flight::FileHeader::host - 1);
}

template <class Clock>
std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{Clock::now().time_since_epoch()}.count());
}

bool is_whole(flight::FlightView const& view) {
  return view.header().magic.load(std::memory_order_acquire) == flight::kMagic && !is_damaged(view.memory().data());
}

/// A short job's file is there for milliseconds; a watcher that waits for its turn that long misses it. A little above others and not of
/// real time: whoever makes files without end must not get a processor by it. Where the system does not permit it (it takes root or
/// CAP_SYS_NICE) all is as it was. Of the calling thread alone, on Linux.
void prefer_this_thread() noexcept {
  constexpr int kAboveOthers = -10;
  (void)::setpriority(PRIO_PROCESS, 0, kAboveOthers);
}

/// What was read stays in the page cache; that it was mapped in need not count as this process's memory until the next scrape.
void let_go(flight::FlightView const& view) {
  const auto memory = view.memory();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): madvise() writes nothing
  (void)::madvise(const_cast<std::byte*>(memory.data()), memory.size(), MADV_DONTNEED);
}

/// Descriptors are for clients first: a process more or less is counted, a scrape that cannot be had is not.
std::size_t most_mapped(std::size_t wanted) {
  constexpr std::size_t kForAllElse = 160;  // connections, ending ones, and the program's own
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto descriptors = static_cast<std::size_t>(limit.rlim_cur);
  const std::size_t left = descriptors > kForAllElse ? descriptors - kForAllElse : 0;
  return std::min(wanted, std::max(left, descriptors / 4));
}

NodeBooks::Options books_options(NodeService::Options const& options) {
  NodeBooks::Options books;
  books.limits = options.limits;
  books.limits.mapped = most_mapped(options.limits.mapped);
  books.keep_dead = options.keep_dead;
  books.began_monotonic_ns = now_ns<std::chrono::steady_clock>();
  books.began_realtime_ns = now_ns<std::chrono::system_clock>();
  books.boot_id = boot_id();
  books.host = host_name();
  books.is_whole = is_whole;
  books.let_go = let_go;
  return books;
}

NodeWatch::Options watch_options(NodeService::Options const& options) {
  NodeWatch::Options watch;
  watch.places.folders = options.folders;
  watch.guards_mappings = options.survives_truncation;
  watch.log = options.log;
  return watch;
}

}  // namespace

NodeService::NodeService(Options options)
    : options_(std::move(options)),
      own_labels_(with_label(with_label({}, "process", program_invocation_short_name), "pid", std::to_string(getpid()))),
      books_(books_options(options_)),
      post_mortems_(
          {.on = options_.writes_post_mortems, .folder = options_.dump_folder, .is_whole = is_whole, .log = options_.log}),
      gpus_(options_.gpus),
      followed_({.limits = {}, .is_whole = is_whole, .let_go = let_go}),
      pages_(followed_, {.is_whole = is_whole,
                         .errors = [this] { return errors_.load(std::memory_order_relaxed) + followed_.errors(); },
                         .gpus = [this] { return gpus_.sample(); }}),
      watch_(watch_options(options_), [this](std::shared_ptr<flight::FlightView const> view, std::string path, FileId id) {
        const auto arrival = books_.arrive(view, std::move(path), id, NodeBooks::Clock::now());
        if (arrival == NodeBooks::Arrival::taken) followed_.arrive(std::move(view), id);
        return arrival;
      }) {}

NodeService::~NodeService() { stop(); }

Result<void> NodeService::start() {
  if (options_.survives_truncation && !install_truncation_guard()) {
    return fail(ErrorKind::io, Layer::request, "cannot answer SIGBUS: " + std::generic_category().message(errno));
  }
  watch_.list_all();
  try {
    const BlockSignals block;
    watcher_ = std::thread{[this] {
      (void)pthread_setname_np(pthread_self(), "headroom-watch");
      prefer_this_thread();
      watch_.run();
    }};
    keeper_ = std::thread{[this] {
      (void)pthread_setname_np(pthread_self(), "headroom-keep");
      repeat(&NodeService::look);
    }};
    follower_ = std::thread{[this] {
      (void)pthread_setname_np(pthread_self(), "headroom-page");
      repeat(&NodeService::follow);
    }};
  } catch (std::system_error const& error) {
    stop();
    return fail(ErrorKind::io, Layer::request, std::string{"no thread for the exporter: "} + error.what());
  }
  return success();
}

void NodeService::stop() noexcept {
  if (is_of_forked_parent_) return;
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  stopped_.notify_all();
  watch_.stop();
  const std::lock_guard lock{stop_mutex_};
  if (watcher_.joinable()) watcher_.join();
  if (keeper_.joinable()) keeper_.join();
  if (follower_.joinable()) follower_.join();
}

void NodeService::repeat(void (NodeService::*work)()) noexcept {
  std::unique_lock lock{mutex_};
  while (!stopped_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    try {
      (this->*work)();
    } catch (...) {
      count_error();
    }
    lock.lock();
  }
}

void NodeService::look() {
  std::vector<std::string> notices;
  const auto corpses = books_.look(NodeBooks::Clock::now(), notices);
  if (options_.log) {
    for (auto const& notice : notices) options_.log(notice);
  }
  for (auto const& corpse : corpses) post_mortems_.take(corpse);
}

/// Once a machine, under the exporter's own labels. Without a driver there is nothing to tell.
ToldFigures NodeService::add_gpus(Families& families) {
  const auto sample = gpus_.sample();
  if (gpus_.is_stuck()) count_error();
  return sample ? add_node_gpus(families, sample->devices, own_labels_) : ToldFigures{};
}

void NodeService::follow() {
  followed_.tick([this] { return books_.known(); }, NodeFollowed::Clock::now());
}

Routes NodeService::routes_of(std::shared_ptr<NodeService> const& service) {
  return {{"/", [service](Request const& request) { return service->status(request); }},
          {"/metrics", [service](Request const& request) { return service->metrics(request); }},
          {"/api/state.json", [service](Request const& request) { return service->state(request); }},
          {"/snapshot.json", [service](Request const& request) { return service->snapshot(request); }},
          {"/-/healthy", [](Request const&) { return Service::healthy(); }}};
}

void NodeService::add_own(Families& families, NodeBooks::Reading const& reading) const {
  const auto of_state = [this](char const* state) { return with_label(own_labels_, "state", state); };
  families.add(Metric::node_processes, of_state("living"), reading.certain);
  families.add(Metric::node_processes, of_state("unknown"), reading.uncertain);
  families.add(Metric::node_processes, of_state("kept"), std::uint64_t{reading.kept.size()});
  families.add(Metric::node_processes, of_state("folded"), reading.folded);
  families.add(Metric::node_processes_found_dead_total, own_labels_, reading.found_dead);
  families.add(Metric::node_processes_folded_early_total, own_labels_, reading.folded_early);
  families.add(Metric::node_folded_allocated_bytes, own_labels_, reading.folded_allocated_bytes);
  auto skipped = watch_.skipped();
  skipped[static_cast<std::size_t>(Skip::truncated)] += reading.truncated;
  skipped[static_cast<std::size_t>(Skip::duplicate)] += reading.duplicates;
  for (std::size_t reason = 0; reason < kSkipCount; ++reason) {
    families.add(Metric::node_files_skipped_total, with_label(own_labels_, "reason", to_string(static_cast<Skip>(reason))),
                 skipped[reason]);
  }
  const auto folders = watch_.folders();
  for (std::size_t state = 0; state < kFolderStateCount; ++state) {
    families.add(Metric::node_folders, of_state(to_string(static_cast<FolderState>(state))), folders[state]);
  }
  families.add(Metric::post_mortems_total, own_labels_, post_mortems_.written());
  families.add(Metric::post_mortem_failures_total, own_labels_, post_mortems_.failed() + reading.corpses_dropped);
  families.add(Metric::exporter_scrape_duration_seconds, own_labels_, scrapes_.histogram());
  families.add(Metric::build_info, with_label(own_labels_, "version", HEADROOM_VERSION), std::uint64_t{1});
  families.add(Metric::exporter_errors_total, own_labels_, errors_.load(std::memory_order_relaxed) + followed_.errors());
}

std::string NodeService::text(MetricsFormat format) {
  MetricsText text{format};
  Families families;
  const ToldFigures told = add_gpus(families);
  auto reading = books_.begin(NodeBooks::Clock::now());
  while (books_.read_some(reading, kPortion, NodeBooks::Clock::now())) {
    for (auto& living : reading.living) {
      try {
        add_living(families, reading, living, is_whole, &told);
      } catch (...) {
        count_error();
      }
      let_go(*living.view);
    }
    text.add_if_many(families);
  }
  for (auto const& kept : reading.kept) {
    add_kept(families, kept);
    text.add_if_many(families);
  }
  add_sums(families, reading);
  add_own(families, reading);
  text.add(families);
  return text.take();
}

Reply NodeService::metrics(Request const& request) {
  const auto begin = Clock::now();
  const auto format = wanted_format(request.accept);
  Reply reply{.body = text(format), .content_type = content_type_of(format), .varies_by_accept = true};
  scrapes_.observe(Clock::now() - begin);
  return reply;
}

}  // namespace headroom::exporter
