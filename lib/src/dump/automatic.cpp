// The post-mortem that a failing program writes by itself: who hears of the failure, what was set aside, how often.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <headroom/post_mortem.hpp>

#include "base/clock.hpp"
#include "dump/dump_file.hpp"
#include "dump/dump_folder.hpp"
#include "dump/pace.hpp"
#include "dump/workspace.hpp"
#include "dump/writer.hpp"
#include "flight/directory.hpp"
#include "flight/raw_reads.hpp"
#include "flight/recorder.hpp"
#include "guard/callback_scope.hpp"
#include "manager/failure_observer.hpp"

namespace headroom::dump {
namespace {

std::uint64_t monotonic_now() noexcept { return detail::read_monotonic_ns(); }

bool environment_says(char const* name, std::string_view value) noexcept {
  char const* const text = std::getenv(name);
  return text != nullptr && value == text;
}

bool is_to_be_quiet() noexcept {
  char const* const text = std::getenv("HEADROOM_QUIET");
  return text != nullptr && *text != '\0' && std::string_view{text} != "0";
}

// Counted by the threads that failed, read by post_mortem_counts(). Relaxed: they stand for themselves.
struct Counts {
  std::atomic<std::uint64_t> written{0}, reduced{0}, skipped{0}, failed{0};
  std::atomic<int> last_error{0};
};
constinit Counts counts;

class Automatic final : public manager::FailureObserver {
public:
  explicit Automatic(flight::FlightView view)
      : view_{std::move(view)},
        mapped_{flight::ViewAccess::mapped(view_)},
        workspace_{WorkspaceSizes::of(mapped_)},
        is_quiet_{is_to_be_quiet()} {}

  /// Without a folder it counts failures.
  [[nodiscard]] bool is_ready() noexcept {
    has_folder_ = find_dump_folder(folder_);
    return workspace_.is_there();
  }

  void failed(manager::FinalFailure const& failure) noexcept override;
  void passed_over() noexcept override;
  [[nodiscard]] std::string newest_path() const;

private:
  void write(manager::FinalFailure const& failure) noexcept;
  [[nodiscard]] bool put_name(FixedPath& name, std::uint64_t sequence, std::string_view suffix) const noexcept;
  void say(FixedPath const& name) const noexcept;
  void say_not_written(int error) const noexcept;

