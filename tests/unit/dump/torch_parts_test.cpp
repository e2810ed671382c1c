// The parts of a snapshot's writer: stacks as frames, places of blocks that overlap, and which device has which list.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "dump/torch_devices.hpp"
#include "dump/torch_frames.hpp"
#include "dump/torch_places.hpp"
#include "post_mortems.hpp"
#include "unpickled.hpp"

namespace headroom::test {
namespace {

using dump::torch_frame;
using dump::TorchDevices;
using dump::TorchFrame;
using dump::TorchPlaced;
using dump::TorchPlaces;

constexpr std::uint64_t kElsewhere = TorchPlaces::kElsewhere;

TEST(TorchFrame, a_site_is_a_file_a_line_and_a_function) {
  EXPECT_EQ(torch_frame("src/pool.cpp:12 grow"), (TorchFrame{.file = "src/pool.cpp", .line = 12, .function = "grow"}));
  EXPECT_EQ(torch_frame("pool.cpp:0 int f(a::b, c)"), (TorchFrame{.file = "pool.cpp", .line = 0, .function = "int f(a::b, c)"}));
  EXPECT_EQ(torch_frame("C:\\x.cpp:7 a:b:9 c"), (TorchFrame{.file = "C:\\x.cpp", .line = 7, .function = "a:b:9 c"}));
  EXPECT_EQ(torch_frame("pool.cpp:12"), (TorchFrame{.file = "pool.cpp", .line = 12, .function = ""}));
  EXPECT_EQ(torch_frame("pool.cpp:12 "), (TorchFrame{.file = "pool.cpp", .line = 12, .function = ""}));
  EXPECT_EQ(torch_frame("a:4294967295 f"), (TorchFrame{.file = "a", .line = 4'294'967'295, .function = "f"}));
}

TEST(TorchFrame, whatever_else_it_is_is_a_function) {
  for (std::string const site : {"", "operator new", "ns::f", "x.cpp:", "x.cpp:12a f", "x.cpp:99999999999 f", ":", "x.cpp:-1 f"})
    EXPECT_EQ(torch_frame(site), (TorchFrame{.file = "", .line = 0, .function = site})) << site;
}

TEST(TorchFrame, the_innermost_frame_comes_first) {
  std::string buffer(64, '\0');
  StringSink sink;
  dump::PickleStream pickle{sink, buffer};
  pickle.begin_dict();
  dump::write_frames(pickle, "main.cpp:3 main;step;a.cpp:9 f");
  pickle.end_dict();
  ASSERT_EQ(pickle.finish(), 0);
  auto const expected = nlohmann::json::parse(R"([{"name": "f", "filename": "a.cpp", "line": 9},
                                                  {"name": "step", "filename": "", "line": 0},
                                                  {"name": "main", "filename": "main.cpp", "line": 3}])");
  EXPECT_EQ(unpickled(sink.text)["frames"], expected);
}

TEST(TorchPlaces, a_block_lies_where_it_was_recorded_if_nothing_else_does) {
  TorchPlaces places;
  EXPECT_EQ(places.add({.address = 0x1000, .bytes = 0x100}), 0x1000U);
  EXPECT_EQ(places.add({.address = 0x1100, .bytes = 0x100}), 0x1100U);
  EXPECT_EQ(places.add({.address = 0xf00, .bytes = 0x100}), 0xf00U);
  EXPECT_EQ(places.moved(), 0U);
}

TEST(TorchPlaces, blocks_that_overlap_by_one_byte_are_moved) {
  TorchPlaces places;
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 0x100}), 0x1000U);
  EXPECT_EQ(places.add({.address = 0x1000, .bytes = 0x100}), kElsewhere);
  EXPECT_EQ(places.add({.address = 0x10ff, .bytes = 600}), kElsewhere + 512);
  EXPECT_EQ(places.add({.address = 0xf00, .bytes = 0x101}), kElsewhere + 512 + 1024);
  EXPECT_EQ(places.add({.address = 0x800, .bytes = 0x2000}), kElsewhere + 512 + 1024 + 512);
  EXPECT_EQ(places.moved(), 4U);
}

TEST(TorchPlaces, the_oldest_block_is_taken_wherever_it_lies) {
  TorchPlaces places;
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8, .site = 1}), 0x1000U);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8, .site = 2}), kElsewhere);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 9, .site = 3}), kElsewhere + 512);
  EXPECT_EQ(places.take(0, 0x1000, 8)->block.site, 1U);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8, .site = 4}), 0x1000U);
  auto const second = places.take(0, 0x1000, 8);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->block.site, 2U);
  EXPECT_EQ(second->place, kElsewhere);
  EXPECT_EQ(places.take(0, 0x1000, 9)->place, kElsewhere + 512);
  EXPECT_EQ(places.take(0, 0x1000, 8)->block.site, 4U);
  EXPECT_FALSE(places.take(0, 0x1000, 8));
  EXPECT_TRUE(places.blocks().empty());
}

