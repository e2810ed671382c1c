// Where the nodes of values live: made one by one, counted, and bounded together.
//
// Each node and each array is an allocation of its own: the system's allocator is fast for such small ones, and sanitizers see every
// misuse, which a pool of our own would hide. Values may outlive the machine, so the store ends with whichever is last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "trace/pickle/limits.hpp"
#include "trace/pickle/node.hpp"

namespace headroom::trace::pickle {

class Store {
public:
  struct Release {
    void operator()(Store* store) const noexcept { store->end_ownership(); }
  };
  using Owner = std::unique_ptr<Store, Release>;
  [[nodiscard]] static Owner make() { return Owner{new Store}; }

  /// A node with room for `bytes` of content right behind it. Null: it would be more than the limit.
  [[nodiscard]] Node* make_node(std::size_t bytes);
  void free_node(Node* node, std::size_t bytes) noexcept;
  /// Content of its own. Null: likewise.
  [[nodiscard]] void* make_array(std::size_t bytes);
  void free_array(void* array, std::size_t bytes) noexcept;

  /// Bytes that somebody else holds for values. False: likewise.
  [[nodiscard]] bool charge(std::size_t bytes) noexcept {
    if (bytes > limit_ || bytes_ > limit_ - bytes) return false;
    bytes_ += bytes;
    return true;
  }
  void discharge(std::size_t bytes) noexcept { bytes_ -= bytes; }

  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  void set_limit(std::uint64_t bytes) noexcept { limit_ = bytes; }

private:
  Store() = default;
  ~Store() = default;
  void end_ownership() noexcept;

  /// What the allocator takes for itself with each piece.
  static constexpr std::size_t kOverhead = 16;

  std::uint64_t nodes_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t limit_ = kMaxRetainedBytes;
  bool owned_ = true;
};

}  // namespace headroom::trace::pickle
