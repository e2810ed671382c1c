// headroom: exact first fit over free ranges.
//
// Answers "which free range with the lowest position holds `length` at `alignment`?", takes it, and merges what is given back
// with its neighbours. Positions and lengths are whole numbers without a unit; the host device counts in granules.
//
// A B+ tree of free ranges in order of position. Every entry of an inner node also knows the largest range below it, so a search
// walks straight down to the first child that can help. Nodes are wide because a walk costs about one mispredicted branch a
// level: 1,000 ranges are two or three levels here, about fourteen in a balanced binary tree.
//
// Thread safety: none, the owner locks. Cost: O(log n); `take` with an alignment above 1 may look at every range that is long
// enough but badly placed, since anything less would not be exact first fit. Strong exception safety: bad_alloc changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace headroom {

class FirstFit {
public:
  struct Range {
    std::uint64_t start = 0;
    std::uint64_t length = 0;
    friend bool operator==(Range const&, Range const&) = default;
  };

  FirstFit();                      ///< nothing is free
  explicit FirstFit(Range whole);  ///< `whole` is free; a length of 0 frees nothing

  /// Takes [result, result + length) out of the free ranges; nothing when no single range can hold it.
  /// `length` is at least 1; `alignment` is a power of two, and the result a multiple of it.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t length, std::uint64_t alignment);

  /// Room for what one take() or give() needs; the next one cannot throw. Itself it may (bad_alloc, nothing changed).
  void make_room() { ensure_spare_nodes(); }

  /// Makes a range free. It must not overlap a free range (the owner knows what is taken); a length of 0 does nothing.
  void give(Range range);

  [[nodiscard]] std::uint64_t largest() const noexcept;                  ///< length of the longest free range, 0 when none
  [[nodiscard]] std::optional<Range> lowest() const noexcept;            ///< the free range with the lowest position
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }  ///< sum of the lengths
  [[nodiscard]] std::size_t ranges() const noexcept { return ranges_; }  ///< number of free ranges; no two of them touch

private:
  static constexpr std::uint32_t kFanout = 32;
  // Nodes are freed when empty and never merged, so height is bounded by the inserts ever made: 2^64 of them, at half-full
  // splits.
  static constexpr std::size_t kMaxDepth = 16;
  static constexpr std::uint64_t kUnused = UINT64_MAX;  // sorts behind every position

  // Unused entries hold {kUnused, 0}: searches run over whole arrays without looking at `count`.
  struct Node {
    std::array<std::uint64_t, kFanout> start;    // leaf: of the range; inner: of the lowest range below
    std::array<std::uint64_t, kFanout> length;   // leaf: of the range; inner: of the longest range below
    std::array<std::uint32_t, kFanout> child{};  // inner only
    std::uint32_t count = 0;
    Node() noexcept { clear(); }  // NOLINT(cppcoreguidelines-pro-type-member-init): clear() sets what is read
    void clear() noexcept;
    void insert(std::uint32_t slot, Range range, std::uint32_t below) noexcept;
    void erase(std::uint32_t slot) noexcept;
    [[nodiscard]] Range summary() const noexcept;  // what the parent's entry must say
  };
  struct Step {  // no initialisers: a path is filled from the root as far as it is used
    std::uint32_t node;
    std::uint32_t slot;
  };
  using Path = std::array<Step, kMaxDepth>;  // from the root; the leaf is at depth_ - 1

  [[nodiscard]] bool find_fit(std::uint64_t length, std::uint64_t alignment, std::size_t level, std::uint32_t index,
                              Path& path) const;
  [[nodiscard]] bool locate(std::uint64_t start,
                            Path& path) const;  // the last range at or before start; false: path is before all
  [[nodiscard]] bool step_forward(Path& path) const;
  [[nodiscard]] Range entry(Path const& path) const;
  void set_entry(Path const& path, Range range);
  void insert_entry(Path& path, bool after, Range range);
  void erase_entry(Path const& path);
  void repair_above(Path const& path, std::size_t level, std::uint64_t old_length, std::uint64_t new_length);
  void split_towards(std::uint64_t start);
  void split_child(std::uint32_t parent, std::uint32_t slot);
  void ensure_spare_nodes();
  [[nodiscard]] std::uint32_t new_node() noexcept;

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> spare_;  // indices of nodes not in the tree
  std::uint32_t root_ = 0;
  std::size_t depth_ = 1;
  std::size_t ranges_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace headroom