// One by one through all that lie at an address, this would be 2 · 10^10 steps, and outlast any test.
TEST(TorchPlaces, very_many_blocks_at_one_address_are_found_at_once) {
  constexpr std::uint64_t kBlocks = 200'000;
  TorchPlaces places;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(places.add({.address = 0x1000, .bytes = 100}), i == 0 ? 0x1000 : kElsewhere + (i - 1) * 512);
  }
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    auto const taken = places.take(0, 0x1000, 100);
    ASSERT_TRUE(taken);
    ASSERT_EQ(taken->place, i == 0 ? 0x1000 : kElsewhere + (i - 1) * 512);
  }
  EXPECT_FALSE(places.take(0, 0x1000, 100));
}

TEST(TorchPlaces, a_moved_block_that_was_taken_by_its_place_is_not_found_again) {
  TorchPlaces places;
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8}), 0x1000U);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8}), kElsewhere);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8}), kElsewhere + 512);
  ASSERT_TRUE(places.take_from(kElsewhere));
  EXPECT_EQ(places.take(0, 0x1000, 8)->place, 0x1000U);
  EXPECT_EQ(places.take(0, 0x1000, 8)->place, kElsewhere + 512);
  EXPECT_FALSE(places.take(0, 0x1000, 8));
}

TEST(TorchPlaces, a_block_is_its_ledgers) {
  TorchPlaces places;
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8, .ledger = 1}), 0x1000U);
  ASSERT_EQ(places.add({.address = 0x1000, .bytes = 8, .ledger = 2}), kElsewhere);
  EXPECT_FALSE(places.take(3, 0x1000, 8));
  EXPECT_FALSE(places.take(1, 0x1000, 7));
  EXPECT_EQ(places.take(2, 0x1000, 8)->place, kElsewhere);
  EXPECT_EQ(places.take(1, 0x1000, 8)->place, 0x1000U);
}

TEST(TorchPlaces, what_would_wrap_is_moved) {
  TorchPlaces places;
  EXPECT_EQ(places.add({.address = ~std::uint64_t{0} - 7, .bytes = 8}), kElsewhere);
  EXPECT_EQ(places.add({.address = ~std::uint64_t{0} - 8, .bytes = 8}), ~std::uint64_t{0} - 8);
}

// Places are used again only when the room above has been used.
TEST(TorchPlaces, places_of_their_own_go_round) {
  TorchPlaces places;
  constexpr std::uint64_t kLarge = kElsewhere / 2;
  auto const one = places.add_elsewhere({.bytes = kLarge});
  auto const two = places.add_elsewhere({.bytes = kLarge});
  ASSERT_EQ(one, kElsewhere);
  ASSERT_EQ(two, kElsewhere + kLarge);
  ASSERT_TRUE(places.take_from(*one));
  EXPECT_FALSE(places.take_from(*one));
  EXPECT_EQ(places.add_elsewhere({.bytes = 1}), kElsewhere);
  EXPECT_EQ(places.add_elsewhere({.bytes = kLarge}), kElsewhere * 2);  // beyond the room, rather than nowhere
  EXPECT_FALSE(places.add_elsewhere({.bytes = ~std::uint64_t{0} - kElsewhere - 5}));
}

