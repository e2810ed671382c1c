// Files on disk, names, process information, liveness.
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight/alive_lock.hpp"
#include "flight/liveness.hpp"
#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FlightFiles : public ::testing::Test {
protected:
  FlightFiles() {
    std::string pattern = fs::temp_directory_path() / "headroom-reader-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~FlightFiles() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  [[nodiscard]] std::string path(std::string const& name) const { return folder + "/" + name; }
  void expect_error(std::string const& file, ErrorKind kind, std::string const& part) const {
    auto const view = FlightView::open(file);
    ASSERT_FALSE(view.has_value());
    EXPECT_EQ(view.error().kind, kind);
    EXPECT_THAT(view.error().message, HasSubstr(file + ": "));
    EXPECT_THAT(view.error().message, HasSubstr(part));
  }
  std::string folder;
};

TEST_F(FlightFiles, opens_what_was_saved) {
  FlightBuilder file;
  file.open_ledger(0, 1, "main").claim = 42;
  file.save(path("a.flight"));
  auto const view = FlightView::open(path("a.flight"));
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_EQ(view->path(), path("a.flight"));
  EXPECT_EQ(view->ledgers().at(0).claimed, 42U);
}

TEST_F(FlightFiles, says_why_a_file_cannot_be_opened) {
  expect_error(path("absent"), ErrorKind::io, "cannot open: No such file");
  expect_error(folder, ErrorKind::io, "is no regular file");
  FlightBuilder{}.save(path("real"));
  fs::create_symlink(path("real"), path("link"));
  expect_error(path("link"), ErrorKind::io, "is a symbolic link");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error(path("pipe"), ErrorKind::io, "is no regular file");  // and does not wait for a writer
}

TEST_F(FlightFiles, refuses_every_cut) {
  FlightBuilder const file;
  auto const whole = file.bytes().size();
  for (std::size_t const size : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096}, whole / 2, whole - 1}) {
    file.save(path("cut"), size);
    expect_error(path("cut"), ErrorKind::parse, size < 4096 ? "its header alone has 4096" : "cut off?");
  }
}

