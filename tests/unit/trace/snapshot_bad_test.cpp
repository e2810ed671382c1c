// What is wrong with a snapshot is said when it is opened: the byte, the device and the entry, what was there and what was expected.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/torch_snapshot.hpp>

#include "histories.hpp"
#include "made_snapshots.hpp"

namespace headroom::test {
namespace {

using made::block;
using made::entry;
using made::segment;
using made::snapshot;
using pickled::Fields;
using pickled::Opcodes;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct BadSnapshot {
  std::string name;
  std::string pickle;
  std::string what;         // behind "NAME: byte N: "
  std::string offset_of{};  // of these opcodes, where they stand alone in the pickle
  friend void PrintTo(BadSnapshot const& bad, std::ostream* out) { *out << bad.name; }
};

class BadSnapshotFile : public testing::TestWithParam<BadSnapshot> {};

TEST_P(BadSnapshotFile, is_named_with_byte_place_value_and_expectation) {
  TempFolder const folder;
  auto const& bad = GetParam();
  auto const path = folder.write(bad.pickle);
  auto const error = [](std::string const& file) {
    auto const reader = TraceReader::open(file);
    return reader ? Error{} : reader.error();
  };
  auto const found = error(path);
  EXPECT_EQ(found.kind, ErrorKind::parse);
  EXPECT_THAT(found.message, StartsWith(path + ": byte "));
  EXPECT_THAT(found.message, HasSubstr(": " + bad.what));
  if (!bad.offset_of.empty()) {
    auto const offset = bad.pickle.find(bad.offset_of);
    EXPECT_EQ(found.message, path + ": byte " + std::to_string(offset) + ": " + bad.what);
  }
  EXPECT_THAT(error(folder.write(xz(bad.pickle), "packed")).message, HasSubstr(": " + bad.what));
}

/// An entry of these fields alone.
std::string trace_of(Fields const& fields) {
  return snapshot({}, {{entry("alloc", 1, 1, 1)}, {entry("alloc", 1, 1, 1), pickled::dict(fields)}});
}

Fields many_keys(std::size_t count) {
  Fields fields;
  for (std::size_t i = 0; i < count; ++i) fields.emplace_back("key" + std::to_string(i), pickled::none());
  return fields;
}

std::vector<BadSnapshot> bad_snapshots() {
  auto const alloc = std::pair{std::string{"action"}, pickled::text("alloc")};
  auto const addr = std::pair{std::string{"addr"}, pickled::integer(1)};
  auto const size = std::pair{std::string{"size"}, pickled::integer(1)};
  auto const odd = pickled::text("twelve");
  auto const list_of_segments = [](Opcodes const& one) { return pickled::pickle(pickled::list({one})); };
  std::string const integer = "expected an integer from 0 to 2^64 - 1";
  return {
      {"no_address", trace_of({alloc, size}), "device 1, entry 2: has no 'addr'; " + integer},
      {"no_size", trace_of({alloc, addr}), "device 1, entry 2: has no 'size'; " + integer},
      {"no_action", trace_of({addr, size}), "device 1, entry 2: has no 'action'; expected one, such as 'alloc'"},
      {"text_for_address", trace_of({alloc, {"addr", odd}, size}), "device 1, entry 2: 'addr' is the text 'twelve'; " + integer,
       odd},
      {"real_for_size", trace_of({alloc, addr, {"size", pickled::real(1.5)}}),
       "device 1, entry 2: 'size' is a real number; " + integer, pickled::real(1.5)},
      {"negative_size", trace_of({alloc, addr, {"size", pickled::negative(-8)}}), "device 1, entry 2: 'size' is -8; " + integer,
       pickled::negative(-8)},
      {"none_for_size", trace_of({alloc, addr, {"size", pickled::none()}}), "device 1, entry 2: 'size' is None; " + integer},
      {"size_of_a_failure", trace_of({{"action", pickled::text("oom")}, addr}), "device 1, entry 2: has no 'size'; " + integer},
      {"address_of_a_free", trace_of({{"action", pickled::text("free_completed")}, size}),
       "device 1, entry 2: has no 'addr'; " + integer},
      {"address_of_a_request", trace_of({{"action", pickled::text("free_requested")}, size}),
       "device 1, entry 2: has no 'addr'; " + integer},
      {"number_for_action", trace_of({{"action", pickled::integer(5)}}),
       "device 1, entry 2: 'action' is 5; expected a text, such as 'alloc'"},
      {"text_for_stream", trace_of({alloc, addr, size, {"stream", odd}}),
       "device 1, entry 2: 'stream' is the text 'twelve'; expected an integer of 64 bits", odd},
      {"list_for_an_entry", snapshot({}, {{pickled::list(std::initializer_list<Opcodes>{})}}),
       "device 0, entry 1: a list; expected a dict with an 'action'"},
      {"text_for_time_of_the_first", snapshot({}, {{pickled::dict({alloc, addr, size, {"time_us", odd}})}}),
       "device 0, entry 1: 'time_us' is the text 'twelve'; expected microseconds as an integer from 0 on", odd},
      {"number_for_a_trace", pickled::pickle(pickled::dict({{"device_traces", pickled::list({pickled::integer(3)})}})),
       "the trace of device 0 is an integer; expected a list"},
      {"dict_for_traces", pickled::pickle(pickled::dict({{"device_traces", pickled::dict({})}})),
       "device_traces is a dict; expected a list"},
      {"one_trace_twice",
       pickled::pickle(pickled::dict(
           {{"device_traces",
             pickled::list({pickled::remembered(pickled::list({entry("alloc", 1, 1, 1)}), 0), pickled::again(0)})}})),
       "LONG_BINGET of a list whose items were handed out one by one; expected it in one place only"},
      {"no_snapshot", pickled::pickle(pickled::dict({{"weights", pickled::list({pickled::real(0.5)})}})),
       "a dict without 'segments' and 'device_traces'; expected a memory snapshot of PyTorch"},
      {"a_number", pickled::pickle(pickled::integer(1)),
       "a pickle of an integer; expected a memory snapshot of PyTorch: a dict with 'segments' and 'device_traces'"},
      {"text_for_a_segment", list_of_segments(odd), "segment 1: a text; expected a dict with 'blocks'", odd},
      {"segment_without_address", list_of_segments(pickled::dict({{"total_size", pickled::integer(1)}})),
       "segment 1: has no 'address'; " + integer},
      {"segment_without_size", list_of_segments(pickled::dict({{"address", pickled::integer(1)}})),
       "segment 1: has no 'total_size'; " + integer},
      {"segment_without_blocks",
       list_of_segments(pickled::dict({{"address", pickled::integer(1)}, {"total_size", pickled::integer(1)}})),
       "segment 1: has no 'blocks'; expected a list of dicts"},
      {"device_out_of_range", list_of_segments(segment(4096, 1, 1, {})), "segment 1: 'device' is 4096; expected one below 4096"},
      {"block_without_size", list_of_segments(segment(0, 1, 1, {pickled::dict({{"state", pickled::text("inactive")}})})),
       "segment 1, block 1: has no 'size'; " + integer},
      {"block_without_state", list_of_segments(segment(0, 1, 1, {pickled::dict({{"size", pickled::integer(1)}})})),
       "segment 1, block 1: has no 'state'; expected active_allocated, active_pending_free, active_awaiting_free or inactive"},
      {"block_of_another_state", list_of_segments(segment(0, 1, 1, {block({.bytes = 1}), block({.bytes = 1, .state = "lost"})})),
       "segment 1, block 2: 'state' is the text 'lost'; expected active_allocated, active_pending_free, active_awaiting_free or "
       "inactive",
       pickled::text("lost")},
      {"block_beyond_all_addresses", list_of_segments(segment(0, ~std::uint64_t{0}, 1, {block({.bytes = 1})})),
       "segment 1, block 1: ends above 2^64; expected addresses of real memory"},
      {"block_of_a_mistyped_request",
       list_of_segments(segment(0, 1, 1, {block({.bytes = 1, .more = {{"requested_size", odd}}})})),
       "segment 1, block 1: 'requested_size' is the text 'twelve'; " + integer, odd},
      {"entry_of_too_many_keys", trace_of(many_keys(257)), "device 1, entry 2: has 257 keys; expected at most 256"},
      {"segment_of_too_many_keys", list_of_segments(pickled::dict(many_keys(300))),
       "segment 1: has 300 keys; expected at most 256"},
      {"block_of_too_many_keys", list_of_segments(segment(0, 1, 1, {pickled::dict(many_keys(257))})),
       "segment 1, block 1: has 257 keys; expected at most 256"},
      {"later_segment_in_a_dict", snapshot({segment(0, 1, 1, {}), pickled::none()}, {}),
       "segment 2: None; expected a dict with 'blocks'"},
  };
}

INSTANTIATE_TEST_SUITE_P(all, BadSnapshotFile, testing::ValuesIn(bad_snapshots()),
                         [](testing::TestParamInfo<BadSnapshot> const& test) { return test.param.name; });

TEST(SnapshotKeys, may_be_256_and_what_stands_among_them_counts) {
  auto fields = many_keys(251);
  for (auto const& [key, number] : {std::pair{"addr", 4096U}, {"size", 10U}, {"stream", 0U}, {"time_us", 1U}}) {
    fields.emplace_back(key, pickled::integer(number));
  }
  fields.emplace_back("action", pickled::text("alloc"));
  ASSERT_EQ(fields.size(), 256U);
  TempFolder const folder;
  auto const reader = TraceReader::open(folder.write(snapshot({}, {{pickled::dict(fields)}})));
  EXPECT_TRUE(reader.has_value()) << reader.error().message;
}

TEST(SnapshotFigures, end_at_the_largest_number_where_a_file_says_more) {
  constexpr auto kHalf = std::uint64_t{1} << 63U;
  TorchSnapshot snapshot;
  for (int i = 0; i < 2; ++i) {
    snapshot.segments.push_back({.bytes = kHalf,
                                 .blocks = {{.bytes = kHalf, .state = TorchBlockState::active_allocated},
                                            {.bytes = kHalf, .state = TorchBlockState::inactive}}});
  }
  auto const figures = cache_figures(snapshot);
  ASSERT_EQ(figures.size(), 1U);
  EXPECT_EQ(figures[0].reserved_bytes, ~std::uint64_t{0});
  EXPECT_EQ(figures[0].active_bytes, ~std::uint64_t{0});
  EXPECT_EQ(figures[0].allocated_bytes, ~std::uint64_t{0});
  EXPECT_EQ(figures[0].largest_inactive_bytes, kHalf);
  EXPECT_DOUBLE_EQ(figures[0].fragmentation.value(), 0.5);
}

class NoSnapshot : public testing::Test {
protected:
  [[nodiscard]] std::string error_of(std::string_view content) const {
    auto const all = read_all(folder_.write(content));
    EXPECT_EQ(all.kind, ErrorKind::parse);
    return all.error;
  }
  TempFolder folder_;
  std::string path_ = folder_.path("history.csv");
};

constexpr auto kKnown =
    "expected RMM's CSV log (first line Thread,Time,Action,Pointer,Size,Stream) or a memory snapshot of PyTorch (a pickle of "
    "protocol 2 to 5), plain, .xz or .gz";

TEST_F(NoSnapshot, protocols_of_other_times_are_said_at_byte_0) {
  EXPECT_EQ(error_of(pickled::pickle(pickled::dict({}), 6)), path_ + ": byte 0: a pickle of protocol 6; " + kKnown);
  EXPECT_EQ(error_of(pickled::pickle(pickled::dict({}), 1)), path_ + ": byte 0: a pickle of protocol 1; " + kKnown);
  EXPECT_EQ(error_of("\x80"), path_ + ": byte 0: a pickle that ends after its first byte; " + kKnown);
  EXPECT_EQ(error_of(gzip(pickled::pickle(pickled::dict({}), 255))), path_ + ": byte 0: a pickle of protocol 255; " + kKnown);
}

TEST_F(NoSnapshot, protocols_0_and_1_have_no_first_byte_of_their_own_and_are_known_by_their_looks) {
  EXPECT_EQ(error_of("(dp0\nVsegments\np1\n(lp2\ns."),
            path_ + ": byte 0: looks like a pickle of protocol 0 or 1: it begins with '(dp0'; " + kKnown);
  for (auto const* const pickle : {"(lp0\n.", "}q\x01.", "]q\x01.", "ccollections\nOrderedDict\np0\n(tRp1\n."}) {
    EXPECT_THAT(error_of(pickle), HasSubstr(": byte 0: looks like a pickle of protocol 0 or 1: it begins with '")) << pickle;
  }
  EXPECT_THAT(error_of("count,time\n1,2\n"), HasSubstr("no known kind"));
  EXPECT_THAT(error_of("cat\ndog\nbird\n"), HasSubstr("no known kind"));
  EXPECT_THAT(error_of("(a, b)\n"), HasSubstr("no known kind"));
}

TEST_F(NoSnapshot, pickles_that_would_be_executed_are_refused) {
  EXPECT_THAT(error_of("\x80\x02"
                       "cos\nsystem\nX\x04"
                       "\0\0\0trueq\0\x85R."),
              AllOf(StartsWith(path_ + ": byte 2: "), HasSubstr("; expected ")));
}

TEST_F(NoSnapshot, whatever_is_cut_off_is_an_error_of_opening) {
  auto const whole =
      snapshot({segment(0, 1, 1, {block({.bytes = 1})})}, {{entry("alloc", 1, 1, 1), entry("free_completed", 1, 1, 2)}});
  EXPECT_TRUE(TraceReader::open(folder_.write(whole)));
  for (std::size_t size = 2; size < whole.size(); ++size) {
    auto const reader = TraceReader::open(folder_.write(whole.substr(0, size)));
    ASSERT_FALSE(reader) << size;
    EXPECT_EQ(reader.error().kind, ErrorKind::parse);
    EXPECT_THAT(reader.error().message, StartsWith(path_ + ": byte "));
  }
}

TEST_F(NoSnapshot, broken_compression_is_an_error_of_opening) {
  auto const whole = snapshot({}, {std::vector<Opcodes>(2000, entry("alloc", 1, 1, 1))});
  auto const packed = gzip(whole);
  EXPECT_THAT(error_of(packed.substr(0, packed.size() / 2)), StartsWith(path_ + ": the gzip data end in the middle after "));
  auto const packed_too = xz(whole);
  EXPECT_THAT(error_of(packed_too.substr(0, packed_too.size() - 9)),
              StartsWith(path_ + ": the xz data end in the middle after "));
}

}  // namespace
}  // namespace headroom::test
