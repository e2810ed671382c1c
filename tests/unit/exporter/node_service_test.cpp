// The whole node exporter but for HTTP: real files whose processes come and go while several threads scrape.
#include "node_service.hpp"

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "flat_memory.hpp"
#include "flight_builder.hpp"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kAllocations = 5;

/// A file with a lock on it, as a living process has; five allocations of 100 bytes.
class RealFile {
public:
  enum class Age : bool { young, old };  // began after the exporter, or long before
  RealFile(std::string const& folder, std::uint64_t number, Age age = Age::young) {
    flight::FlightBuilder file;
    auto& header = file.header();
    std::strcpy(header.program, "rank");
    std::strcpy(header.boot_id, boot_id().c_str());
    header.pid = number;
    header.run = number << 32;
    header.start_realtime_ns = age == Age::old ? 1 : ~std::uint64_t{0} >> 1;
    header.start_monotonic_ns = header.start_realtime_ns;
    header.lanes_used = 1;
    auto& ledger = file.open_ledger(0, 2, "pool");
    ledger.alloc = 100 * kAllocations;
    ledger.claim = 100 * kAllocations;
    file.lane(0).counters[0].allocations = kAllocations;
    const std::string temporary = folder + "/." + std::to_string(number);
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "/rank.%" PRIu64 ".%016" PRIx64 ".flight", number, number << 32);
    path_ = folder + name.data();
    file.save(temporary);
    lock_ = ::open(temporary.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    EXPECT_EQ(::fcntl(lock_, F_OFD_SETLK, &lock), 0);
    fs::rename(temporary, path_);
  }
  RealFile(RealFile&& other) noexcept : path_{std::move(other.path_)}, lock_{std::exchange(other.lock_, -1)} {}
  RealFile& operator=(RealFile&&) = delete;
  ~RealFile() { kill(); }

  void kill() {
    if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  }
  void exit() {
    const auto closed = static_cast<std::uint64_t>(flight::ProcessState::closed);
    EXPECT_EQ(::pwrite(lock_, &closed, sizeof closed, offsetof(flight::FileHeader, state)), ssize_t{sizeof closed});
    ::unlink(path_.c_str());
    kill();
  }
  [[nodiscard]] std::string const& path() const { return path_; }

private:
  static std::string boot_id() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string text;
    std::getline(file, text);
    return text;
  }

  std::string path_;
  int lock_ = -1;
};

class NodeServices : public testing::Test {
protected:
  NodeServices() {
    std::string pattern = fs::temp_directory_path() / "headroom-node-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    folder_ = root_ + "/flights";
    fs::create_directory(folder_);
    fs::permissions(folder_, fs::perms::owner_all);
  }
  ~NodeServices() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  [[nodiscard]] NodeService::Options options() const {
    NodeService::Options options;
    options.folders = {folder_};
    options.dump_folder = root_ + "/dumps";
    options.survives_truncation = true;
    return options;
  }

  /// Of all lines that begin so.
  static std::uint64_t sum_of(std::string const& text, std::string const& begin) {
    std::uint64_t sum = 0;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(begin)) sum += std::stoull(line.substr(line.rfind(' ') + 1));
    }
    return sum;
  }
  static std::uint64_t allocations_in(std::string const& text) {
    return sum_of(text, "headroom_allocations_total{") + sum_of(text, "headroom_exited_allocations_total{");
  }
  /// Scrapes until it is so.
  template <class Enough>
  static std::string scrape_until(NodeService& service, Enough const& is_enough) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{4};
    for (;;) {
      auto text = service.metrics().body;
      if (is_enough(text) || std::chrono::steady_clock::now() > deadline) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }

  std::string root_, folder_;
};

TEST_F(NodeServices, sums_never_fall_and_are_right_in_the_end_whoever_comes_and_goes) {
  constexpr std::uint64_t kFiles = 30;
  auto wanted = options();
  wanted.keep_dead = std::chrono::milliseconds{1};  // so that there are processes in every state
  NodeService service{std::move(wanted)};
  ASSERT_TRUE(service.start().has_value());
  std::atomic<bool> is_over{false};
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([&] {
      for (std::uint64_t before = 0; !is_over.load();) {
        const auto now = allocations_in(service.metrics().body);
        EXPECT_GE(now, before);
        EXPECT_EQ(now % kAllocations, 0U);
        EXPECT_LE(now, kFiles * kAllocations);
        before = now;
        static_cast<void>(service.status());
      }
    });
  }
  std::vector<RealFile> files;
  for (std::uint64_t number = 1; number <= kFiles; ++number) {
    files.emplace_back(folder_, number);
    // Who goes must have been seen, or would be missed for good.
    static_cast<void>(
        scrape_until(service, [&](std::string const& text) { return allocations_in(text) == number * kAllocations; }));
    if (number % 3 == 0) files.back().exit();
    if (number % 3 == 1) files.back().kill();
  }
  const auto last = scrape_until(service, [](std::string const& text) {
    return sum_of(text, "headroom_processes_died_total{") == 20 && sum_of(text, "headroom_post_mortems_total{") == 10 &&
           sum_of(text, "headroom_process_up{") == 10;
  });
  is_over = true;
  for (auto& scraper : scrapers) scraper.join();
  EXPECT_EQ(allocations_in(last), kFiles * kAllocations);
  EXPECT_EQ(sum_of(last, "headroom_processes_died_total{process=\"rank\",state=\"exited\"}"), 10U);
  EXPECT_EQ(sum_of(last, "headroom_processes_died_total{process=\"rank\",state=\"killed\"}"), 10U);
  EXPECT_EQ(sum_of(last, "headroom_allocated_bytes{"), 10 * 100 * kAllocations);
  EXPECT_EQ(sum_of(last, "headroom_post_mortem_failures_total{"), 0U);
  EXPECT_EQ(sum_of(last, "headroom_exporter_errors_total{"), 0U);
  service.stop();
  EXPECT_EQ(std::distance(fs::directory_iterator{root_ + "/dumps"}, {}), 10);
  EXPECT_EQ(std::distance(fs::directory_iterator{folder_}, {}), 10) << "the living ones' alone";
}