TEST_F(FlightFiles, is_alive_while_someone_holds_the_lock) {
  FlightBuilder{}.save(path("f"));
  auto const view = FlightView::open(path("f")).value();
  EXPECT_EQ(view.liveness(), Liveness::dead);
  auto const writer = ::open(path("f").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  ASSERT_TRUE(try_lock_alive(writer));
  EXPECT_EQ(view.liveness(), Liveness::living);
  auto const second = ::open(path("f").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_FALSE(try_lock_alive(second)) << "one writer";
  ::close(second);
  EXPECT_EQ(view.liveness(), Liveness::living) << "closing another descriptor drops no OFD lock";
  EXPECT_EQ(is_locked_by_other(writer), false) << "its own lock is not another's";
  ::close(writer);
  EXPECT_EQ(view.liveness(), Liveness::dead);
  EXPECT_EQ(is_locked_by_other(-1), std::nullopt);
}

std::string text_of(std::string const& file) {
  std::ifstream in{file};
  std::string line;
  std::getline(in, line);
  return line;
}

TEST(FlightLiveness, falls_back_to_pid_start_time_and_boot) {
  FlightBuilder file;
  auto& header = file.header();
  EXPECT_EQ(file.view().liveness(), Liveness::unknown) << "no file, no lock to ask for";
  header.alive_by = static_cast<std::uint32_t>(AliveBy::pid_and_boot);
  header.pid = static_cast<std::uint64_t>(::getpid());
  header.process_start_ticks = start_ticks_in(text_of("/proc/self/stat"));
  ASSERT_GT(header.process_start_ticks, 0U);
  EXPECT_EQ(file.view().liveness(), Liveness::dead) << "another boot";
  auto const boot = text_of("/proc/sys/kernel/random/boot_id");
  ASSERT_EQ(boot.size(), 36U);
  std::ranges::copy(boot, header.boot_id);
  EXPECT_EQ(file.view().liveness(), Liveness::living);
  ++header.process_start_ticks;
  EXPECT_EQ(file.view().liveness(), Liveness::dead) << "the pid was given away again";
  header.process_start_ticks = 0;
  EXPECT_EQ(file.view().liveness(), Liveness::unknown);
  header.pid = 0xFFFF'FFFF'FFFF;
  EXPECT_EQ(file.view().liveness(), Liveness::dead);
  header.alive_by = 9;
  EXPECT_EQ(file.view().liveness(), Liveness::unknown);
}

TEST(FlightLiveness, counts_fields_behind_a_name_that_holds_anything) {
  EXPECT_EQ(start_ticks_in("7 (a) b) (c) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 222 23"), 222U);
  EXPECT_EQ(start_ticks_in("7 (short) S 4"), 0U);
  EXPECT_EQ(start_ticks_in("no parenthesis"), 0U);
  EXPECT_EQ(start_ticks_in(""), 0U);
}

TEST(FlightNames, are_valid_utf8_whatever_the_file_says) {
  FlightBuilder file;
  file.put_name(1, EntryKind::tag, 7, 3, "gewicht-\xC3\xA4");
  file.put_name(2, EntryKind::tag, 0, 0,
                "a\xFF"
                "b\xC3");
  file.put_name(3, EntryKind::tag, 0, 0, std::string(96, 'x'));  // not terminated
  file.put_name(4, EntryKind::site, 0, 0, "half", EntryState::writing);
  file.put_name(5, EntryKind::site, 0, 0, "gone", EntryState::free);
  file.put_name(6, EntryKind::hook, 0, 0, "closed", EntryState::closed);
  auto const view = file.view();
  auto const name = view.name(1);
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->label, "gewicht-ä");
  EXPECT_EQ(name->kind, EntryKind::tag);
  EXPECT_EQ(name->parent, 7U);
  EXPECT_EQ(name->number, 3U);
  EXPECT_EQ(name->generation, 1U);
  EXPECT_EQ(view.label(2),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(view.label(3), std::string(96, 'x'));
  EXPECT_FALSE(view.name(4).has_value());
  EXPECT_FALSE(view.name(5).has_value());
  EXPECT_EQ(view.name(6)->state, EntryState::closed);
  EXPECT_FALSE(view.name(0).has_value()) << "0 means none";
  for (std::uint32_t const id : {31U, 32U, 0xFFFF'FFFFU}) EXPECT_EQ(view.label(id), "");
}

TEST(FlightProcess, is_told_as_the_header_says_and_no_more) {
  FlightBuilder file;
  auto& header = file.header();
  header.pid = 12;
  header.run = 0x00AB'CDEF'1234'5678;
  std::memset(header.program, 'p', sizeof header.program);  // not terminated
  header.program[1] = '\xC0';
  header.wanted_bytes = header.file_bytes;
  header.exporter_port = 9478;
  header.exporter_state = static_cast<std::uint64_t>(ExporterState::serving);
  header.refused_no_lane = 4;
  header.lanes_used = 1;
  file.lane(0).header.owner = 77;
  file.lane(50).header.owner = 1;  // shared and busy
  auto info = file.view().process();
  EXPECT_EQ(info.pid, 12U);
  EXPECT_EQ(info.program, "p\xEF\xBF\xBD" + std::string(62, 'p'));
  EXPECT_FALSE(info.was_shrunk);
  EXPECT_EQ(info.exporter_port, 9478U);
  EXPECT_EQ(info.exporter_state, ExporterState::serving);
  EXPECT_EQ(info.state, ProcessState::live);
  EXPECT_EQ(info.refused_no_lane, 4U);
  EXPECT_EQ(info.lanes_in_use, 1U);
  EXPECT_EQ(short_run(info.run), "00abcdef");
  auto const lanes = file.view().lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].thread, 76U);
  EXPECT_FALSE(lanes[1].owned);

  header.wanted_bytes = header.file_bytes * 2;
  header.state = 1000;
  header.exporter_state = 1000;
  header.exporter_port = 70'000;
  info = file.view().process();
  EXPECT_TRUE(info.was_shrunk);
  EXPECT_EQ(info.state, ProcessState::failed);
  EXPECT_EQ(info.exporter_state, ExporterState::none);
  EXPECT_EQ(info.exporter_port, 0U);
}

TEST(FlightProcess, has_no_figures_of_lanes_that_nobody_ever_owned) {
  FlightBuilder file;
  auto const write = [&](std::uint32_t lane) { file.write(lane, Ring::main, record(EventKind::allocate, 1)); };
  for (std::uint32_t const lane : {0U, 2U, 3U, 47U, 48U, 63U}) {
    file.lane(lane).header.owner = 1 + lane;
    write(lane);
  }
  EXPECT_EQ(file.view().process().events_recorded, 2U) << "of the shared lanes 48 and 63 alone";
  file.header().lanes_used = 3;
  EXPECT_EQ(file.view().process().events_recorded, 4U) << "and of lanes 0 and 2";
  EXPECT_EQ(file.view().process().lanes_in_use, 2U);
  file.header().lanes_used = ~std::uint64_t{0};
  EXPECT_EQ(file.view().process().events_recorded, 6U);
  EXPECT_EQ(file.view().process().lanes_in_use, 4U);
}

TEST(FlightHostile, reads_a_file_of_nothing_but_ones) {
  // Everything behind the header is 0xFF: whatever it claims, reading ends and stays inside.
  FlightBuilder file;
  auto* const first = reinterpret_cast<std::byte*>(&file.header()) + sizeof(FileHeader);
  std::memset(first, 0xFF, file.bytes().size() - sizeof(FileHeader));
  file.header().lanes_used = file.header().directory_used = ~std::uint64_t{0};
  auto const view = file.view();
  EXPECT_TRUE(view.ledgers().empty()) << "state 2^64 − 1";
  for (std::uint32_t cell = 0; cell < 64; ++cell) file.ledger(cell).state = 1;
  EXPECT_EQ(view.ledgers().size(), 64U);
  EXPECT_EQ(view.for_each_live([](LiveAllocation const&) {}), 16U) << "all being written";
  EXPECT_TRUE(view.first_failures().empty());
  EXPECT_TRUE(view.in_flight().empty());
  EXPECT_EQ(view.lanes().size(), 64U);
  static_cast<void>(view.process());
  static_cast<void>(view.clock().realtime_ns(5));
}

}  // namespace
}  // namespace headroom::flight
