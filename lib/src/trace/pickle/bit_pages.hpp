// A growing set of numbers below 2^32, as bits in pages that exist where a number was set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace headroom::trace::pickle {

class BitPages {
public:
  [[nodiscard]] bool test(std::uint64_t number) const noexcept {
    auto const page = number / kPageBits;
    if (page >= pages_.size() || pages_[page] == nullptr) return false;
    return (pages_[page]->words[number / 64 % kPageWords] >> (number % 64) & 1U) != 0;
  }

  void set(std::uint64_t number) {
    auto const page = number / kPageBits;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) pages_[page] = std::make_unique<Page>();
    pages_[page]->words[number / 64 % kPageWords] |= std::uint64_t{1} << (number % 64);
  }

  [[nodiscard]] bool empty() const noexcept { return pages_.empty(); }

private:
  static constexpr std::size_t kPageWords = 512;
  static constexpr std::size_t kPageBits = kPageWords * 64;

  struct Page {
    std::array<std::uint64_t, kPageWords> words{};
  };

  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace headroom::trace::pickle
