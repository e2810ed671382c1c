// Folders and files as people and programs leave them.
#include "node_watch.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flight_builder.hpp"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;
using flight::FlightBuilder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class WatchTest : public testing::Test {
protected:
  WatchTest() {
    std::string pattern = fs::temp_directory_path() / "headroom-watch-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    folder_ = root_ + "/flights";
    make_folder(folder_);
  }
  ~WatchTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  static void make_folder(std::string const& path, mode_t mode = 0700) {
    fs::create_directory(path);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  static std::string name(int number) { return "p.1." + std::string(15, '0') + std::to_string(number) + ".flight"; }

  NodeWatch::Options options() {
    NodeWatch::Options options;
    options.places.folders = {folder_};
    options.time_to_finish = {};
    options.log = [this](std::string const& line) {
      const std::lock_guard lock{mutex_};
      log_.push_back(line);
    };
    return options;
  }
  NodeWatch::Sink sink() {
    return [this](std::shared_ptr<flight::FlightView const> const&, std::string const& path, FileId) {
      const std::lock_guard lock{mutex_};
      taken_.push_back(path);
      came_.notify_all();
      return answer_;
    };
  }
  std::vector<std::string> taken() {
    const std::lock_guard lock{mutex_};
    return taken_;
  }
  bool waits_for(std::string const& path) {
    std::unique_lock lock{mutex_};
    return came_.wait_for(lock, std::chrono::minutes{4}, [&] { return std::ranges::find(taken_, path) != taken_.end(); });
  }
  static std::uint64_t count(NodeWatch const& watch, Skip reason) { return watch.skipped()[static_cast<std::size_t>(reason)]; }

  std::string root_, folder_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> taken_;
  std::vector<std::string> log_;
  NodeBooks::Arrival answer_ = NodeBooks::Arrival::taken;
};

TEST_F(WatchTest, takes_each_file_once_and_a_new_one_under_the_same_name_again) {
  FlightBuilder{}.save(folder_ + "/" + name(1));
  NodeWatch watch{options(), sink()};
  watch.list_all();
  watch.list_all();
  EXPECT_THAT(taken(), ElementsAre(folder_ + "/" + name(1)));
  FlightBuilder{}.save(root_ + "/new");
  fs::rename(root_ + "/new", folder_ + "/" + name(1));
  watch.list_all();
  EXPECT_THAT(taken(), SizeIs(2));
  EXPECT_THAT(watch.folders(), ElementsAre(1, 0, 0));
  EXPECT_THAT(watch.skipped(), testing::Each(0));
}

TEST_F(WatchTest, passes_over_what_is_not_named_as_a_flight_file) {
  FlightBuilder{}.save(folder_ + "/." + name(1) + ".new");
  FlightBuilder{}.save(folder_ + "/." + name(1));
  FlightBuilder{}.save(folder_ + "/notes.txt");
  NodeWatch watch{options(), sink()};
  watch.list_all();
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_THAT(watch.skipped(), testing::Each(0));
}

TEST_F(WatchTest, counts_what_cannot_be_read_by_reason_and_names_it_once) {
  FlightBuilder good;
  good.save(folder_ + "/" + name(1), 100);  // cut off within its header
  FlightBuilder newer;
  newer.header().abi_major = 99;
  newer.save(folder_ + "/" + name(2));
  fs::create_symlink("/etc/passwd", folder_ + "/" + name(3));
  good.save(folder_ + "/" + name(4));
  NodeWatch watch{options(), sink()};
  for (int i = 0; i < 3; ++i) watch.list_all();
  EXPECT_EQ(count(watch, Skip::broken), 1U);
  EXPECT_EQ(count(watch, Skip::unsupported), 1U);
  EXPECT_EQ(count(watch, Skip::foreign), 1U) << "a link is nobody's flight file";
  EXPECT_THAT(taken(), ElementsAre(folder_ + "/" + name(4)));
  ASSERT_THAT(log_, SizeIs(3));
  EXPECT_THAT(log_[0], HasSubstr(name(1)));
  EXPECT_THAT(log_[1], HasSubstr(name(2)));
  EXPECT_THAT(log_[2], HasSubstr(name(3)));
}

TEST_F(WatchTest, gives_a_half_written_file_time_and_takes_it_when_it_is_whole) {
  auto patient = options();
  patient.time_to_finish = std::chrono::hours{1};
  FlightBuilder file;
  file.save(folder_ + "/" + name(1), 5'000);
  NodeWatch watch{std::move(patient), sink()};
  watch.list_all();
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(count(watch, Skip::broken), 0U);
  file.save(folder_ + "/" + name(1));
  watch.list_all();
  EXPECT_THAT(taken(), SizeIs(1));
}

TEST_F(WatchTest, tries_a_file_again_for_which_there_was_no_room) {
  answer_ = NodeBooks::Arrival::too_many;
  FlightBuilder{}.save(folder_ + "/" + name(1));
  NodeWatch watch{options(), sink()};
  watch.list_all();
  watch.list_all();
  EXPECT_EQ(count(watch, Skip::too_many), 1U);
  answer_ = NodeBooks::Arrival::taken;
  watch.list_all();
  watch.list_all();
  EXPECT_THAT(taken(), SizeIs(3));
}

TEST_F(WatchTest, refuses_a_folder_that_others_may_write_to_and_takes_it_once_they_may_not) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(check_folder(folder_).error().message, HasSubstr("its mode is 0777, expected one that lets nobody"));
  FlightBuilder{}.save(folder_ + "/" + name(1));
  NodeWatch watch{options(), sink()};
  watch.list_all();
  watch.list_all();
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_THAT(watch.folders(), ElementsAre(0, 0, 1));
  ASSERT_THAT(log_, SizeIs(1)) << "once";
  EXPECT_THAT(log_[0], HasSubstr(folder_ + ": refused: its mode is 0777"));
  ASSERT_EQ(::chmod(folder_.c_str(), 0750), 0);
  EXPECT_TRUE(check_folder(folder_).has_value());
  watch.list_all();
  EXPECT_THAT(taken(), SizeIs(1));
}

TEST_F(WatchTest, waits_for_a_folder_that_is_missing_and_refuses_what_is_none) {
  auto wanted = options();
  wanted.places.folders = {root_ + "/later/", folder_};
  EXPECT_TRUE(check_folder(root_ + "/later").has_value());
  std::ofstream{root_ + "/file"} << "x";
  EXPECT_THAT(check_folder(root_ + "/file").error().message, HasSubstr("is no folder"));
  EXPECT_FALSE(check_folder("").has_value());
  NodeWatch watch{std::move(wanted), sink()};
  watch.list_all();
  EXPECT_THAT(watch.folders(), ElementsAre(1, 1, 0));
  make_folder(root_ + "/later");
  FlightBuilder{}.save(root_ + "/later/" + name(1));
  watch.list_all();
  EXPECT_THAT(taken(), ElementsAre(root_ + "/later/" + name(1)));
  EXPECT_THAT(watch.folders(), ElementsAre(2, 0, 0));
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(WatchTest, a_file_that_is_gone_as_soon_as_it_has_its_name_was_opened_before) {
  NodeWatch watch{options(), sink()};
  watch.list_all();
  FlightBuilder{}.save(folder_ + "/." + name(1) + ".new");
  watch.read_events();
  EXPECT_THAT(taken(), IsEmpty()) << "not before it is whole";
  fs::rename(folder_ + "/." + name(1) + ".new", folder_ + "/" + name(1));
  fs::remove(folder_ + "/" + name(1));
  watch.read_events();
  EXPECT_THAT(taken(), ElementsAre(folder_ + "/" + name(1)));
  EXPECT_THAT(watch.skipped(), testing::Each(0));
}

TEST_F(WatchTest, a_file_that_nobody_saw_before_it_was_gone_is_counted) {
  NodeWatch watch{options(), sink()};
  watch.list_all();
  FlightBuilder{}.save(root_ + "/new");
  fs::rename(root_ + "/new", folder_ + "/" + name(1));
  fs::remove(folder_ + "/" + name(1));
  std::ofstream{folder_ + "/." + name(2) + ".new"} << "no flight file";
  watch.read_events();
  fs::rename(folder_ + "/." + name(2) + ".new", folder_ + "/" + name(2));
  fs::remove(folder_ + "/" + name(2));
  watch.read_events();
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_EQ(count(watch, Skip::vanished) + count(watch, Skip::broken), 2U);
  EXPECT_EQ(count(watch, Skip::vanished), 1U);
}

TEST_F(WatchTest, a_folder_on_a_network_volume_is_listed_often_and_named_once) {
  auto chosen = options();
  chosen.network_of = [](std::string const&) { return "NFS"; };
  chosen.list_every = std::chrono::hours{1};
  chosen.list_every_without = std::chrono::milliseconds{1};
  NodeWatch watch{chosen, sink()};
  watch.list_all();
  std::thread runner{[&watch] { watch.run(); }};
  FlightBuilder{}.save(root_ + "/new");
  fs::rename(root_ + "/new", folder_ + "/" + name(1));
  EXPECT_TRUE(waits_for(folder_ + "/" + name(1))) << "no event tells of it";
  watch.stop();
  runner.join();
  const std::lock_guard lock{mutex_};
  ASSERT_THAT(log_, SizeIs(1));
  EXPECT_THAT(log_.front(), HasSubstr(folder_ + ": lies on a network file system (NFS)"));
  EXPECT_THAT(log_.front(), HasSubstr("expected a folder on tmpfs"));
}

TEST_F(WatchTest, without_names_it_looks_where_programs_of_all_users_put_theirs) {
  auto usual = options();
  usual.places.folders.clear();
  usual.places.shared_memory = root_;
  usual.places.runtime = root_ + "/run";
  usual.places.common = root_ + "/common";
  const std::string user = std::to_string(::geteuid());
  make_folder(usual.places.runtime);
  make_folder(usual.places.common);
  for (auto const& of :
       {usual.places.runtime + '/' + user, usual.places.runtime + "/4000000000", usual.places.runtime + "/lock"}) {
    make_folder(of);
    make_folder(of + "/headroom");
    FlightBuilder{}.save(of + "/headroom/" + name(2));
  }
  FlightBuilder{}.save(usual.places.common + '/' + name(3));
  const std::string runtime_file = usual.places.runtime + '/' + user + "/headroom/" + name(2);
  const std::string common_file = usual.places.common + '/' + name(3);
  make_folder(usual.places.common + "/headroom-" + user);
  const std::string common_users_file = usual.places.common + "/headroom-" + user + '/' + name(4);
  FlightBuilder{}.save(common_users_file);
  const std::string own = root_ + "/headroom-" + std::to_string(::geteuid());
  make_folder(own);
  make_folder(root_ + "/headroom-notes");
  make_folder(root_ + "/headroom-4000000000");  // named for a user to whom it does not belong
  for (auto const& folder : {own, root_ + "/headroom-notes", root_ + "/headroom-4000000000"}) {
    FlightBuilder{}.save(folder + "/" + name(1));
  }
  ::unsetenv("HEADROOM_DIR");
  NodeWatch watch{std::move(usual), sink()};
  watch.list_all();
  const auto found = taken();
  EXPECT_THAT(found, testing::Contains(own + "/" + name(1)));
  EXPECT_THAT(found, testing::Contains(runtime_file));
  EXPECT_THAT(found, testing::Contains(common_file));
  EXPECT_THAT(found, testing::Contains(common_users_file));
  EXPECT_THAT(found, testing::Not(testing::Contains(HasSubstr("/lock/"))));
  EXPECT_GE(watch.folders()[static_cast<std::size_t>(FolderState::refused)], 2U) << "two that are named for another user";
  EXPECT_THAT(found, testing::Not(testing::Contains(HasSubstr("notes"))));
  EXPECT_THAT(found, testing::Not(testing::Contains(HasSubstr("4000000000"))));
  EXPECT_THAT(log_, testing::Contains(HasSubstr("headroom-4000000000: refused: belongs to user")));
}

TEST_F(WatchTest, takes_the_files_of_a_folder_in_a_folder_once) {
  auto nested = options();
  const std::string inner = folder_ + "/inner";
  make_folder(inner);
  FlightBuilder{}.save(folder_ + '/' + name(1));
  FlightBuilder{}.save(inner + '/' + name(2));
  nested.places.folders = {folder_, inner};
  NodeWatch watch{std::move(nested), sink()};
  for (int listing = 0; listing < 3; ++listing) watch.list_all();
  EXPECT_THAT(taken(), ElementsAre(folder_ + '/' + name(1), inner + '/' + name(2)));
}

TEST_F(WatchTest, a_folder_with_too_many_files_costs_no_other_folder_one) {
  auto two = options();
  const std::string other = root_ + "/other";  // listed after the full one
  make_folder(other);
  FlightBuilder{}.save(other + '/' + name(1));
  for (int number = 0; number < 4'100; ++number) std::ofstream{folder_ + "/x." + std::to_string(number) + ".flight"};
  two.places.folders = {folder_, other};
  NodeWatch watch{std::move(two), sink()};
  watch.list_all();
  watch.list_all();
  EXPECT_THAT(taken(), ElementsAre(other + '/' + name(1)));
  EXPECT_EQ(count(watch, Skip::too_many), 1U) << "the folder is counted, and named, once";
  EXPECT_EQ(
      std::ranges::count_if(log_, [](std::string const& line) { return line.find("more than 4096 files") != std::string::npos; }),
      1);
}

TEST_F(WatchTest, whoever_makes_events_without_end_does_not_keep_it_from_ending) {
  auto quiet = options();
  quiet.log = {};
  NodeWatch watch{std::move(quiet), sink()};
  watch.list_all();
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> renames{0};
  std::thread flood{[&] {
    const std::string one = folder_ + "/one.flight";
    const std::string two = folder_ + "/two.flight";
    FlightBuilder{}.save(one);
    while (!is_over) {
      static_cast<void>(std::rename(one.c_str(), two.c_str()));
      static_cast<void>(std::rename(two.c_str(), one.c_str()));
      ++renames;
    }
  }};
  std::thread watching{[&watch] { watch.run(); }};
  while (renames < 1'000) std::this_thread::yield();
  watch.stop();
  watching.join();  // while the flood goes on
  is_over = true;
  flood.join();
}

TEST_F(WatchTest, sees_files_as_they_appear_in_folders_that_appear) {
  for (const bool with_inotify : {true, false}) {
    SCOPED_TRACE(with_inotify);
    auto wanted = options();
    wanted.use_inotify = with_inotify;
    wanted.list_every = std::chrono::hours{1};
    wanted.list_every_without = std::chrono::milliseconds{5};
    const std::string later = root_ + (with_inotify ? "/one" : "/two");
    wanted.places.folders = {folder_, later};
    NodeWatch watch{std::move(wanted), sink()};
    watch.list_all();
    std::thread thread{[&watch] { watch.run(); }};
    const int number = with_inotify ? 5 : 6;
    FlightBuilder{}.save(folder_ + "/." + name(number));
    fs::rename(folder_ + "/." + name(number), folder_ + "/" + name(number));
    EXPECT_TRUE(waits_for(folder_ + "/" + name(number)));
    make_folder(later);
    FlightBuilder{}.save(later + "/" + name(number));
    EXPECT_TRUE(waits_for(later + "/" + name(number)));
    // Gone and made anew.
    fs::remove_all(later);
    make_folder(later);
    FlightBuilder{}.save(later + "/" + name(number + 2));
    EXPECT_TRUE(waits_for(later + "/" + name(number + 2)));
    watch.stop();
    thread.join();
  }
}

}  // namespace
}  // namespace headroom::exporter
