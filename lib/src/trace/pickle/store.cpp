#include "trace/pickle/store.hpp"

#include <memory>
#include <new>

#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

Node* Store::make_node(std::size_t bytes) {
  if (!charge(sizeof(Node) + bytes + kOverhead)) return nullptr;
  void* memory = nullptr;
  try {
    memory = ::operator new(sizeof(Node) + bytes);
  } catch (...) {
    discharge(sizeof(Node) + bytes + kOverhead);
    throw;
  }
  auto* const node = std::construct_at(static_cast<Node*>(memory));
  node->store = this;
  node->content = node + 1;
  ++nodes_;
  return node;
}

void Store::free_node(Node* node, std::size_t bytes) noexcept {
  ::operator delete(node);
  discharge(sizeof(Node) + bytes + kOverhead);
  --nodes_;
  if (nodes_ == 0 && !owned_) delete this;
}

void* Store::make_array(std::size_t bytes) {
  if (!charge(bytes + kOverhead)) return nullptr;
  try {
    return ::operator new(bytes);
  } catch (...) {
    discharge(bytes + kOverhead);
    throw;
  }
}

void Store::free_array(void* array, std::size_t bytes) noexcept {
  ::operator delete(array);
  discharge(bytes + kOverhead);
}

void Store::end_ownership() noexcept {
  owned_ = false;
  if (nodes_ == 0) delete this;
}

void free_node(Node* node, Type type) noexcept {
  auto& store = *node->store;
  auto const size = static_cast<std::size_t>(node->size);
  switch (type) {
    case Type::tuple:
      std::destroy_n(static_cast<Value*>(node->content), size);
      return store.free_node(node, size * sizeof(Value));
    case Type::list:
      if (node->capacity != 0) {
        std::destroy_n(static_cast<Value*>(node->content), size);
        store.free_array(node->content, node->capacity * sizeof(Value));
      }
      return store.free_node(node, 0);
    case Type::dict:
      if (node->capacity != 0) {
        std::destroy_n(static_cast<Entry*>(node->content), size);
        store.free_array(node->content, node->capacity * sizeof(Entry));
      }
      return store.free_node(node, 0);
    default: return store.free_node(node, size);
  }
}

}  // namespace headroom::trace::pickle
