// headroom: which blocks of a history are live, by address.
//
// A map that forgives what real logs contain: two live blocks at one address (TraceSummary says why). The summary keeps sizes in
// it; a replay keeps what it allocated. Thread safety: none. Memory: proportional to the live blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headroom::trace {

template <class Value>
class LiveBlocks {
public:
  struct Live {
    std::uint64_t bytes = 0;
    Value value{};
  };

  /// Returns false when another block is live at `pointer` already; both are kept.
  bool insert(std::uint64_t pointer, std::uint64_t bytes, Value value) {
    auto const [place, is_new] = blocks_.try_emplace(pointer);
    if (is_new) {
      place->second = Live{bytes, std::move(value)};
    } else {
      more_[pointer].push_back(Live{bytes, std::move(value)});
    }
    ++size_;
    return is_new;
  }

  /// Takes out the oldest block at `pointer` of this size, or the oldest; absent when none is live there.
  [[nodiscard]] std::optional<Live> take(std::uint64_t pointer, std::uint64_t bytes) {
    auto const place = blocks_.find(pointer);
    if (place == blocks_.end()) return std::nullopt;
    --size_;
    auto const more = more_.empty() ? more_.end() : more_.find(pointer);
    if (more == more_.end()) {
      Live taken = std::move(place->second);
      blocks_.erase(place);
      return taken;
    }
    // Several at one address: blocks_ holds the oldest, more_ the younger ones by age.
    auto& younger = more->second;
    auto const same_size =
        std::find_if(younger.begin(), younger.end(), [bytes](Live const& live) { return live.bytes == bytes; });
    auto const takes_oldest = place->second.bytes == bytes || same_size == younger.end();
    auto const successor = takes_oldest ? younger.begin() : same_size;
    Live taken = std::move(takes_oldest ? place->second : *same_size);
    if (takes_oldest) place->second = std::move(*successor);
    younger.erase(successor);
    if (younger.empty()) more_.erase(more);
    return taken;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Calls visit(pointer, live) for every live block, in no particular order.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (auto const& [pointer, live] : blocks_) visit(pointer, live);
    for (auto const& [pointer, younger] : more_) {
      for (auto const& live : younger) visit(pointer, live);
    }
  }

private:
  std::unordered_map<std::uint64_t, Live> blocks_;
  std::unordered_map<std::uint64_t, std::vector<Live>> more_;
  std::size_t size_ = 0;
};

}  // namespace headroom::trace
