// What a node exporter answers people with: the list of processes, details within bounds, and post-mortems by process.
#include "node_state.hpp"

#include <list>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "node_support.hpp"

namespace headroom::exporter {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

class NodeStates : public testing::Test {
protected:
  NodeStates() : followed_({.limits = {}, .is_whole = [this](flight::FlightView const&) { return is_whole_; }, .let_go = {}}) {}

  FakeProcess& start(std::uint64_t pid, std::string_view program = "train") {
    auto& process = processes_.emplace_back(processes_.size() + 1, program, pid);
    process.file().header().start_realtime_ns = 1'000 * (processes_.size() + 1);
    process.open(0, "pool");
    known_.push_back({.id = process.id(), .run = process.file().header().run, .view = process.view()});
    followed_.arrive(process.view(), process.id());
    return process;
  }
  void kill(FakeProcess const& process) {
    auto& known = *std::ranges::find(known_, process.id(), [](auto const& one) { return one.id; });
    known.view.reset();
    known.ending = Ending::killed;
  }
  void tick() {
    followed_.tick([this] { return known_; }, NodeFollowed::Clock::now());
  }
  nlohmann::json state(Request const& request = {}) { return nlohmann::json::parse(pages_.state(request).body); }
  static Request query(std::string key, std::string value) { return {.query = {{std::move(key), std::move(value)}}}; }
  static std::size_t detailed(nlohmann::json const& state) {
    return static_cast<std::size_t>(
        std::ranges::count_if(state["processes"], [](auto const& process) { return process.contains("managers"); }));
  }

