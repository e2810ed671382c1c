// Growing counts with one writer each: a plain load and store in the thread's own lane, fetch_add in the shared overflow block.
// Stores are release and readers' loads acquire, so that a reader who sees a free also sees the allocation before it.
#pragma once

#include <bit>
#include <cstdint>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// A block of counters and how this thread may add to it.
template <class Cells>
class CountersRef {
public:
  CountersRef(Cells& cells, bool single_writer) noexcept : cells_(cells), single_writer_(single_writer) {}
  [[nodiscard]] Cells& operator*() const noexcept { return cells_; }
  [[nodiscard]] Cells* operator->() const noexcept { return &cells_; }
  void add(Word& word, std::uint64_t amount) const noexcept {
    if (single_writer_) [[likely]] {
      word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_release);
    } else {
      word.fetch_add(amount, std::memory_order_release);
    }
  }

private:
  Cells& cells_;
  bool single_writer_;
};

/// Bucket i holds [2^(i−1), 2^i), bucket 0 holds 0; the last is open.
template <std::size_t Buckets>
[[nodiscard]] constexpr std::size_t log2_bucket(std::uint64_t value) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(value));
  return width < Buckets ? width : Buckets - 1;
}

}  // namespace headroom::flight
