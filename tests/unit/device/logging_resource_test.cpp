// What a LoggingResource writes down, and that nothing else changes. What every resource must do is the conformance suite's to say.
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/tag.hpp>

#include "flight/recorder.hpp"
#include "flight/thread_state.hpp"
#include "log_events.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::FlightView;
using flight::Ring;

std::uint64_t address(Block const& block) { return reinterpret_cast<std::uintptr_t>(block.pointer); }
std::uint64_t alignment_of(flight::Event const& event) { return std::uint64_t{1} << ((event.words[3] >> 48) & 63U); }
std::uint32_t number_in_log(flight::Event const& event) { return static_cast<std::uint32_t>(event.words[6] >> 32); }

TEST(LoggingResource, a_line_says_what_was_asked_for_and_what_came_of_it) {
  const auto host = HostResource::create({.granularity_bytes = 65536, .touch_memory = false}).value();
  const auto log = LoggingResource::create(host, "asked").value();
  const AllocTag tag{"log-tag"};
  const auto stream = log->create_stream().value();
  const auto block = log->allocate({.bytes = 1000, .alignment = 4096, .stream = stream, .tag = tag.id()}).value();
  ASSERT_TRUE(log->deallocate(block));

  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].kind, EventKind::resource_allocate);
  EXPECT_EQ(lines[1].kind, EventKind::resource_free);
  for (auto const& line : lines) {
    EXPECT_EQ(line.ring, Ring::main);
    EXPECT_EQ(line.words[2], address(block));
    EXPECT_EQ(line.bytes(), 1000U) << "as requested: neither the granule of 65,536 nor anything else";
    EXPECT_EQ(alignment_of(line), 4096U);
    EXPECT_EQ(line.words[4], stream.value);
    EXPECT_EQ(line.tag(), tag.id());
    EXPECT_EQ(line.result(), 0U);
    EXPECT_EQ(line.thread(), flight::this_thread().thread_id);
    EXPECT_EQ(line.flags(), 0U);
  }
  EXPECT_EQ(number_in_log(lines[0]), 0U);
  EXPECT_EQ(number_in_log(lines[1]), 1U);
  EXPECT_EQ(static_cast<std::uint32_t>(lines[1].words[6]), static_cast<std::uint32_t>(lines[0].words[6]) + 1);
  EXPECT_EQ(log->operations(), 2U);
}

TEST(LoggingResource, a_refusal_is_written_with_its_size_and_goes_on_unchanged) {
  const auto host = HostResource::create({.total_bytes = 1 << 20, .touch_memory = false}).value();
  const auto log = LoggingResource::create(host).value();
  const AllocRequest request{.bytes = (1 << 20) + 1, .stream = {}, .tag = 3};
  const auto direct = host->allocate(request);
  const auto logged = log->allocate(request);
  ASSERT_FALSE(direct);
  ASSERT_FALSE(logged);
  EXPECT_EQ(logged.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(logged.error().layer, direct.error().layer);
  EXPECT_EQ(logged.error().device_code, direct.error().device_code);
  EXPECT_EQ(logged.error().requested, direct.error().requested);
  EXPECT_EQ(logged.error().device_free, direct.error().device_free);
  EXPECT_EQ(logged.error().message, direct.error().message);
  EXPECT_EQ(logged.error().to_string(), direct.error().to_string());

  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].kind, EventKind::resource_refusal);
  EXPECT_EQ(lines[0].ring, Ring::journal) << "a flood of allocations must not wash it away";
  EXPECT_EQ(lines[0].bytes(), (1U << 20) + 1);
  EXPECT_EQ(lines[0].words[2], (1U << 20) + 1);
  EXPECT_EQ(lines[0].tag(), 3U);
  EXPECT_EQ(lines[0].error_kind(), ErrorKind::device_out_of_memory);
  EXPECT_EQ(lines[0].error_layer(), Layer::driver);
}

