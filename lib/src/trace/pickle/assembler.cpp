#include "trace/pickle/assembler.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace headroom::trace::pickle {

bool Assembler::is_key(Value const& value) noexcept {
  return value.is(Type::text) || value.is(Type::integer) || (value.is(Type::tuple) && node_of(value).hashable);
}

Obstacle Assembler::text(Type type, std::string_view bytes, std::uint64_t offset, Value& made) {
  auto* const node = store_->make_node(bytes.size());
  if (node == nullptr) return Obstacle::too_much;
  if (!bytes.empty()) std::memcpy(node->content, bytes.data(), bytes.size());
  node->size = bytes.size();
  node->depth = 0;
  made = Value{type, offset, {.node = node}};
  return Obstacle::none;
}

Obstacle Assembler::container(Type type, Fate fate, std::uint64_t offset, Value& made) {
  auto* const node = store_->make_node(0);
  if (node == nullptr) return Obstacle::too_much;
  node->fate = fate;
  made = Value{type, offset, {.node = node}};
  return Obstacle::none;
}

Obstacle Assembler::tuple(std::span<Value> items, std::uint64_t offset, Value& made) {
  auto* const node = store_->make_node(items.size() * sizeof(Value));
  if (node == nullptr) return Obstacle::too_much;
  Value tuple{Type::tuple, offset, {.node = node}};
  node->hashable = std::ranges::all_of(items, is_key);
  for (auto& item : items) {
    if (auto const obstacle = hand_over(*node, item, Fate::unknown); obstacle != Obstacle::none) return obstacle;
    std::construct_at(static_cast<Value*>(node->content) + node->size, std::move(item));
    ++node->size;
  }
  made = std::move(tuple);
  return Obstacle::none;
}

Obstacle Assembler::append(Value& list, std::span<Value> items, Fate fate) {
  auto& node = node_of(list);
  if (node.sealed) return Obstacle::sealed;
  if (!reserve<Value>(node, items.size())) return Obstacle::too_much;
  for (auto& item : items) {
    if (auto const obstacle = hand_over(node, item, fate); obstacle != Obstacle::none) return obstacle;
    std::construct_at(static_cast<Value*>(node.content) + node.size, std::move(item));
    ++node.size;
  }
  return Obstacle::none;
}

Obstacle Assembler::set(Value& dict, std::span<Value> pairs, Fate fate) {
  auto& node = node_of(dict);
  if (node.sealed) return Obstacle::sealed;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!is_key(pairs[i])) return Obstacle::key;
  }
  if (!reserve<Entry>(node, pairs.size() / 2)) return Obstacle::too_much;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    for (auto const& part : pairs.subspan(i, 2)) {
      if (auto const obstacle = hand_over(node, part, fate); obstacle != Obstacle::none) return obstacle;
    }
    std::construct_at(static_cast<Entry*>(node.content) + node.size, Entry{std::move(pairs[i]), std::move(pairs[i + 1])});
    ++node.size;
  }
  return Obstacle::none;
}

Obstacle Assembler::take(Value& list, Value& item, Fate fate) noexcept {
  auto& node = node_of(list);
  if (node.sealed) return Obstacle::sealed;
  auto const obstacle = hand_over(node, item, fate);
  if (obstacle == Obstacle::none) ++node.size;
  return obstacle;
}

Obstacle Assembler::hand_over(Node& to, Value const& item, Fate fate) noexcept {
  if (!item.has_node()) return Obstacle::none;
  auto& node = node_of(item);
  if (node.depth >= kMaxDepth) return Obstacle::too_deep;
  to.depth = std::max(to.depth, static_cast<std::uint8_t>(node.depth + 1));
  if (is_container(item) && !node.sealed) {
    // What the visitor was told of paths rests on the first pass, which saw the same bytes.
    if (node.fate != fate) return Obstacle::other_run;
    node.sealed = true;
  }
  return Obstacle::none;
}

/// Room for so many more elements: exactly so many for the first ones, which mostly are all.
template <class Element>
bool Assembler::reserve(Node& node, std::size_t more) {
  auto const needed = static_cast<std::size_t>(node.size) + more;
  if (needed <= node.capacity) return true;
  auto const capacity = std::max<std::size_t>(needed, std::size_t{node.capacity} * 2);
  auto* const array = store_->make_array(capacity * sizeof(Element));
  if (array == nullptr) return false;
  if (node.capacity != 0) {
    auto* const old = static_cast<Element*>(node.content);
    auto const size = static_cast<std::size_t>(node.size);
    std::uninitialized_move_n(old, size, static_cast<Element*>(array));
    std::destroy_n(old, size);
    store_->free_array(old, node.capacity * sizeof(Element));
  }
  node.content = array;
  node.capacity = static_cast<std::uint32_t>(capacity);
  return true;
}

}  // namespace headroom::trace::pickle
