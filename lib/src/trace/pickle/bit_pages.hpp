// A growing set of numbers below 2^32, as bits in pages that exist where a number was set.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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

  /// After the last set() and before the first count_below().
  void count() noexcept {
    std::uint64_t before = 0;
    for (auto const& page : pages_) {
      if (page == nullptr) continue;
      page->before = before;
      std::uint32_t within = 0;
      for (std::size_t i = 0; i < kPageWords; ++i) {
        page->within[i] = static_cast<std::uint16_t>(within);
        within += static_cast<std::uint32_t>(std::popcount(page->words[i]));
      }
      before += within;
    }
  }

  /// How many numbers of the set are below `number`, which is one of them.
  [[nodiscard]] std::uint64_t count_below(std::uint64_t number) const noexcept {
    auto const& page = *pages_[number / kPageBits];
    auto const word = number / 64 % kPageWords;
    auto const lower = page.words[word] & ((std::uint64_t{1} << (number % 64)) - 1);
    return page.before + page.within[word] + static_cast<std::uint64_t>(std::popcount(lower));
  }

private:
  static constexpr std::size_t kPageWords = 512;
  static constexpr std::size_t kPageBits = kPageWords * 64;
  static_assert(kPageBits < 65'536, "Page::within");

  struct Page {
    std::array<std::uint64_t, kPageWords> words{};
    std::array<std::uint16_t, kPageWords> within{};  // set bits of this page before each word
    std::uint64_t before = 0;                        // … and of the pages before it
  };

  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace headroom::trace::pickle
