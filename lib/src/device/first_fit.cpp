#include "device/first_fit.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace headroom {
namespace {

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Number of entries that are <= value in a sorted array of 32: three pivots, then eight entries. Without branches, since every
// outcome is equally likely; and not by halves, since those compares would have to wait for each other.
std::uint32_t count_not_above(std::array<std::uint64_t, 32> const& sorted, std::uint64_t value) noexcept {
  auto const not_above = [&](std::size_t at) { return static_cast<std::uint32_t>(sorted[at] <= value); };
  auto const begin = 8 * (not_above(7) + not_above(15) + not_above(23));
  std::uint32_t count = begin;
  for (std::uint32_t at = begin; at < begin + 8; ++at) count += not_above(at);
  return count;
}

std::uint32_t first_at_least(std::array<std::uint64_t, 32> const& lengths, std::uint64_t length, std::uint32_t from) noexcept {
  while (from < lengths.size() && lengths[from] < length) {
    ++from;
  }
  return from;
}

}  // namespace

void FirstFit::Node::clear() noexcept {
  start.fill(kUnused);
  length.fill(0);
  count = 0;
}

void FirstFit::Node::insert(std::uint32_t slot, Range range, std::uint32_t below) noexcept {
  std::copy_backward(start.begin() + slot, start.begin() + count, start.begin() + count + 1);
  std::copy_backward(length.begin() + slot, length.begin() + count, length.begin() + count + 1);
  std::copy_backward(child.begin() + slot, child.begin() + count, child.begin() + count + 1);
  start[slot] = range.start;
  length[slot] = range.length;
  child[slot] = below;
  ++count;
}

void FirstFit::Node::erase(std::uint32_t slot) noexcept {
  std::copy(start.begin() + slot + 1, start.begin() + count, start.begin() + slot);
  std::copy(length.begin() + slot + 1, length.begin() + count, length.begin() + slot);
  std::copy(child.begin() + slot + 1, child.begin() + count, child.begin() + slot);
  --count;
  start[count] = kUnused;
  length[count] = 0;
}

FirstFit::Range FirstFit::Node::summary() const noexcept {
  std::uint64_t longest = 0;
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    longest = std::max(longest, length[slot]);
  }
  return {start[0], longest};
}

FirstFit::FirstFit() { nodes_.emplace_back(); }

FirstFit::FirstFit(Range whole) : FirstFit() { give(whole); }

std::uint64_t FirstFit::largest() const noexcept { return nodes_[root_].summary().length; }

std::optional<FirstFit::Range> FirstFit::lowest() const noexcept {
  if (ranges_ == 0) {
    return std::nullopt;
  }
  std::uint32_t node = root_;
  for (std::size_t level = 0; level + 1 < depth_; ++level) {
    node = nodes_[node].child[0];
  }
  return Range{nodes_[node].start[0], nodes_[node].length[0]};
}

std::optional<std::uint64_t> FirstFit::take(std::uint64_t length, std::uint64_t alignment) {
  assert(length != 0);
  ensure_spare_nodes();
  Path path;
  if (!find_fit(length, alignment, 0, root_, path)) {
    return std::nullopt;
  }
  Range const found = entry(path);
  std::uint64_t const start = align_up(found.start, alignment);
  Range const front{found.start, start - found.start};
  Range const back{start + length, found.start + found.length - (start + length)};
  if (front.length == 0 && back.length == 0) {
    erase_entry(path);
  } else if (front.length == 0) {
    set_entry(path, back);
  } else {
    set_entry(path, front);
    if (back.length != 0) {
      insert_entry(path, true, back);
    }
  }
  total_ -= length;
  return start;
}