TEST_F(NodeServices, scrapes_leave_nothing_behind) {
  NodeService service{options()};
  std::vector<RealFile> files;
  for (std::uint64_t number = 1; number <= 3; ++number) files.emplace_back(folder_, number);
  ASSERT_TRUE(service.start().has_value());
  expect_nothing_is_left_behind([&](int number) {
    const auto reply = service.metrics({.accept = number % 2 == 0 ? "" : "application/openmetrics-text"});
    ASSERT_EQ(sum_of(reply.body, "headroom_process_up{"), 3U);
  });
}

TEST_F(NodeServices, a_file_that_is_truncated_at_any_size_ends_nobody) {
  NodeService service{options()};
  ASSERT_TRUE(service.start().has_value());
  std::vector<RealFile> files;
  for (std::uint64_t number = 1; number <= 8; ++number) files.emplace_back(folder_, number);
  static_cast<void>(scrape_until(service, [](std::string const& text) { return allocations_in(text) == 8 * kAllocations; }));
  const auto size = static_cast<std::uint64_t>(fs::file_size(files.front().path()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    ASSERT_EQ(::truncate(files[i].path().c_str(), static_cast<off_t>(size * i / files.size())), 0);
    EXPECT_EQ(allocations_in(service.metrics().body), 8 * kAllocations);
  }
  const auto text = service.metrics().body;
  // What was cut off behind everything that a scrape reads is not noticed, and need not be.
  EXPECT_GE(sum_of(text, "headroom_node_files_skipped_total{") + sum_of(text, "headroom_process_up{"), 8U);
  EXPECT_THAT(text, Not(HasSubstr("reason=\"truncated\"} 0")));
}

TEST_F(NodeServices, another_users_file_becomes_one_post_mortem_however_often_the_exporter_starts) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string others = root_ + "/others";
  fs::create_directory(others);
  fs::permissions(others, fs::perms::owner_all);
  RealFile foreign{others, 1, RealFile::Age::old};
  foreign.kill();
  for (auto const& path : {others, foreign.path()}) ASSERT_EQ(::chown(path.c_str(), 4'000'000, 4'000'000), 0);
  for (std::uint64_t start = 1; start <= 3; ++start) {
    // Ours, and seen to after the other: once it is gone, so is the other's turn.
    RealFile own{folder_, 10 + start, RealFile::Age::old};
    own.kill();
    auto wanted = options();
    wanted.folders = {others, folder_};
    NodeService service{std::move(wanted)};
    ASSERT_TRUE(service.start().has_value());
    static_cast<void>(scrape_until(service, [&](std::string const&) { return !fs::exists(own.path()); }));
    service.stop();
    EXPECT_EQ(std::distance(fs::directory_iterator{root_ + "/dumps"}, {}), static_cast<std::ptrdiff_t>(1 + start));
  }
  EXPECT_TRUE(fs::exists(foreign.path())) << "not ours to remove";
}

TEST_F(NodeServices, a_post_mortem_that_cannot_be_written_leaves_the_file) {
  auto wanted = options();
  wanted.dump_folder = folder_ + "/rank.1.0000000100000000.flight";  // no folder
  NodeService service{std::move(wanted)};
  ASSERT_TRUE(service.start().has_value());
  RealFile file{folder_, 1};
  static_cast<void>(scrape_until(service, [](std::string const& text) { return allocations_in(text) == kAllocations; }));
  file.kill();
  const auto text =
      scrape_until(service, [](std::string const& now) { return sum_of(now, "headroom_post_mortem_failures_total{") == 1; });
  EXPECT_EQ(sum_of(text, "headroom_post_mortem_failures_total{"), 1U);
  EXPECT_TRUE(fs::exists(file.path()));
}

}  // namespace
}  // namespace headroom::exporter
