// The post-mortem that a failing program writes by itself: where it goes, and that no lack of anything disturbs the failure.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/guard.hpp>
#include <headroom/resource_decorator.hpp>
#include <headroom/tag.hpp>

#include "guards.hpp"
#include "host_memory.hpp"
#include "own_process.hpp"

namespace headroom::test {
namespace {

TEST_F(AutomaticDeathTest, a_stderr_whose_reader_has_gone_ends_nobody) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    const int stderr_before = dup(STDERR_FILENO);
    int ends[2];
    CHECK(pipe(ends) == 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    dup2(stderr_before, STDERR_FILENO);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
    CHECK(only_dump(folder).complete);
  });
}

/// A driver that has much to say.
class Talkative final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "talkative";
  explicit Talkative(InnerResource inner) noexcept : ResourceDecorator(std::move(inner)) {}
  [[nodiscard]] Result<Block> allocate(AllocRequest const& /*request*/) override {
    return fail(ErrorKind::device_out_of_memory, Layer::driver, std::string(100'000, '\xFF'));
  }
};

TEST_F(AutomaticDeathTest, a_message_of_any_length_is_cut_so_that_readers_take_it) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto device = Device::custom("talkative", decorate<Talkative>(HostResource::create({.touch_memory = false}).value()).value());
    auto manager = GpuMemoryManager::create(device.value(), MemoryBudget::unlimited()).value();
    CHECK(!manager.alloc<std::byte>(kMiB));
    CHECK(only_dump(folder).failure->message == std::string(4'096, '\xFF'));
  });
}

TEST_F(AutomaticDeathTest, off_means_off) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    setenv("HEADROOM_DUMP", "off", 1);
    auto [resource, guard] = host_guard(kMiB);
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    CHECK(!std::filesystem::exists(folder.path() / kFolder));
    CHECK(post_mortem_counts().written + post_mortem_counts().skipped + post_mortem_counts().failed == 0);
  });
}

TEST_F(AutomaticDeathTest, a_folder_that_cannot_be_had_is_counted_and_the_error_stays_what_it_is) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    std::ofstream{folder.path() / "file"} << "x";
    setenv("HEADROOM_DUMP_DIR", (folder.path() / "file" / "sub").c_str(), 1);
    auto [resource, guard] = host_guard(kMiB);
    errno = 77;
    const auto refused = guard.safe_alloc<std::byte>(2 * kMiB);
    CHECK(errno == 77);
    CHECK(!refused && refused.error().kind == ErrorKind::over_budget && *refused.error().requested == 2 * kMiB);
    CHECK(refused.error().to_string().starts_with("2 MiB refused by manager (over_budget): 0 B of 1 MiB claimed"));
    CHECK(post_mortem_counts().failed == 1 && post_mortem_counts().last_error == ENOTDIR && last_post_mortem().empty());
  });
}

TEST_F(AutomaticDeathTest, without_a_home_it_is_counted) {
  expect_in_own_process([](TemporaryFolder const&) {
    for (auto const* const name : {"HEADROOM_DUMP_DIR", "XDG_STATE_HOME", "HOME"}) unsetenv(name);
    auto [resource, guard] = host_guard(kMiB);
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    CHECK(post_mortem_counts().failed == 1 && post_mortem_counts().last_error == ENOENT);
  });
}

TEST_F(AutomaticDeathTest, what_others_print_to_a_closed_stderr_does_not_land_in_it) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    const int stderr_before = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    std::atomic<bool> over{false};
    std::thread printer{[&] {
      while (!over.load()) [[maybe_unused]]
        const ssize_t written = write(STDERR_FILENO, "noise", 5);
    }};
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    over.store(true);
    printer.join();
    dup2(stderr_before, STDERR_FILENO);
    CHECK(only_dump(folder).complete);
  });
}

void limit_file_size(rlim_t bytes) {
  static_cast<void>(std::fflush(stdout));  // it may be a file, and what waits to be written there is not what is tried
  const rlimit limit{bytes, bytes};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

TEST_F(AutomaticDeathTest, without_room_for_the_events_a_reduced_one_is_written) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    for (int i = 0; i < 3'000; ++i) CHECK(guard.safe_alloc<std::byte>(16));  // some 300 KB of events
    limit_file_size(60'000);
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));  // and no SIGXFSZ
    const auto counts = post_mortem_counts();
    CHECK(counts.written == 1 && counts.reduced == 1 && counts.failed == 0);
    const auto dump = only_dump(folder);
    CHECK(!dump.complete && !dump.truncated && dump.events.empty() && dump.events_contents == "left_out");
    CHECK(dump.events_left_out_because == "File too large" && dump.failure->requested_bytes == 2 * kMiB &&
          dump.ledgers.size() == 1);
  });
}