TEST(LoggingResource, the_largest_size_there_is_is_written_whole) {
  const auto log = logged_null();
  ASSERT_FALSE(log->allocate({.bytes = UINT64_MAX}));
  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].words[2], UINT64_MAX);
  EXPECT_EQ(lines[0].bytes(), flight::kRequestedMask);
  EXPECT_EQ(lines[0].flags(), flight::kFlagBytesSaturated);
  EXPECT_EQ(lines[0].error_kind(), ErrorKind::overflow);
}

TEST(LoggingResource, a_free_that_failed_is_no_free) {
  const auto host = HostResource::create({.touch_memory = false}).value();
  const auto log = LoggingResource::create(host).value();
  const auto block = log->allocate({.bytes = 64}).value();
  host->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  const auto refused = log->deallocate(block);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().device_code, 700);
  ASSERT_TRUE(log->deallocate(block)) << "it may be tried again";
  ASSERT_FALSE(log->deallocate(block));

  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1].kind, EventKind::resource_free_failed);
  EXPECT_EQ(lines[1].words[2], address(block));
  EXPECT_EQ(lines[1].bytes(), 64U);
  EXPECT_EQ(lines[1].error_kind(), ErrorKind::driver);
  EXPECT_EQ(lines[2].kind, EventKind::resource_free);
  EXPECT_EQ(lines[3].kind, EventKind::resource_free_failed);
  EXPECT_EQ(lines[3].error_kind(), ErrorKind::double_free);
  EXPECT_EQ(lines[3].error_layer(), Layer::resource);
  EXPECT_EQ(log->operations(), 4U);
}

TEST(LoggingResource, what_the_inner_resource_throws_is_written_and_goes_on) {
  const auto log = LoggingResource::create(std::make_shared<ThrowingResource>()).value();
  EXPECT_THROW(static_cast<void>(log->allocate({.bytes = 7})), std::runtime_error);
  EXPECT_THROW(static_cast<void>(log->deallocate({.bytes = 8})), std::runtime_error);
  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].kind, EventKind::resource_refusal);
  EXPECT_EQ(lines[0].words[2], 7U);
  EXPECT_EQ(lines[1].kind, EventKind::resource_free_failed);
  EXPECT_EQ(lines[1].bytes(), 8U);
  for (auto const& line : lines) {
    EXPECT_EQ(line.error_kind(), ErrorKind::driver);
    EXPECT_EQ(line.error_layer(), Layer::resource);
  }
}

TEST(LoggingResource, zero_bytes_are_an_operation_without_an_address) {
  const auto log = logged_null();
  ASSERT_TRUE(log->deallocate(log->allocate({.bytes = 0}).value()));
  const auto lines = lines_of(*log);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].words[2], 0U);
  EXPECT_EQ(lines[0].bytes(), 0U);
}

TEST(LoggingResource, two_of_them_are_told_apart_by_number_and_name) {
  const auto inner = LoggingResource::create(std::make_shared<NullResource>(), "inner-log").value();
  const auto outer = LoggingResource::create(inner).value();
  EXPECT_NE(inner->number(), outer->number());
  EXPECT_EQ(inner->label(), "inner-log");
  EXPECT_EQ(outer->label(), "logging") << "after the resource that it logs";
  const auto block = outer->allocate({.bytes = 5}).value();
  EXPECT_EQ(lines_of(*inner).size(), 1U);
  ASSERT_EQ(lines_of(*outer).size(), 1U);
  EXPECT_EQ(lines_of(*outer)[0].words[2], address(block));

  const auto view = FlightView::of_this_process().value();
  std::vector<std::string> names;
  for (std::uint32_t id = 1; id < 4096; ++id) {
    const auto name = view.name(id);
    if (name && name->kind == flight::EntryKind::log && name->number == inner->number()) names.push_back(name->label);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("inner-log"));
}

TEST(LoggingResource, needs_an_inner_resource) {
  const auto none = LoggingResource::create(nullptr);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(none.error().message, ::testing::HasSubstr("inner resource"));
}

