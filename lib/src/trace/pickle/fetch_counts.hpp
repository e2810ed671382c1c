// How often each memo entry is fetched, as far as that pays: exactly up to 254 times, beyond that "many".
//
// Most entries are fetched never, once, or by most of the file: two bits for each, and a byte only around those that are fetched more
// than once. Those bytes have a bound of their own, since a pickle that is nothing but memo entries compresses to nearly nothing; what
// finds no room there counts as fetched many times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trace/pickle/bit_pages.hpp"
#include "trace/pickle/limits.hpp"

namespace headroom::trace::pickle {

class FetchCounts {
public:
  /// 255 times or more, or nobody knows.
  static constexpr std::uint8_t kMany = 255;

  /// `max_counts`: entries that the bytes may stand for, in whole pages.
  explicit FetchCounts(std::uint64_t max_counts = kMaxFetchCounts) : pages_left_{max_counts / kPageCounts} {}

  void add(std::uint64_t entry) {
    if (!once_.test(entry)) return once_.set(entry);
    again_.set(entry);
    auto const page = entry / kPageCounts;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) {
      if (pages_left_ == 0) return;
      pages_[page] = std::make_unique<Page>();
      --pages_left_;
    }
    auto& more = (*pages_[page])[entry % kPageCounts];
    if (more < kMany - 1) ++more;
  }

  [[nodiscard]] std::uint8_t of(std::uint64_t entry) const noexcept {
    if (!once_.test(entry)) return 0;
    if (!again_.test(entry)) return 1;
    auto const page = entry / kPageCounts;
    if (page >= pages_.size() || pages_[page] == nullptr) return kMany;
    return static_cast<std::uint8_t>(1 + (*pages_[page])[entry % kPageCounts]);
  }

private:
  static constexpr std::size_t kPageCounts = 256;
  using Page = std::array<std::uint8_t, kPageCounts>;  // how often beyond once

  BitPages once_;
  BitPages again_;  // at least once more
  std::vector<std::unique_ptr<Page>> pages_;
  std::uint64_t pages_left_;
};

}  // namespace headroom::trace::pickle
