// Whether something that is done again and again leaves anything behind on the heap.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "host_memory.hpp"

namespace headroom::exporter {

/// Calls `scrape(number)` so often that one forgotten block a scrape, however small, would be 2,000 blocks, and one of 32 bytes, malloc's
/// least, 64,000 bytes. What other threads of the exporter hold at the one moment and not at the other (a reading of the GPUs, a look at
/// who has ended) are a few blocks, and no more for more scrapes; a tenth of what a leak would be is far above them.
template <class Scrape>
void expect_nothing_is_left_behind(Scrape const& scrape) {
  constexpr int kFirst = 20;  // until every container has its size
  constexpr int kScrapes = 2'000;
  for (int i = 0; i < kFirst; ++i) scrape(i);
  const auto blocks = test::host_blocks_held.load();
  const auto bytes = test::host_bytes_held.load();
  for (int i = 0; i < kScrapes; ++i) scrape(i);
  EXPECT_LT(test::host_blocks_held.load() - blocks, std::int64_t{kScrapes} / 10);
  EXPECT_LT(test::host_bytes_held.load() - bytes, std::int64_t{kScrapes} * 32 / 10);
}

}  // namespace headroom::exporter