TEST(LoggingResource, its_lines_are_no_allocations_of_a_ledger) {
  const auto log = LoggingResource::create(HostResource::create({.touch_memory = false}).value()).value();
  auto manager = GpuMemoryManager::create(Device::custom("logged", log).value(), MemoryBudget::with_limit(1000)).value();
  {
    const auto kept = manager.alloc<std::byte>(400, AllocTag{"kept"}).value();
    static_cast<void>(manager.alloc<std::byte>(300).value());
    EXPECT_FALSE(manager.alloc<std::byte>(601)) << "refused by the budget above: the log never hears of it";
    const auto ledger = snapshot_of(manager);
    EXPECT_EQ(ledger.counters.allocations, 2U);
    EXPECT_EQ(ledger.counters.frees, 1U);
    EXPECT_EQ(ledger.counters.allocation_bytes, 700U);
    EXPECT_EQ(ledger.allocated, 400U);
    EXPECT_EQ(ledger.claimed, 400U);
    EXPECT_EQ(ledger.peak, 700U);
    EXPECT_EQ(ledger.live_allocations, 1U);
    EXPECT_EQ(ledger.failures(), 1U);
    EXPECT_EQ(tag_bytes(ledger, "kept"), 400U);
    std::size_t live = 0;
    FlightView::of_this_process()->for_each_live(
        [&](auto const& allocation) { live += allocation.ledger == manager.ledger_cell() ? 1U : 0U; });
    EXPECT_EQ(live, 1U);
  }
  EXPECT_EQ(log->operations(), 4U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(LoggingResource, every_operation_of_many_threads_is_counted_and_every_record_has_its_number) {
  constexpr std::uint64_t kThreads = 60;  // more than there are lanes to own
  constexpr std::uint64_t kRounds = 100;
  const auto log = logged_null();
  std::atomic<std::uint64_t> ready{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      static_cast<void>(log->allocate({.bytes = 1}));  // takes a lane, or finds none left
      ready.fetch_add(1);
      while (ready.load() != kThreads) std::this_thread::yield();
      for (std::uint64_t round = 0; round < kRounds; ++round) ASSERT_TRUE(log->allocate({.bytes = 2}));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(log->operations(), kThreads * (kRounds + 1));
  // By lane: numbers are what a reader counts losses by, so they must go up by one.
  std::vector<std::uint32_t> next(flight::kLaneCount);
  std::uint64_t found = 0;
  flight::EventReader reader{FlightView::of_this_process().value()};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  for (auto const& event : events) {
    if (!event.is_log_line() || event.log() != log->number()) continue;
    if (next[event.lane] != 0) {
      EXPECT_EQ(number_in_log(event), next[event.lane]) << "lane " << event.lane;
    }
    next[event.lane] = number_in_log(event) + 1;
    ++found;
  }
  EXPECT_GT(found, kRounds);
}

TEST(LoggingResource, inside_a_record_of_its_thread_it_counts_and_writes_nothing) {
  const auto log = logged_null();
  static_cast<void>(log->allocate({.bytes = 1}));
  const auto refused_before = FlightView::of_this_process()->process().refused_reentrant;
  // What a signal handler finds that interrupted an emit.
  flight::this_thread().writing.store(true);
  EXPECT_TRUE(log->allocate({.bytes = 2}));
  flight::this_thread().writing.store(false);
  EXPECT_EQ(log->operations(), 2U);
  EXPECT_EQ(lines_of(*log).size(), 1U);
  EXPECT_EQ(FlightView::of_this_process()->process().refused_reentrant, refused_before + 1);
}

TEST(LoggingResourceDeathTest, with_events_off_operations_are_counted_all_the_same) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process of its own, whose recorder has not started
  EXPECT_EXIT(
      {
        setenv("HEADROOM_FLIGHT", "off", 1);
        const auto log = logged_null();
        static_cast<void>(log->allocate({.bytes = 1}));
        static_cast<void>(log->allocate({.bytes = UINT64_MAX}));
        std::_Exit(log->operations() == 2 && lines_of(*log).empty() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::test