TEST_F(AutomaticDeathTest, without_any_room_it_is_counted_and_nothing_is_left_behind) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    limit_file_size(100);
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    CHECK(post_mortem_counts().written == 0 && post_mortem_counts().failed == 1 && post_mortem_counts().last_error == EFBIG);
    CHECK(folder.names(kFolder).empty());
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0);
  });
}

TEST_F(AutomaticDeathTest, it_needs_no_memory_that_was_not_set_aside) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    auto held = guard.safe_alloc<std::byte>(1'000, AllocTag{"held"}).value();
    {
      const HostMemoryEnds now;
      const auto refused = guard.safe_alloc<std::byte>(2 * kMiB);
      CHECK(!refused && refused.error().kind == ErrorKind::over_budget && *refused.error().requested == 2 * kMiB);
    }
    const auto dump = only_dump(folder);
    CHECK(dump.complete && dump.failure->requested_bytes == 2 * kMiB && dump.live_bytes == 1'000 && !dump.events.empty());
  });
}

// Sanitizers map the whole address space, and cannot live under a limit of it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(AutomaticDeathTest, it_maps_nothing_when_the_address_space_is_full) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    auto held = guard.safe_alloc<std::byte>(1'000).value();
    const rlimit none{4'096, 4'096};  // below what is mapped already: everything more is refused
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    CHECK(mmap(nullptr, 4'096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    const auto refused = guard.safe_alloc<std::byte>(2 * kMiB);
    CHECK(!refused && *refused.error().requested == 2 * kMiB);
    CHECK(post_mortem_counts().written == 1 && post_mortem_counts().reduced == 0 && post_mortem_counts().failed == 0);
    const auto path = last_post_mortem();
    CHECK(path.starts_with(folder.path().string()) && std::filesystem::file_size(path) > 1'000);
  });
}
#endif

TEST_F(AutomaticDeathTest, a_forked_child_writes_none) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    auto held = take(guard, 1'000);
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = !guard.safe_alloc<std::byte>(2 * kMiB);
      const auto asked = write_post_mortem((folder.path() / "child.json").string(), "child");
      _exit(refused && !asked && asked.error().kind == ErrorKind::unsupported ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(folder.names(kFolder).empty() && !std::filesystem::exists(folder.path() / "child.json"));
    CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    CHECK(only_dump(folder).process.pid == static_cast<std::uint64_t>(getpid()));
  });
}

TEST_F(AutomaticDeathTest, says_where_it_lies_unless_it_is_to_be_quiet) {
  const auto fail_once = [](char const* quiet) {
    in_own_process([=](TemporaryFolder const&) {
      setenv("HEADROOM_QUIET", quiet, 1);
      auto [resource, guard] = host_guard(kMiB);
      CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    });
  };
  EXPECT_EXIT(fail_once("0"), ::testing::ExitedWithCode(0),
              "headroom: out of memory; post-mortem: /.*/dumps/.*\\.1\\.post-mortem\\.json");
  EXPECT_EXIT(fail_once("1"), ::testing::ExitedWithCode(0), ::testing::Not(::testing::HasSubstr("headroom:")));
}

TEST_F(AutomaticDeathTest, on_call_it_goes_where_one_wants_it) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    const auto path = (folder.path() / "mine.json").string();
    const auto too_early = write_post_mortem(path, "too early");
    CHECK(!too_early && too_early.error().kind == ErrorKind::invalid_argument);
    auto [resource, manager] = host_manager(MemoryBudget::with_limit(kMiB));
    auto held = manager.alloc<std::byte>(5'000, AllocTag{std::string(10'000, 't')}).value();
    CHECK(write_post_mortem(path, std::string(5'000, 'r'), {.events = false}));
    const auto dump = load_post_mortem(path).value();
    CHECK(dump.complete && dump.events.empty() && dump.events_contents == "left_out" && dump.reason == std::string(4'096, 'r'));
    CHECK(!dump.failure && dump.reason_kind == "requested" && dump.live_bytes == 5'000);
    const auto label = dump.label(dump.live.at(0).tag);
    CHECK(label == std::string(label.size(), 't') && label.size() > 50 && label.size() <= 96);  // as much as the directory holds
    CHECK(write_post_mortem(path, "again"));                                                    // over the one before
    CHECK(!load_post_mortem(path)->events.empty());
    const auto nowhere = write_post_mortem((folder.path() / "no" / "such.json").string(), "x");
    CHECK(!nowhere && nowhere.error().kind == ErrorKind::io &&
          nowhere.error().message.ends_with("such.json: No such file or directory"));
    CHECK(folder.names() == (std::vector<std::string>{"flights", "mine.json"}));
  });
}

}  // namespace
}  // namespace headroom::test
