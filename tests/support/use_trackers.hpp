// A use tracker over streams that know their order, and the calls by which a block is allocated, used and freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "device/use_tracker.hpp"
#include "ordered_streams.hpp"

namespace headroom::device::testing {

using headroom::testing::OrderedStreams;
using Launch = OrderedStreams::Launch;

inline constexpr StreamId kA{1}, kB{2}, kC{3}, kD{4};

inline void* address(std::uint64_t number) {
  return reinterpret_cast<void*>(number * 4096);  // NOLINT(performance-no-int-to-ptr)
}

/// Ends with no block tracked and no event held.
class UseTrackerTest : public ::testing::Test {
protected:
  UsedBlock allocate(StreamId stream, std::uint64_t number = 1, std::uint64_t generation = 7) {
    events_.allocated(address(number), generation);
    return {address(number), generation, stream};
  }
  // A use as a caller declares it.
  Launch use(UsedBlock const& block, StreamId stream, UseKind kind) {
    EXPECT_TRUE(tracker_->prepare(block, stream, kind));
    auto const launch = events_.launch(stream);
    EXPECT_TRUE(tracker_->finish(block, stream, kind));
    return launch;
  }
  Launch read(UsedBlock const& block, StreamId stream) { return use(block, stream, UseKind::read); }
  Launch write(UsedBlock const& block, StreamId stream) { return use(block, stream, UseKind::write); }
  // A free as a resource makes it; the launch stands for the return of the memory.
  Launch free(UsedBlock const& block, StreamId stream) {
    EXPECT_TRUE(tracker_->prepare_free(block, stream));
    auto const launch = events_.launch(stream);
    events_.freed(block.pointer, block.generation);
    if (tracker_->any()) tracker_->forget(block);
    return launch;
  }
  void TearDown() override {
    EXPECT_EQ(tracker_->tracked_blocks(), 0U);
    EXPECT_EQ(events_.held(), of_ended_streams_) << "the events of a block are given back with it";
    tracker_.reset();
    EXPECT_EQ(events_.held(), 0U);
    EXPECT_EQ(events_.stale(), 0U);
  }

  OrderedStreams events_;
  std::optional<UseTracker> tracker_{std::in_place, events_};
  std::size_t of_ended_streams_ = 0;  // events that the test leaves to the end of the tracker
};

}  // namespace headroom::device::testing