  flight::FlightView view_;
  flight::MappedFlight const& mapped_;
  Workspace workspace_;
  FixedPath folder_;  // constant from is_ready() on
  bool has_folder_ = false;
  FixedPath name_, temporary_;
  bool const is_quiet_;  // HEADROOM_QUIET
  // Exchanged (acquire) by whoever writes, cleared (release) at the end: the members above have one user. Nobody waits for it.
  std::atomic<bool> writing_{false};
  Pace pace_;
  // Sequence of the newest file, 0 = none. Stored by the writer (release) once the file is there, read by newest_path (acquire).
  std::atomic<std::uint64_t> newest_{0};
  std::uint64_t sequence_ = 0;  // under writing_, as is the next
  int said_error_ = 0;
};

// Written once, before the observer is told of; read by last_post_mortem. Release and acquire.
constinit std::atomic<Automatic*> automatic{nullptr};

void Automatic::failed(manager::FinalFailure const& failure) noexcept {
  // A child's books are a copy that nobody looks at, and its folder is the parent's.
  if (flight::in_forked_child()) return;
  // What a hook, a listener or a checkpoint asks for in vain is a part of the failure that it stands in: that one is to be told of.
  if (guard::inside_callback() || !pace_.take_turn(monotonic_now()) || writing_.exchange(true, std::memory_order_acquire)) {
    return passed_over();
  }
  write(failure);
  writing_.store(false, std::memory_order_release);
}

void Automatic::passed_over() noexcept {
  if (!flight::in_forked_child()) counts.skipped.fetch_add(1, std::memory_order_relaxed);
}

void Automatic::write(manager::FinalFailure const& failure) noexcept {
  const QuietWriting quiet;
  const auto fail = [this](int error) {
    pace_.turn_failed(monotonic_now());
    counts.failed.fetch_add(1, std::memory_order_relaxed);
    counts.last_error.store(error, std::memory_order_relaxed);
    if (std::exchange(said_error_, error) != error) say_not_written(error);  // once, not at every failure
  };
  if (!has_folder_) return fail(ENOENT);
  const std::uint64_t sequence = ++sequence_;
  if (!put_name(name_, sequence, kSuffix) || !put_name(temporary_, sequence, kTemporarySuffix)) return fail(ENAMETOOLONG);
  const int folder = open_dump_folder(folder_);
  if (folder < 0) return fail(errno);

  const KnownFailure known{.error = failure.error,
                           .ledger_cell = failure.ledger.record_id(),
                           .tag = failure.ledger.tag_place(failure.tag).entry,
                           .site = flight::intern_site(failure.site),
                           .thread = flight::this_thread().thread_id};
  const bool device = failure.error.kind == ErrorKind::device_out_of_memory;
  const FileOutcome outcome = write_file(
      folder, temporary_.c_str(), name_.c_str(),
      {.mapped = mapped_,
       .liveness = flight::Liveness::living,
       .kind = device ? ReasonKind::device_out_of_memory : ReasonKind::allocation_failed,
       .reason = device ? "the device had no memory for a request" : "a request failed for good, after hooks and policy",
       .failure = &known,
       .options = {},
       .events_left_out = {},
       .sequence = sequence,
       .counts = post_mortem_counts()},
      workspace_);
  if (outcome.error != 0) {
    fail(outcome.error);
  } else {
    counts.written.fetch_add(1, std::memory_order_relaxed);
    if (outcome.reduced) counts.reduced.fetch_add(1, std::memory_order_relaxed);
    newest_.store(sequence, std::memory_order_release);
    say(name_);
  }
  keep_to_caps(folder, outcome.error == 0 ? name_.view() : std::string_view{}, {}, workspace_.buffer);
  close(folder);
}

// <program>.<pid>.<run>.<sequence><suffix>: a pid comes again, in other containers too; a run does not.
bool Automatic::put_name(FixedPath& name, std::uint64_t sequence, std::string_view suffix) const noexcept {
  constexpr std::size_t kMostOfProgram = 64;
  constexpr std::string_view kDigits = "0123456789abcdef";
  flight::FileHeader const& header = mapped_.header();
  name.clear();
  for (const char c : text_of(header.program).substr(0, kMostOfProgram)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '+';
    if (!name.add(plain ? std::string_view{&c, 1} : std::string_view{"_"})) return false;
  }
  bool fits = name.add(name.view().empty() ? "program." : ".") && name.add_number(header.pid) && name.add(".");
  for (unsigned shift = 64; shift > 32; shift -= 4) fits = fits && name.add(kDigits.substr((header.run >> (shift - 4)) & 15U, 1));
  return fits && name.add(".") && name.add_number(sequence) && name.add(suffix);
}

// One line, in one call, so that lines of several threads do not mix. A closed stderr is nobody's loss.
void Automatic::say(FixedPath const& name) const noexcept {
  if (is_quiet_) return;
  const auto part = [](std::string_view text) { return iovec{const_cast<char*>(text.data()), text.size()}; };  // NOLINT
  const std::array<iovec, 5> line{part("headroom: out of memory; post-mortem: "), part(folder_.view()), part("/"),
                                  part(name.view()), part("\n")};
  [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, line.data(), static_cast<int>(line.size()));
}

// Without the heap: strerror may want it, for a translation.
void Automatic::say_not_written(int error) const noexcept {
  if (is_quiet_) return;
  FixedPath text;
  const auto folder = has_folder_ ? folder_.view() : std::string_view{"no folder (HEADROOM_DUMP_DIR, XDG_STATE_HOME, HOME)"};
  bool fits = text.add("headroom: out of memory; no post-mortem could be written: ") && text.add(folder) && text.add(": ");
#ifdef __GLIBC__
  char const* const words = strerrordesc_np(error);
  fits = fits && text.add(words != nullptr ? std::string_view{words} : std::string_view{"unknown error"});
#else
  fits = fits && text.add("error ") && text.add_number(static_cast<std::uint64_t>(error));
#endif
  if (!fits || !text.add("\n")) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.view().data(), text.view().size());
}

std::string Automatic::newest_path() const {
  const std::uint64_t sequence = newest_.load(std::memory_order_acquire);
  auto name = std::make_unique<FixedPath>();
  if (sequence == 0 || !put_name(*name, sequence, kSuffix)) return {};
  return std::string{folder_.view()} + '/' + std::string{name->view()};
}

void start() noexcept {
  if (environment_says("HEADROOM_DUMP", "off") || environment_says("HEADROOM_DUMP", "0")) return;
  try {
    auto view = flight::FlightView::of_this_process();
    if (!view) return;
    // Never destroyed: static objects may fail to get memory to the very end.
    auto made = std::make_unique<Automatic>(std::move(*view));
    if (!made->is_ready()) return;
    automatic.store(made.get(), std::memory_order_release);
    manager::observe_failures(*made.release());
  } catch (...) {
    return;  // no memory for a post-mortem, which keeps some paths besides its workspace: the program does without
  }
}

std::once_flag started;

}  // namespace
}  // namespace headroom::dump

namespace headroom {

void manager::start_observing_failures() noexcept { std::call_once(dump::started, dump::start); }

PostMortemCounts post_mortem_counts() noexcept {
  using dump::counts;
  return {.written = counts.written.load(std::memory_order_relaxed),
          .reduced = counts.reduced.load(std::memory_order_relaxed),
          .skipped = counts.skipped.load(std::memory_order_relaxed),
          .failed = counts.failed.load(std::memory_order_relaxed),
          .last_error = counts.last_error.load(std::memory_order_relaxed)};
}

std::string last_post_mortem() {
  auto const* const made = dump::automatic.load(std::memory_order_acquire);
  return made != nullptr ? made->newest_path() : std::string{};
}

}  // namespace headroom
