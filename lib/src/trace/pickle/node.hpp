// What a Value refers to that does not fit into 16 bytes.
//
// Users see nodes only through Value. A node and what it holds belong to the Store that made it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::trace::pickle {

enum class Type : std::uint8_t { none, boolean, integer, real, text, bytes, list, tuple, dict };

class Store;

/// How a list or dict leaves the stack: by which opcode it is put into another container. The first pass sees it (reuse.hpp).
enum class Fate : std::uint8_t {
  unknown,  ///< dropped, or put into a tuple, or by an opcode that makes its container at once
  single,   ///< APPEND or SETITEM
  batch,    ///< APPENDS or SETITEMS
  root,     ///< STOP
};

struct Node {
  Store* store = nullptr;
  void* content = nullptr;       // char, Value or Entry; texts, bytes and tuples: right behind the node, others: of its own
  std::uint64_t size = 0;        // how many
  std::uint32_t capacity = 0;    // of a list or dict
  std::uint32_t references = 1;  // no wrap: each reference is 16 bytes of memory
  std::uint32_t note = 0;
  std::uint8_t depth = 1;  // 1 + that of the deepest item
  Fate fate = Fate::unknown;
  bool sealed = false;    // a list or dict that was put somewhere or fetched again: never changes any more
  bool asked = false;     // the visitor was asked about this list
  bool taken = false;     // … and takes its items
  bool hashable = false;  // a tuple that may be a key
};

/// Ends a node without references, and the references that it held. Recurses no deeper than kMaxDepth.
void free_node(Node* node, Type type) noexcept;

}  // namespace headroom::trace::pickle