void FirstFit::give(Range range) {
  if (range.length == 0) {
    return;
  }
  ensure_spare_nodes();
  total_ += range.length;
  Path before;
  bool const has_before = locate(range.start, before);
  Path after = before;
  bool const has_after = has_before ? step_forward(after) : ranges_ != 0;
  Range const low = has_before ? entry(before) : Range{};
  Range const high = has_after ? entry(after) : Range{};
  assert(!has_before || low.start + low.length <= range.start);
  assert(!has_after || range.start + range.length <= high.start);
  bool const joins_low = has_before && low.start + low.length == range.start;
  bool const joins_high = has_after && range.start + range.length == high.start;
  if (joins_low && joins_high) {
    set_entry(before, {low.start, low.length + range.length + high.length});
    erase_entry(after);  // `after` stays valid: set_entry moves no entry
  } else if (joins_low) {
    set_entry(before, {low.start, low.length + range.length});
  } else if (joins_high) {
    set_entry(after, {range.start, range.length + high.length});
  } else {
    insert_entry(before, has_before, range);
  }
}

bool FirstFit::find_fit(std::uint64_t length, std::uint64_t alignment, std::size_t level, std::uint32_t index, Path& path) const {
  Node const& node = nodes_[index];
  for (std::uint32_t slot = first_at_least(node.length, length, 0); slot < kFanout;
       slot = first_at_least(node.length, length, slot + 1)) {
    path[level] = {index, slot};
    if (level + 1 < depth_) {
      if (find_fit(length, alignment, level + 1, node.child[slot], path)) {
        return true;
      }
      continue;
    }
    std::uint64_t const skipped = align_up(node.start[slot], alignment) - node.start[slot];
    if (skipped <= node.length[slot] - length) {
      return true;
    }
  }
  return false;
}

bool FirstFit::locate(std::uint64_t start, Path& path) const {
  std::uint32_t index = root_;
  std::uint32_t not_above = 0;
  for (std::size_t level = 0; level < depth_; ++level) {
    Node const& node = nodes_[index];
    not_above = count_not_above(node.start, start);
    std::uint32_t const slot = not_above == 0 ? 0 : not_above - 1;
    path[level] = {index, slot};
    index = node.child[slot];
  }
  // An inner entry's start is exactly the lowest start below it, so "none in this leaf" means none at all.
  return not_above != 0;
}

bool FirstFit::step_forward(Path& path) const {
  std::size_t level = depth_;
  while (level != 0 && path[level - 1].slot + 1 == nodes_[path[level - 1].node].count) {
    --level;
  }
  if (level == 0) {
    return false;
  }
  ++path[level - 1].slot;
  for (; level < depth_; ++level) {
    path[level] = {nodes_[path[level - 1].node].child[path[level - 1].slot], 0};
  }
  return true;
}

FirstFit::Range FirstFit::entry(Path const& path) const {
  Step const step = path[depth_ - 1];
  return {nodes_[step.node].start[step.slot], nodes_[step.node].length[step.slot]};
}

void FirstFit::set_entry(Path const& path, Range range) {
  Step const step = path[depth_ - 1];
  nodes_[step.node].start[step.slot] = range.start;
  auto const old_length = std::exchange(nodes_[step.node].length[step.slot], range.length);
  repair_above(path, depth_ - 1, old_length, range.length);
}

// Inserts behind (or, where there is nothing before, in front of) the entry that `path` names.
void FirstFit::insert_entry(Path& path, bool after, Range range) {
  if (nodes_[path[depth_ - 1].node].count == kFanout) {
    split_towards(range.start);
    after = locate(range.start, path);
  }
  Step const step = path[depth_ - 1];
  nodes_[step.node].insert(after ? step.slot + 1 : 0, range, 0);
  ++ranges_;
  repair_above(path, depth_ - 1, 0, range.length);
}

