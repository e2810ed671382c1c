// No value can contain itself: a container that anything but its place on the stack can reach never changes again.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pickles.hpp"

namespace headroom::test {
namespace {

struct Change {
  std::string name;
  std::string opcodes;  // behind PROTO 4
  std::string at;       // the byte and the opcode that is refused
  friend void PrintTo(Change const& change, std::ostream* out) { *out << change.name; }
};

class PickleCycle : public testing::TestWithParam<Change> {};

TEST_P(PickleCycle, is_refused_where_it_would_be_closed) {
  auto const read = unpickle("\x80\x04"s + GetParam().opcodes);
  EXPECT_EQ(read.error,
            "x.pickle: byte " + GetParam().at +
                " changes what was put somewhere or fetched again before; expected values that do not contain themselves");
  EXPECT_FALSE(read.by_scan);
}

std::vector<Change> cycles() {
  return {
      // What Python's pickler writes.
      {"list_in_itself", "]\x94h\x00"s + "a.", "6: APPEND"},
      {"list_in_itself_with_others", "]\x94(K\x01h\x00"s + "e.", "9: APPENDS"},
      {"dict_in_itself", "}\x94\x8C\x01kh\x00s."s, "9: SETITEM"},
      {"dict_in_itself_with_others", "}\x94(K\x01NK\x02h\x00u."s, "12: SETITEMS"},
      {"list_in_its_list", "]\x94]\x94h\x00"s + "aa.", "9: APPEND"},
      {"list_in_its_dict", "]\x94}\x94\x8C\x01kh\x00s"s + "a.", "12: APPEND"},
      {"list_in_its_tuple", "]\x94h\x00\x85"s + "a.", "7: APPEND"},
      {"list_in_its_tuple_and_fetched", "]\x94h\x00\x85\x94"s + "0h\x01" + "a.", "11: APPEND"},
      // What no pickler writes.
      {"by_dup", "]2a."s, "4: APPEND"},
      {"fetched_and_then_changed", "]\x94h\0Na\x86."s, "7: APPEND"},
      {"put_away_and_then_changed", "]]\x94"s + "ah\0Na\x86."s, "9: APPEND"},
      {"put_into_a_dict_and_then_changed", "}K\x01]\x94sh\0(Ne\x86."s, "12: APPENDS"},
      {"put_into_a_tuple_and_then_changed", "}\x94\x85h\0K\x01Ns\x86."s, "10: SETITEM"},
      {"dropped_and_then_changed", "]\x94"s + "0h\0Na."s, "8: APPEND"},
      {"dropped_with_others_and_then_changed", "N(N]\x94"s + "1h\0Na\x86."s, "11: APPEND"},
  };
}
INSTANTIATE_TEST_SUITE_P(, PickleCycle, testing::ValuesIn(cycles()), [](auto const& i) { return i.param.name; });

TEST(PickleSharing, is_no_cycle) {
  // One list twice in a list while the first place is still on the stack; in a dict; and a list within one that was fetched.
  EXPECT_EQ(unpickle("\x80\x04](]\x94K\x01"s + "ah\0e."s).value, "[[1], [1]]");
  EXPECT_EQ(unpickle("\x80\x04}(K\x01]\x94K\x02h\x00u."sv).value, "{1: [], 2: []}");
  EXPECT_EQ(unpickle("\x80\x04](]\x94]\x94"s + "ah\0h\x01"s + "e.").value, "[[[]], [[]], []]");
  EXPECT_EQ(unpickle("\x80\x04]]2\x86"s + "a.").value, "[([], [])]");
}

TEST(PickleSharing, a_billion_laughs_are_64_lists) {
  // Each list holds the one before twice: 2^63 items for whoever walks them, 64 nodes here.
  std::string content = "\x80\x04]\x94";
  for (int i = 0; i < 62; ++i) {
    content += "0](h"s + static_cast<char>(i) + "h" + static_cast<char>(i) + "e\x94";
  }
  content += ".";
  PieceSource first{content};
  auto const reuse = pickle::scan(first, "x.pickle");
  ASSERT_TRUE(reuse.has_value()) << reuse.error().message;
  PieceSource second{content};
  Taker taker;
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  auto const more = machine.advance();
  ASSERT_TRUE(more.has_value()) << more.error().message;
  EXPECT_EQ(machine.retained_nodes(), 63U);
  EXPECT_EQ(machine.root().items()[0].identity(), machine.root().items()[1].identity());
}

}  // namespace
}  // namespace headroom::test
