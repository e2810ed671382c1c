// A pickle that ends anywhere else than at its end is an error that says where it ends.
#include <charconv>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

using testing::StartsWith;

// pickle.dumps({'segments': [{'device': 0, 'address': 140307883819008, 'total_size': 2097152, 'stream': 0, 'ratio': 0.25,
//   'segment_pool_id': (0, 0), 'is_expandable': False, 'blocks': [{'size': 512, 'state': 'inactive', 'frames': []}]}],
//   'device_traces': [[{'action': 'alloc', 'addr': 140307883819008, 'size': 256}, {'action': 'free_completed',
//   'addr': 140307883819008, 'size': 256}]]}, protocol=4), as Python 3 writes it.
constexpr auto kPickle =
    "\x80\x04\x95)\x01\x00\x00\x00\x00\x00\x00}\x94(\x8C\x08segments\x94]\x94}\x94(\x8C\x06"
    "device\x94K\x00\x8C\x07"
    "address\x94\x8A\x06\x00\x00\x93\xF9\x9B\x7F\x8C\x0Atotal_size\x94J\x00\x00 \x00\x8C\x06stream\x94K\x00\x8C\x05r"
    "atio\x94G\x3F\xD0\x00\x00\x00\x00\x00\x00\x8C\x0Fsegment_pool_id\x94K\x00K\x00\x86\x94\x8C\x0Dis_expandable\x94"
    "\x89\x8C\x06"
    "blocks\x94]\x94}\x94(\x8C\x04size\x94M\x00\x02\x8C\x05state\x94\x8C\x08inactive\x94\x8C\x06"
    "fram"
    "es\x94]\x94uaua\x8C\x0D"
    "device_traces\x94]\x94]\x94(}\x94(\x8C\x06"
    "action\x94\x8C\x05"
    "alloc\x94\x8C\x04"
    "add"
    "r\x94\x8A\x06\x00\x00\x93\xF9\x9B\x7Fh\x0FM\x00\x01u}\x94(h\x18\x8C\x0E"
    "free_completed\x94h\x1A\x8A\x06\x00\x00"
    "\x93\xF9\x9B\x7Fh\x0FM\x00\x01ueau."sv;

std::uint64_t named_byte(std::string_view message) {
  constexpr auto kPrefix = "x.pickle: byte "sv;
  EXPECT_THAT(std::string{message}, StartsWith(std::string{kPrefix}));
  message.remove_prefix(kPrefix.size());
  std::uint64_t byte = 0;
  auto const end = std::from_chars(message.data(), message.data() + message.size(), byte);
  EXPECT_EQ(*end.ptr, ':') << message;
  return byte;
}

TEST(PickleTruncation, the_whole_is_read) {
  auto const read = unpickle(kPickle, {"/device_traces/0"});
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.value,
            "{'segments': [{'device': 0, 'address': 140307883819008, 'total_size': 2097152, 'stream': 0, 'ratio': 0.25, "
            "'segment_pool_id': (0, 0), 'is_expandable': False, 'blocks': [{'size': 512, 'state': 'inactive', 'frames': []}]}], "
            "'device_traces': [<2 taken>]}");
  EXPECT_THAT(read.items,
              testing::ElementsAre("/device_traces/0/0 = {'action': 'alloc', 'addr': 140307883819008, 'size': 256}",
                                   "/device_traces/0/1 = {'action': 'free_completed', 'addr': 140307883819008, 'size': 256}"));
}

TEST(PickleTruncation, every_prefix_is_an_error_at_a_byte_of_its_own) {
  for (std::size_t length = 0; length < kPickle.size(); ++length) {
    auto const prefix = std::string{kPickle.substr(0, length)};
    auto const read = unpickle(prefix);
    ASSERT_NE(read.error, "") << length;
    EXPECT_TRUE(read.by_scan) << length;
    EXPECT_LE(named_byte(read.error), length) << read.error;
    EXPECT_EQ(unpickle(prefix, {}, 1).error, read.error);
    if (length != 0) {
      EXPECT_THAT(read.error, testing::HasSubstr("cut short at byte " + std::to_string(length) + ";"));
    }

    // A second pass over a file that has become shorter since the first.
    PieceSource first{kPickle};
    auto const reuse = pickle::scan(first, "x.pickle");
    PieceSource second{prefix};
    Taker taker{{"/device_traces/0"}};
    pickle::Machine machine{second, "x.pickle", *reuse, taker};
    auto more = machine.advance();
    while (more && *more) more = machine.advance();
    ASSERT_FALSE(more.has_value()) << length;
    EXPECT_EQ(more.error().message, read.error);
  }
}

TEST(PickleTruncation, every_changed_byte_is_read_or_refused) {
  for (std::size_t at = 0; at < kPickle.size(); ++at) {
    for (int const bit : {0, 3, 7}) {
      std::string changed{kPickle};
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      auto const read = unpickle(changed, {"/device_traces/0"});
      if (!read.error.empty()) {
        EXPECT_LE(named_byte(read.error), changed.size());
      }
      EXPECT_EQ(unpickle(changed, {"/device_traces/0"}, 7).error, read.error);
    }
  }
}

}  // namespace
}  // namespace headroom::test
