// The thread of a LogFollower, and how others speak with it: wishes and answers under one mutex, which is never held over a sink.
#include <headroom/log_follower.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include "base/test_point.hpp"
#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "trace/log_reader.hpp"

namespace headroom {
namespace {

constexpr std::chrono::nanoseconds kLongest = std::chrono::hours{1};
/// A poll that found this many lines is followed by the next one at once: a burst fills a lane in less than any pause.
constexpr std::size_t kBusyLines = 256;

/// Threads made while this lives take no signals: those belong to the program. Faults stay unblocked, since a blocked fault kills
/// the process without its own handlers having a say.
class BlockSignals {
public:
  BlockSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
    static_cast<void>(pthread_sigmask(SIG_SETMASK, &all, &before_));
  }
  ~BlockSignals() { static_cast<void>(pthread_sigmask(SIG_SETMASK, &before_, nullptr)); }
  BlockSignals(BlockSignals const&) = delete;
  BlockSignals& operator=(BlockSignals const&) = delete;

private:
  sigset_t before_{};
};

// Whose thread this is: what a sink calls must not wait for itself.
thread_local constinit void const* running_here = nullptr;

Result<void> check(LogFollowerOptions const& options) {
  const auto refuse = [](std::string message) { return fail(ErrorKind::invalid_argument, Layer::request, std::move(message)); };
  if (options.sinks.empty()) return refuse("a LogFollower needs sinks, got none");
  for (auto sink = options.sinks.begin(); sink != options.sinks.end(); ++sink) {
    const auto number = std::to_string(sink - options.sinks.begin());
    if (*sink == nullptr) return refuse("sink " + number + " of the LogFollower is null");
    if (std::find(options.sinks.begin(), sink, *sink) != sink) {
      return refuse("sink " + number + " of the LogFollower is there twice: it would get every line twice");
    }
  }
  for (auto const& [name, value] : {std::pair{"poll_interval", options.poll_interval}, std::pair{"patience", options.patience}}) {
    if (value < std::chrono::nanoseconds::zero() || value > kLongest) {
      return refuse(std::string{"the LogFollower's "} + name + " is " + std::to_string(value.count()) + " ns; expected 0 … 1 h");
    }
  }
  return {};
}

}  // namespace

class LogFollower::Core {
public:
  Core(LogFollowerOptions options, trace::LogReader reader)
      : options_(std::move(options)), reader_(std::move(reader)), sinks_(options_.sinks.size()) {
    for (std::size_t i = 0; i < sinks_.size(); ++i) sinks_[i].sink = options_.sinks[i];
  }
  ~Core() = default;
  Core(Core const&) = delete;
  Core& operator=(Core const&) = delete;

  /// May throw std::system_error.
  void start(std::shared_ptr<Core> const& self) {
    const BlockSignals block;
    const std::scoped_lock lock{mutex_};  // the thread may not end itself before it has its name here
    thread_ = std::thread{[self] { self->run(); }};
  }

  Result<void> flush();
  void stop() noexcept;

