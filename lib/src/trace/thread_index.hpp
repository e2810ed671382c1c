// headroom: dense numbers for the threads of a history, in order of first appearance.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <headroom/trace.hpp>

namespace headroom::trace {

class ThreadIndex {
public:
  /// The index of a recorded thread number; absent when it would be one thread more than TraceReader::kMaxThreads.
  [[nodiscard]] std::optional<std::uint32_t> index_of(std::uint64_t id) {
    // Histories alternate between few threads: this cache answers nearly always, in a fraction of a hash table's time.
    auto& entry = cache_[(id * 0x9E37'79B9'7F4A'7C15U) >> 58U];
    if (entry.is_set && entry.id == id) [[likely]]
      return entry.index;
    auto found = index_by_id_.find(id);
    if (found == index_by_id_.end()) {
      if (ids_.size() == TraceReader::kMaxThreads) return std::nullopt;
      found = index_by_id_.emplace(id, static_cast<std::uint32_t>(ids_.size())).first;
      ids_.push_back(id);
    }
    entry = {.id = id, .index = found->second, .is_set = true};
    return entry.index;
  }

  [[nodiscard]] std::span<std::uint64_t const> ids() const noexcept { return ids_; }

private:
  struct Entry {
    std::uint64_t id = 0;
    std::uint32_t index = 0;
    bool is_set = false;
  };
  std::array<Entry, 64> cache_{};
  std::unordered_map<std::uint64_t, std::uint32_t> index_by_id_;
  std::vector<std::uint64_t> ids_;
};

}  // namespace headroom::trace