void FirstFit::erase_entry(Path const& path) {
  std::size_t level = depth_ - 1;
  auto erased_length = entry(path).length;
  nodes_[path[level].node].erase(path[level].slot);
  --ranges_;
  while (level != 0 && nodes_[path[level].node].count == 0) {
    spare_.push_back(path[level].node);  // never allocates: ensure_spare_nodes reserved room for every node
    --level;
    erased_length = nodes_[path[level].node].length[path[level].slot];
    nodes_[path[level].node].erase(path[level].slot);
  }
  repair_above(path, level, erased_length, 0);
  while (depth_ > 1 && nodes_[root_].count <= 1) {
    if (nodes_[root_].count == 1) {
      std::uint32_t const only = nodes_[root_].child[0];
      nodes_[root_].clear();
      spare_.push_back(root_);
      root_ = only;
      --depth_;
    } else {
      depth_ = 1;  // everything is taken: the empty root becomes the leaf
    }
  }
}

// An entry of path[level].node changed from one length to another (0: it was not there, or is no more). Makes the entries above
// say the truth again, and stops where they already do. The node is searched for its longest entry only if that one became
// shorter.
void FirstFit::repair_above(Path const& path, std::size_t level, std::uint64_t old_length, std::uint64_t new_length) {
  for (; level != 0; --level) {
    Node const& node = nodes_[path[level].node];
    Step const above = path[level - 1];
    Node& parent = nodes_[above.node];
    auto const known = parent.length[above.slot];
    auto longest = known;
    if (new_length >= known) {
      longest = new_length;
    } else if (old_length == known) {
      longest = node.summary().length;
    }
    if (parent.start[above.slot] == node.start[0] && longest == known) return;
    parent.start[above.slot] = node.start[0];
    parent.length[above.slot] = longest;
    old_length = known;
    new_length = longest;
  }
}

// Splits every full node on the way from the root to the leaf of `start`, from above, so that each parent has room for one more.
void FirstFit::split_towards(std::uint64_t start) {
  if (nodes_[root_].count == kFanout) {
    std::uint32_t const old_root = root_;
    root_ = new_node();
    nodes_[root_].insert(0, nodes_[old_root].summary(), old_root);
    ++depth_;
    assert(depth_ < kMaxDepth);
  }
  std::uint32_t parent = root_;
  for (std::size_t level = 0; level + 1 < depth_; ++level) {
    std::uint32_t const not_above = count_not_above(nodes_[parent].start, start);
    std::uint32_t slot = not_above == 0 ? 0 : not_above - 1;
    if (nodes_[nodes_[parent].child[slot]].count == kFanout) {
      split_child(parent, slot);
      slot += static_cast<std::uint32_t>(nodes_[parent].start[slot + 1] <= start);
    }
    parent = nodes_[parent].child[slot];
  }
}

void FirstFit::split_child(std::uint32_t parent, std::uint32_t slot) {
  std::uint32_t const low_index = nodes_[parent].child[slot];
  std::uint32_t const high_index = new_node();
  Node& low = nodes_[low_index];
  Node& high = nodes_[high_index];
  for (std::uint32_t from = kFanout / 2; from < kFanout; ++from) {
    high.insert(from - kFanout / 2, {low.start[from], low.length[from]}, low.child[from]);
  }
  while (low.count > kFanout / 2) {
    low.erase(low.count - 1);
  }
  Range const low_summary = low.summary();
  nodes_[parent].start[slot] = low_summary.start;
  nodes_[parent].length[slot] = low_summary.length;
  nodes_[parent].insert(slot + 1, high.summary(), high_index);
}

// All memory that one operation can need, before it changes anything: a split on each level and a new root.
void FirstFit::ensure_spare_nodes() {
  if (spare_.size() > depth_) {
    return;
  }
  std::size_t const more = std::max(depth_ + 1, nodes_.size() / 2);
  spare_.reserve(nodes_.size() + more);
  nodes_.reserve(nodes_.size() + more);
  for (std::size_t made = 0; made < more; ++made) {
    spare_.push_back(static_cast<std::uint32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
}

std::uint32_t FirstFit::new_node() noexcept {
  std::uint32_t const index = spare_.back();
  spare_.pop_back();
  return index;
}

}  // namespace headroom
