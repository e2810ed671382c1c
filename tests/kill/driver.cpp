// Kills busy programs at random points and examines what they left: kill_driver VICTIM
// Every file must open, every record and slot be whole, and the books obey invariant 6. Every step must have been hit: when the
// library has test points, three of four victims are killed once a thread of theirs stands at one of them, each at another; the
// fourth is killed at any moment.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "post_mortem.hpp"
#include "scale.hpp"

namespace headroom::kill {
namespace {

using flight::InFlight;

// Where a thread may stand: after a point, within an operation.
struct Class {
  InFlight operation;
  TestPoint point;
};

// The points that the operations of a victim pass. The others belong to budget changes and waiting.
std::vector<Class> all_classes() {
  using enum TestPoint;
  std::vector<Class> classes;
  const auto add = [&](InFlight operation, std::initializer_list<TestPoint> points) {
    for (const TestPoint point : points) classes.push_back({operation, point});
  };
  add(InFlight::allocating, {allocate_before_claim, allocate_after_claim, allocate_after_driver, allocate_after_slot,
                             allocate_after_admit, book_before_peak, book_before_publish, book_before_record,
                             operation_before_end, claim_before_retry, refusal_before_book, refusal_before_record});
  add(InFlight::freeing,
      {free_before_driver, free_after_driver, free_after_slot, free_after_retire, unclaim_before_wake, unclaim_before_judge,
       free_after_unclaim, free_failed_before_move, free_failed_before_record, operation_before_end});
  add(InFlight::reserving, {reserve_before_claim, reserve_after_claim, reserve_after_unspent, refusal_before_book,
                            refusal_before_record, operation_before_end});
  add(InFlight::spending, {spend_before_unspent, spend_after_unspent, allocate_after_driver, allocate_after_slot,
                           allocate_after_admit, book_before_peak, book_before_publish, book_before_record, operation_before_end,
                           refusal_before_book, refusal_before_record});
  add(InFlight::dropping, {drop_before_unspent, drop_after_unspent, unclaim_before_wake, unclaim_before_judge, drop_after_unclaim,
                           operation_before_end});
  return classes;
}

constexpr std::array kOperationNames{"none", "allocating", "freeing", "reserving", "spending", "dropping"};

constexpr std::uint64_t kMostExtraKills = 50;

class TruthFile {
public:
  explicit TruthFile(std::string path) : path_{std::move(path)} {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Truths)) != 0) std::exit(66);
    truths_ = static_cast<Truths*>(mmap(nullptr, sizeof(Truths), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    if (truths_ == MAP_FAILED) std::exit(66);
  }
  void clear() {
    truths_->standing.store(0);
    for (auto& truth : truths_->threads) {
      for (auto* word : {&truth.thread_id, &truth.allocations, &truth.frees, &truth.refusals, &truth.failed_frees,
                         &truth.reservations, &truth.drops})
        word->store(0);
    }
  }
  [[nodiscard]] Truths const& operator*() const noexcept { return *truths_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
  std::string path_;
  Truths* truths_ = nullptr;
};

// What a victim is told, and how long it lives.
struct Fate {
  int threads = 0;
  std::optional<Class> stand_at;
  std::uint64_t passage = 1;           // how often its first thread comes there before it stays
  std::chrono::microseconds moment{};  // from when it stands there, or else from its start, to its end
};

// False when the victim ended by itself, or never came there: that is when it hung, not when it is slow.
bool wait_until_it_stands(pid_t child, Truths const& truths) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{5};
  while (truths.standing.load(std::memory_order_acquire) == 0) {
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child) return false;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
  return true;
}

// Starts a victim, waits until it tells where its flight file is, and kills it as its fate says. The file's path; empty: it never
// came up, or never came where it was to stand.
std::string start_and_kill(const char* victim, TruthFile const& truth, Fate const& fate) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return {};
  const std::string thread_text = std::to_string(fate.threads);
  const std::string point_text = std::to_string(fate.stand_at ? static_cast<int>(fate.stand_at->point) : -1);
  const std::string operation_text = std::to_string(fate.stand_at ? static_cast<int>(fate.stand_at->operation) : 0);
  const std::string passage_text = std::to_string(fate.passage);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], 1);
    execl(victim, victim, truth.path().c_str(), thread_text.c_str(), point_text.c_str(), operation_text.c_str(),
          passage_text.c_str(), static_cast<char*>(nullptr));
    _exit(72);
  }
  close(output[1]);
  std::string path;
  char one = 0;
  while (read(output[0], &one, 1) == 1 && one != '\n') path += one;
  if (one != '\n') path.clear();
  const bool stands = path.empty() || !fate.stand_at || !kTestPoints || wait_until_it_stands(child, *truth);
  std::this_thread::sleep_for(fate.moment);
  ::kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(output[0]);
  return stands && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? path : std::string{};
}

struct Totals {
  Standing standing;
  std::uint64_t kills = 0, records = 0, uncommitted = 0, live_blocks = 0, skipped_slots = 0, missing = 0, in_flight = 0,
                problems = 0;

