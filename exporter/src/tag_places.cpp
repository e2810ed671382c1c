#include "tag_places.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace headroom::exporter {
namespace {

using flight::LedgerSnapshot;
using flight::TagSnapshot;

/// Keeps the first `most` of them by their place in the directory; `other` is nobody's place, and always there for the rest.
void keep_first(std::vector<TagSnapshot>& tags, std::size_t most) {
  const auto is_other = [](TagSnapshot const& tag) { return tag.name == kOtherTag; };
  std::ranges::sort(tags, [&](TagSnapshot const& left, TagSnapshot const& right) {
    return std::tuple{is_other(left), left.id} < std::tuple{is_other(right), right.id};
  });
  const auto others = std::ranges::count_if(tags, is_other);
  if (tags.size() - static_cast<std::size_t>(others) <= most) return;
  TagSnapshot rest{.id = 0, .name = kOtherTag};
  const auto first = tags.begin() + static_cast<std::ptrdiff_t>(most);
  for (auto const& tag : std::ranges::subrange(first, tags.end())) {
    rest.bytes += tag.bytes;
    rest.at_peak_bytes += tag.at_peak_bytes;
    rest.allocations += tag.allocations;
  }
  tags.erase(first, tags.end());
  tags.push_back(std::move(rest));
}

}  // namespace

void keep_to_tag_places(std::vector<LedgerSnapshot>& ledgers, std::size_t places) {
  std::size_t all = 0;
  for (auto const& ledger : ledgers) all += ledger.tags.size();
  if (all <= places) return;  // nearly always
  std::vector<LedgerSnapshot*> oldest_first;
  oldest_first.reserve(ledgers.size());
  for (auto& ledger : ledgers) oldest_first.push_back(&ledger);
  std::ranges::sort(oldest_first, {},
                    [](LedgerSnapshot const* ledger) { return std::tuple{ledger->created_ticks, ledger->cell}; });
  for (auto* const ledger : oldest_first) {
    keep_first(ledger->tags, places);
    const auto taken = static_cast<std::size_t>(
        std::ranges::count_if(ledger->tags, [](TagSnapshot const& tag) { return tag.name != kOtherTag; }));
    places -= std::min(taken, places);
  }
}

}  // namespace headroom::exporter