  bool is_whole_ = true;
  std::list<FakeProcess> processes_;
  std::vector<NodeBooks::Known> known_;
  NodeFollowed followed_;
  NodeState pages_{followed_,
                   {.is_whole = [this](flight::FlightView const&) { return is_whole_; },
                    .errors = [] { return std::uint64_t{3}; },
                    .gpus = [] { return std::shared_ptr<GpuSample const>{}; }}};
};

TEST_F(NodeStates, lists_the_living_and_the_ended) {
  start(100).allocate(0, 2, 50);
  kill(start(101));
  tick();
  const auto json = state(query("detail", ""));
  EXPECT_EQ(json["serves"], "machine");
  EXPECT_EQ(json["exporter_errors"], 3);
  ASSERT_THAT(json["processes"], SizeIs(2));
  auto const& living = json["processes"][0];
  auto const& killed = json["processes"][1];
  EXPECT_EQ(living["pid"], 100);
  EXPECT_EQ(living["allocated_bytes"], 100);
  EXPECT_TRUE(living["ended_seconds"].is_null());
  EXPECT_EQ(killed["state"], "killed");
  EXPECT_GE(killed["ended_seconds"].get<double>(), 0.0);
  EXPECT_LT(killed["ended_seconds"].get<double>(), 1'000.0);
  EXPECT_EQ(detailed(json), 0U);
  const nlohmann::json nothing{{"processes", 0}, {"ended", 0}, {"details", 0}, {"histories", 0}};
  EXPECT_EQ(json["left_out"], nothing);
}

TEST_F(NodeStates, details_are_of_those_that_are_asked_for) {
  start(100);
  kill(start(101));
  tick();
  EXPECT_EQ(detailed(state(query("detail", "100-00000001"))), 1U);
  EXPECT_EQ(detailed(state(query("detail", "101-00000002"))), 1U);
  EXPECT_EQ(detailed(state(query("detail", "auto"))), 0U);
  EXPECT_EQ(detailed(state()), 2U);
}

TEST_F(NodeStates, details_are_bounded_and_what_is_left_out_is_counted) {
  for (std::uint64_t pid = 1; pid <= 20; ++pid) start(pid);
  tick();
  const auto json = state();
  EXPECT_EQ(detailed(json), NodeState::kDetails);
  EXPECT_EQ(json["left_out"]["details"], 4);
  // The sixteen were looked at a moment ago, and keep their places.
  const auto other = state(query("detail", "1-00000001"));
  EXPECT_EQ(detailed(other), 0U);
  EXPECT_EQ(other["left_out"]["details"], 1);
}

TEST_F(NodeStates, a_damaged_process_is_not_listed) {
  start(100);
  tick();
  is_whole_ = false;
  EXPECT_THAT(state()["processes"], SizeIs(0));
  start(101);
  EXPECT_THAT(state()["processes"], SizeIs(0));
}

TEST_F(NodeStates, a_snapshot_is_of_the_process_that_is_named) {
  start(100, "train");
  start(101, "serve");
  tick();
  const auto snapshot = [&](std::string const& name) {
    const auto reply = pages_.snapshot({.query = {{"process", name}, {"events", "0"}}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::string text(reply.document ? reply.document->size() : 0, '\0');
    EXPECT_TRUE(reply.document && reply.document->read(0, text) == text.size());
    return nlohmann::json::parse(text);
  };
  EXPECT_EQ(snapshot("100")["process"]["program"], "train");
  EXPECT_EQ(snapshot("101-00000002")["process"]["program"], "serve");
}

TEST_F(NodeStates, a_snapshot_of_nobody_in_particular_says_who_there_is) {
  const auto none = pages_.snapshot({});
  EXPECT_EQ(none.status, 404);
  EXPECT_THAT(none.body, HasSubstr("no process"));
  auto& first = start(100);
  tick();
  EXPECT_EQ(pages_.snapshot({}).status, 200);
  start(101);
  tick();
  const auto several = pages_.snapshot({});
  EXPECT_EQ(several.status, 400);
  EXPECT_THAT(several.body,
              HasSubstr("2 processes live here; expected ?process=PID or ?process=PID-RUN, one of: 101-00000002, 100-00000001"));
  for (const char* words :
       {"", "x", "-1", "100-", "100-123", "100-0000000G", "100-000000000", "1 00", "99999999999999999999999"}) {
    const auto wrong = pages_.snapshot(query("process", words));
    EXPECT_EQ(wrong.status, 400) << words;
    EXPECT_THAT(wrong.body, HasSubstr("process '" + std::string{words} + "'; expected PID or PID-RUN"));
  }
  EXPECT_EQ(pages_.snapshot({.query = {{"process", "100"}, {"process", "101"}}}).status, 400);
  const auto unknown = pages_.snapshot(query("process", "7"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("process '7' is not known here; expected one of: 101-00000002, 100-00000001"));
  kill(first);
  tick();
  const auto ended = pages_.snapshot(query("process", "100"));
  EXPECT_EQ(ended.status, 404);
  EXPECT_THAT(ended.body, HasSubstr("process '100' has ended"));
}

TEST(NodeState, one_pid_in_two_pods_needs_the_run) {
  NodeFollowed others{{.limits = {}, .is_whole = {}, .let_go = {}}};
  FakeProcess one{1, "rank", 1};
  FakeProcess other{2, "rank", 1};
  one.file().header().run = 0xaaaaaaaa'00000000;
  other.file().header().run = 0xbbbbbbbb'00000000;
  others.arrive(one.view(), one.id());
  others.arrive(other.view(), other.id());
  NodeState pages{
      others,
      {.is_whole = {}, .errors = [] { return std::uint64_t{0}; }, .gpus = [] { return std::shared_ptr<GpuSample const>{}; }}};
  const auto query = [](char const* name) { return Request{.query = {{"process", name}}}; };
  const auto both = pages.snapshot(query("1"));
  EXPECT_EQ(both.status, 400);
  EXPECT_THAT(both.body, HasSubstr("is not the only one of that PID"));
  EXPECT_THAT(both.body, HasSubstr("1-aaaaaaaa"));
  EXPECT_EQ(pages.snapshot(query("1-bbbbbbbb")).status, 200);
}

TEST_F(NodeStates, only_two_snapshots_are_on_their_way) {
  start(100);
  tick();
  auto first = pages_.snapshot({});
  const auto second = pages_.snapshot({});
  const auto third = pages_.snapshot({});
  EXPECT_EQ(third.status, 503);
  EXPECT_THAT(third.headers, testing::Contains(testing::Pair("Retry-After", "5")));
  first.document.reset();
  EXPECT_EQ(pages_.snapshot({}).status, 200);
}

TEST_F(NodeStates, the_page_is_for_browsers_and_text_for_others) {
  auto& process = start(100, "a\nb");
  process.allocate(0, 1, 3 << 20);
  process.refuse(0, 2);
  kill(start(101));
  tick();
  const auto page = pages_.status({.accept = "text/html,*/*;q=0.8"});
  EXPECT_THAT(page.content_type, StartsWith("text/html"));
  EXPECT_TRUE(page.varies_by_accept);
  const auto text = pages_.status({.accept = "*/*"});
  EXPECT_THAT(text.content_type, StartsWith("text/plain"));
  EXPECT_THAT(text.body, HasSubstr("1 process, and 1 that ended a moment ago.\n"));
  EXPECT_THAT(text.body, HasSubstr("/snapshot.json"));
  EXPECT_THAT(text.body, HasSubstr("a b (pid 100, run 00000001)  3 MiB       unlimited"));
  EXPECT_THAT(text.body, HasSubstr("none        2"));
  EXPECT_THAT(text.body, HasSubstr("The exporter met 3 errors"));
}

}  // namespace
}  // namespace headroom::exporter