dump::TimelineLedger ledger(std::uint32_t id, std::int64_t ordinal, std::string device, std::string uuid = {}) {
  dump::TimelineLedger made;
  made.id = id;
  made.name = "manager " + std::to_string(id);
  made.device_ordinal = ordinal;
  made.device_name = std::move(device);
  made.device_uuid = std::move(uuid);
  return made;
}

TEST(TorchDevices, a_device_has_the_place_of_its_ordinal) {
  TorchDevices devices;
  devices.add(ledger(0, 3, "H200", "GPU-3"));
  devices.add(ledger(1, 1, "H200", "GPU-1"));
  devices.add(ledger(2, 3, "H200", "GPU-3"));
  EXPECT_EQ(devices.place_of(0), 3U);
  EXPECT_EQ(devices.place_of(1), 1U);
  EXPECT_EQ(devices.place_of(2), 3U);
  EXPECT_EQ(devices.first(), 1U);
  EXPECT_EQ(devices.count(), 4U);
  ASSERT_EQ(devices.devices().size(), 2U);
  EXPECT_EQ(devices.devices().front().managers, (std::vector<std::string>{"manager 0", "manager 2"}));
}

TEST(TorchDevices, a_stand_in_makes_way_for_the_gpu_of_its_ordinal) {
  TorchDevices devices;
  devices.add(ledger(0, 0, "host"));
  devices.add(ledger(1, -1, "who knows"));
  devices.add(ledger(2, 0, "H200", "GPU-0"));
  devices.add(ledger(3, 1'000'000'000, "far away", "GPU-f"));
  EXPECT_EQ(devices.place_of(2), 0U);
  EXPECT_EQ(devices.place_of(0), 1U);
  EXPECT_EQ(devices.place_of(1), 2U);
  EXPECT_EQ(devices.place_of(3), 3U);
  EXPECT_EQ(devices.count(), 4U);
}

TEST(TorchDevices, alone_a_stand_in_has_its_ordinal_and_the_unknown_the_first_place) {
  TorchDevices host;
  host.add(ledger(0, 0, "host"));
  EXPECT_EQ(host.place_of(0), 0U);
  TorchDevices unknown;
  unknown.add(ledger(5, -1, ""));
  EXPECT_EQ(unknown.place_of(5), 0U);
  EXPECT_EQ(unknown.count(), 1U);
  EXPECT_EQ(TorchDevices{}.first(), 0U);
}

TEST(TorchDevices, an_ordinal_has_the_place_of_its_device) {
  TorchDevices devices;
  devices.add(ledger(0, 3, "device 3"));
  devices.add(ledger(1, 300, "device 300"));
  EXPECT_EQ(devices.place_of_ordinal(3), 3U);
  EXPECT_EQ(devices.place_of_ordinal(300), 4U);
  EXPECT_EQ(devices.place_of_ordinal(0), std::nullopt);
}

TEST(TorchDevices, who_comes_late_gets_no_place_that_was_closed) {
  TorchDevices devices;
  devices.add(ledger(0, 0, "a"));
  ASSERT_EQ(devices.place_of(0), 0U);
  devices.close(0);
  devices.add(ledger(1, 2, "b"));
  ASSERT_EQ(devices.place_of(1), 2U);
  devices.close(1);
  devices.close(2);
  devices.add(ledger(2, 1, "c"));
  EXPECT_EQ(devices.place_of(2), 3U);
  devices.add(ledger(3, 0, "a"));
  EXPECT_EQ(devices.place_of(3), 0U);
}

}  // namespace
}  // namespace headroom::test
