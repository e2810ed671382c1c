// The memo entries that are fetched again, at the places that Reuse gives them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trace/pickle/store.hpp"
#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

class Memo {
public:
  /// False: more than the store's limit.
  [[nodiscard]] bool put(std::uint64_t place, Value const& value, Store& store) {
    auto const page = place / kPageValues;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) {
      if (!store.charge(sizeof(Page))) return false;
      pages_[page] = std::make_unique<Page>();
    }
    auto& slot = (*pages_[page])[place % kPageValues];
    slot.value = value;
    slot.is_put = true;
    return true;
  }

  /// Null: was not put.
  [[nodiscard]] Value const* get(std::uint64_t place) const noexcept {
    auto const page = place / kPageValues;
    if (page >= pages_.size() || pages_[page] == nullptr) return nullptr;
    auto const& slot = (*pages_[page])[place % kPageValues];
    return slot.is_put ? &slot.value : nullptr;
  }

  void clear(Store& store) noexcept {
    for (auto const& page : pages_) {
      if (page != nullptr) store.discharge(sizeof(Page));
    }
    pages_.clear();
  }

private:
  static constexpr std::size_t kPageValues = 256;
  struct Slot {
    Value value;
    bool is_put = false;
  };
  using Page = std::array<Slot, kPageValues>;

  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace headroom::trace::pickle