  [[nodiscard]] bool is_running() const noexcept { return !ended_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t failures(LogSink const& sink) const noexcept {
    auto const* const fed = find(sink);
    return fed == nullptr ? 0 : fed->failures.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::string last_failure(LogSink const& sink) const {
    auto const* const fed = find(sink);
    const std::scoped_lock lock{mutex_};
    return fed == nullptr ? std::string{} : fed->last_failure;
  }

private:
  struct Fed {
    std::shared_ptr<LogSink> sink;
    std::atomic<std::uint64_t> failures{0};  // written by the follower's thread, read by any; relaxed, a count
    std::string last_failure;                // under the mutex
  };

  [[nodiscard]] Fed const* find(LogSink const& sink) const noexcept {
    const auto found = std::ranges::find_if(sinks_, [&](Fed const& fed) { return fed.sink.get() == &sink; });
    return found == sinks_.end() ? nullptr : &*found;
  }

  void run() noexcept;
  void pass(bool to_the_end) noexcept;
  template <class Call>
  void ask(Fed& fed, Call const& call) noexcept;
  void note_failure(Fed& fed, Error const& error) noexcept;
  [[nodiscard]] bool is_wanted() const noexcept { return is_stopping_ || flushes_wanted_ != flushes_done_; }

  const LogFollowerOptions options_;
  // The thread's own.
  trace::LogReader reader_;
  std::vector<LogLine> batch_;
  std::optional<Error> failure_;  // of a sink, the first one of this pass
  bool is_out_of_memory_ = false;
  std::vector<Fed> sinks_;  // neither grows nor moves

  mutable std::mutex mutex_;  // guards what follows, and the texts of failures
  std::condition_variable changed_;
  std::thread thread_;
  std::uint64_t flushes_wanted_ = 0;
  std::uint64_t flushes_done_ = 0;
  std::optional<Error> flush_failure_;  // what a sink answered last, if it was no; concerns the flushes that were waiting then:
  std::uint64_t failed_up_to_ = 0;      // … up to this ticket
  std::uint64_t out_of_memory_up_to_ = 0;  // likewise, of flushes that left lines behind
  bool is_stopping_ = false;
  // Written by the thread under the mutex (release) when it calls no sink any more; read by any (acquire).
  std::atomic<bool> ended_{false};
  // Written by the thread, read by any; relaxed, counts. Whoever waited for a flush sees them as of its end, through the mutex.
  std::atomic<std::uint64_t> lines_{0};
  std::atomic<std::uint64_t> lost_{0};
};

void LogFollower::Core::run() noexcept {
  running_here = this;
  static_cast<void>(pthread_setname_np(pthread_self(), "headroom-log"));
  bool is_last = false;
  while (!is_last) {
    std::uint64_t wanted = 0;
    bool to_the_end = false;
    {
      std::unique_lock lock{mutex_};
      if (batch_.size() < kBusyLines) changed_.wait_for(lock, options_.poll_interval, [this] { return is_wanted(); });
      to_the_end = is_wanted();
      is_last = is_stopping_;
      wanted = flushes_wanted_;
    }
    pass(to_the_end);
    const std::scoped_lock lock{mutex_};
    // Also for a flush that was asked for while this pass went on: the lines that it lost were written before.
    if (failure_ && flushes_done_ != flushes_wanted_) {
      flush_failure_ = std::move(failure_);
      failed_up_to_ = flushes_wanted_;
    }
    if (is_out_of_memory_ && flushes_done_ != wanted) out_of_memory_up_to_ = wanted;
    flushes_done_ = wanted;
    if (is_last) ended_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
}

void LogFollower::Core::pass(bool to_the_end) noexcept {
  failure_.reset();
  batch_.clear();
  is_out_of_memory_ = false;
  try {
    reader_.poll(batch_, to_the_end);
  } catch (...) {
    is_out_of_memory_ = true;  // nothing is lost by it: the next poll goes on
  }
  lost_.store(reader_.lost(), std::memory_order_relaxed);
  for (auto& fed : sinks_) {
    if (!batch_.empty()) ask(fed, [&] { return fed.sink->write(batch_); });
    if (to_the_end) ask(fed, [&] { return fed.sink->flush(); });
  }
  lines_.fetch_add(batch_.size(), std::memory_order_relaxed);
}

template <class Call>
void LogFollower::Core::ask(Fed& fed, Call const& call) noexcept {
  const auto threw = [](char const* what) noexcept {
    return make_error(ErrorKind::io, Layer::request, words([&] {
                        return what != nullptr ? std::string{"the sink threw: "} + what
                                               : std::string{"the sink threw something that is no std::exception"};
                      }));
  };
  try {
    if (const Result<void> answer = call(); !answer) note_failure(fed, answer.error());
  } catch (std::exception const& thrown) {
    note_failure(fed, threw(thrown.what()));
  } catch (...) {
    note_failure(fed, threw(nullptr));
  }
}

// A failure counts whether there is memory for its words or not.
void LogFollower::Core::note_failure(Fed& fed, Error const& error) noexcept {
  fed.failures.fetch_add(1, std::memory_order_relaxed);
  std::string text = words([&] { return error.to_string(); });
  {
    const std::scoped_lock lock{mutex_};
    fed.last_failure.swap(text);
  }
  if (failure_) return;
  try {
    failure_ = error;
  } catch (...) {
    failure_ = make_error(error.kind, error.layer, {});
  }
}

Result<void> LogFollower::Core::flush() {
  if (running_here == this) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                "a sink called flush() of its own follower, which would wait for itself");
  }
  std::unique_lock lock{mutex_};
  if (is_stopping_) return fail(ErrorKind::unsupported, Layer::request, "the follower was stopped: nothing is left to flush");
  const std::uint64_t ticket = ++flushes_wanted_;
  test_point(TestPoint::flush_asked);
  changed_.notify_all();
  if (!changed_.wait_for(lock, options_.patience, [&] { return flushes_done_ >= ticket; })) {
    return fail(
        ErrorKind::io, Layer::request,
        "the sinks took longer than " + std::to_string(options_.patience.count()) + " ns; the flush goes on without waiting");
  }
  if (flush_failure_ && failed_up_to_ >= ticket) return tl::unexpected{*flush_failure_};
  if (out_of_memory_up_to_ >= ticket) return fail(ErrorKind::io, Layer::request, "the follower has no memory left for the lines");
  return {};
}

void LogFollower::Core::stop() noexcept {
  std::thread mine;
  bool has_ended = false;
  {
    std::unique_lock lock{mutex_};
    is_stopping_ = true;
    changed_.notify_all();
    if (running_here != this) {
      has_ended = changed_.wait_for(lock, options_.patience, [this] { return ended_.load(std::memory_order_relaxed); });
    }
    mine.swap(thread_);
  }
  if (!mine.joinable()) return;
  if (has_ended) {
    mine.join();  // it is past its last call of a sink
  } else {
    mine.detach();  // it keeps this core alive until it is through
  }
}

LogFollower::LogFollower(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}
LogFollower::LogFollower(LogFollower&&) noexcept = default;
LogFollower& LogFollower::operator=(LogFollower&& other) noexcept {
  if (this != &other) {
    LogFollower former{std::move(core_)};
    core_ = std::move(other.core_);
  }
  return *this;
}

LogFollower::~LogFollower() {
  // In a child the core stays for ever: its thread is not there to be joined, and its sinks hold what the parent will write.
  if (core_ != nullptr && flight::in_forked_child()) {
    [[maybe_unused]] auto const* const kept = std::make_unique<std::shared_ptr<Core>>(std::move(core_)).release();
    return;
  }
  stop();
}

Result<LogFollower> LogFollower::start(LogFollowerOptions options) {
  if (auto good = check(options); !good) return tl::unexpected{std::move(good.error())};
  if (!flight::start_recorder())
    return fail(ErrorKind::io, Layer::request, "the system has no memory for the flight file (about 16 MiB)");
  if (flight::in_forked_child()) {
    return fail(
        ErrorKind::unsupported, Layer::request,
        "this process was forked after headroom started in its parent, and has no lines of its own; start followers in the "
        "parent, or exec");
  }
  auto own = flight::FlightView::of_this_process();
  if (!own) return fail(ErrorKind::io, Layer::request, "the flight file of this process cannot be read");
  trace::FollowedLog log;
  if (options.resource != nullptr) log = {.counts = options.resource->counts_, .number = options.resource->number_};
  auto core = std::make_shared<Core>(std::move(options), trace::LogReader{std::move(*own), std::move(log)});
  try {
    core->start(core);
  } catch (std::system_error const& error) {
    return fail(ErrorKind::io, Layer::request, std::string{"no thread for the LogFollower: "} + error.what());
  }
  return LogFollower{std::move(core)};
}

// A child has no such thread, and the mutex may have been held by one at the fork: only counts are looked at there.
Result<void> LogFollower::flush() {
  if (core_ == nullptr) return fail(ErrorKind::unsupported, Layer::request, "the follower was moved from");
  if (flight::in_forked_child()) {
    return fail(ErrorKind::unsupported, Layer::request, "the follower belongs to the process that forked this one");
  }
  return core_->flush();
}

void LogFollower::stop() noexcept {
  if (core_ != nullptr && !flight::in_forked_child()) core_->stop();
}

bool LogFollower::is_running() const noexcept { return core_ != nullptr && !flight::in_forked_child() && core_->is_running(); }
std::uint64_t LogFollower::lines() const noexcept { return core_ != nullptr ? core_->lines() : 0; }
std::uint64_t LogFollower::lost() const noexcept { return core_ != nullptr ? core_->lost() : 0; }
std::uint64_t LogFollower::failures(LogSink const& sink) const noexcept { return core_ != nullptr ? core_->failures(sink) : 0; }
std::string LogFollower::last_failure(LogSink const& sink) const {
  return core_ != nullptr && !flight::in_forked_child() ? core_->last_failure(sink) : std::string{};
}

}  // namespace headroom