  void add(PostMortem const& one) {
    ++kills;
    standing.idle += one.standing.idle;
    for (std::size_t i = 0; i < Standing::kSteps; ++i) {
      for (std::size_t operation = 0; operation < Standing::kOperations; ++operation)
        standing.within[operation][i] += one.standing.within[operation][i];
    }
    records += one.records;
    uncommitted += one.uncommitted;
    live_blocks += one.live_blocks;
    skipped_slots += one.skipped_slots;
    missing += one.missing_records;
    in_flight += one.in_flight;
    problems += one.problems.size();
  }
};

std::optional<Class> class_without_kill(std::vector<Class> const& classes, Standing const& standing) {
  if (!kTestPoints) return std::nullopt;
  for (auto const& one : classes) {
    if (standing.at(one.operation, one.point) == 0) return one;
  }
  return std::nullopt;
}

// Each class that must occur, and each that did; how many never did.
int print_classes(std::vector<Class> const& classes, Standing const& standing) {
  int never = 0;
  for (std::size_t operation = 1; operation < Standing::kOperations; ++operation) {
    for (std::size_t step = 0; step < Standing::kSteps; ++step) {
      const bool must = std::ranges::any_of(classes, [&](Class const& one) {
        return static_cast<std::size_t>(one.operation) == operation && static_cast<std::size_t>(one.point) + 1 == step;
      });
      const std::uint64_t count = standing.within[operation][step];
      if (!must && count == 0) continue;
      std::printf("  %-10s %-22s %6llu%s\n", kOperationNames[operation], step_name(step), static_cast<unsigned long long>(count),
                  must && count == 0 ? "   NEVER" : "");
      if (must && count == 0) ++never;
    }
  }
  return never;
}

}  // namespace

int run(const char* victim) {
  std::string folder = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string{"/headroom-kill-XXXXXX"};
  if (mkdtemp(folder.data()) == nullptr) return 67;
  setenv("HEADROOM_DIR", folder.c_str(), 1);
  TruthFile truth{folder + "/truth"};

  const std::vector<Class> classes = all_classes();
  // Never fewer kills than classes.
  const std::uint64_t kills = std::max<std::uint64_t>(test::scaled(100), classes.size() * 4 / 3 + 2);
  const auto seed = std::random_device{}();
  std::mt19937 random{seed};
  Totals totals;
  auto favourite = classes.begin();
  // A few kills more, if need be, for classes that none fell into so far.
  for (std::uint64_t i = 0; i < kills || (i < kills + kMostExtraKills && class_without_kill(classes, totals.standing)); ++i) {
    Fate fate{.threads = i % 10 == 9 ? 60 : 4,  // 60: more than there are lanes of their own
              .stand_at = std::nullopt,
              .passage = 1 + random() % 4,
              .moment = std::chrono::microseconds{2000 + random() % 15'000}};
    if (i >= kills) {
      fate.stand_at = class_without_kill(classes, totals.standing);
    } else if (i % 4 != 3) {
      fate.stand_at = *favourite;
      if (++favourite == classes.end()) favourite = classes.begin();
    }
    truth.clear();
    const std::string path = start_and_kill(victim, truth, fate);
    PostMortem found;
    if (path.empty()) {
      found.problems.emplace_back("the victim ended by itself, or never stood where it was to be killed");
    } else {
      found = examine(path, *truth);
    }
    for (std::size_t p = 0; p < std::min<std::size_t>(found.problems.size(), 5); ++p) {
      std::printf("kill %llu, standing at %d within %d, %d threads: %s\n", static_cast<unsigned long long>(i),
                  fate.stand_at ? static_cast<int>(fate.stand_at->point) : -1,
                  fate.stand_at ? static_cast<int>(fate.stand_at->operation) : 0, fate.threads, found.problems[p].c_str());
    }
    totals.add(found);
    if (!path.empty()) std::filesystem::remove(path);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);

  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu kills (seed %u): %llu records checked, %llu of them uncommitted; %llu live blocks checked, %llu slots half written; "
      "%llu lanes with an operation under way, %llu of them counted it and had not recorded it; %llu problems\n",
      number(totals.kills), seed, number(totals.records), number(totals.uncommitted), number(totals.live_blocks),
      number(totals.skipped_slots), number(totals.in_flight), number(totals.missing), number(totals.problems));
  std::printf("lanes by the last step that their thread passed:\n  %-10s %-22s %6llu\n", "idle", "",
              number(totals.standing.idle));
  const int never = print_classes(classes, totals.standing);
  if (kTestPoints && never != 0) std::printf("%d classes never occurred\n", never);
  return totals.problems == 0 && (never == 0 || !kTestPoints) ? 0 : 1;
}

}  // namespace headroom::kill

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: kill_driver VICTIM\n", stderr);
    return 64;
  }
  return headroom::kill::run(argv[1]);
}
