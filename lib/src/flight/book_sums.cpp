#include "flight/book_sums.hpp"

#include <algorithm>
#include <tuple>

#include "flight/book_readers.hpp"
#include "flight/mapping.hpp"

namespace headroom::flight {
namespace {

/// Acquire: pairs with the writers' release stores (counters.hpp), so that whoever sees a free then sees its allocation, wherever
/// that was counted, and the lane that counted it.
std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_acquire(word); }

std::uint64_t never_negative(std::uint64_t sum) noexcept { return static_cast<std::int64_t>(sum) < 0 ? 0 : sum; }

/// Calls `visit` with the counters of `ledger` in every lane that has its own, and with those in the overflow block.
template <class Visit>
void for_each_counters(MappedFlight const& mapped, std::uint32_t ledger, Visit const& visit) {
  if (ledger < kLaneLedgers) {
    auto const lanes = mapped.lanes();
    auto const used = mapped.lanes_with_books();
    for (std::uint32_t i = 0; i < used; ++i) visit(lanes[i].counters[ledger]);
  }
  visit(mapped.overflow().counters[ledger]);
}

template <std::size_t N>
void add(std::array<std::uint64_t, N>& sums, Word const (&words)[N]) noexcept {
  for (std::size_t i = 0; i < N; ++i) sums[i] += load(words[i]);
}

template <std::size_t N>
void subtract(std::array<std::uint64_t, N>& sums, Word const (&base)[N]) noexcept {
  for (std::size_t i = 0; i < N; ++i) sums[i] = never_negative(sums[i] - load(base[i]));
}

constexpr int kPeakTries = 8;

}  // namespace

void sum_tag(MappedFlight const& mapped, std::uint32_t cell, std::uint64_t peak_word, TagSnapshot& tag) noexcept {
  TagBytes sum;
  std::uint64_t allocations = 0;
  auto const take = [&](TagCell const& one) {
    auto const part = read_tag_bytes<StdAtomics>(one, peak_word);
    sum.bytes += part.bytes;
    sum.at_peak += part.at_peak;
    allocations += load(one.allocations);
  };
  auto const lanes = mapped.lanes();
  auto const used = mapped.lanes_with_books();
  for (std::uint32_t i = 0; i < used; ++i) take(lanes[i].tags[cell]);
  take(mapped.overflow().tags[cell]);
  // What the cell's former tag left in it: at_peak is a copy of bytes and has the same part of it.
  auto const& base = mapped.tag_bases()[cell];
  auto const base_bytes = load(base.bytes);
  tag.bytes = never_negative(sum.bytes - base_bytes);
  tag.at_peak_bytes = never_negative(sum.at_peak - base_bytes);
  tag.allocations = never_negative(allocations - load(base.allocations));
}

CounterSums sum_counters(MappedFlight const& mapped, std::uint32_t ledger) {
  CounterSums sums;
  for_each_counters(mapped, ledger, [&](LedgerCounters const& from) {
    sums.frees += load(from.frees);
    sums.deallocation_bytes += load(from.deallocation_bytes);
    sums.free_ns += load(from.free_ns);
  });
  for_each_counters(mapped, ledger, [&](LedgerCounters const& from) {
    sums.allocations += load(from.allocations);
    sums.allocation_bytes += load(from.allocation_bytes);
    sums.typed_requests += load(from.typed_requests);
    sums.raw_requests += load(from.raw_requests);
    sums.allocation_ns += load(from.allocation_ns);
    sums.zero_byte_requests += load(from.zero_byte_requests);
    add(sums.size_histogram, from.size_histogram);
    add(sums.duration_histogram, from.duration_histogram);
    add(sums.use_histogram, from.use_histogram);
  });
  auto const* const base = mapped.ledger_bases().find(ledger);
  if (base == nullptr) return sums;
  auto const less = [](std::uint64_t& sum, Word const& word) { sum = never_negative(sum - load(word)); };
  less(sums.allocations, base->allocations);
  less(sums.frees, base->frees);
  less(sums.allocation_bytes, base->allocation_bytes);
  less(sums.deallocation_bytes, base->deallocation_bytes);
  less(sums.typed_requests, base->typed_requests);
  less(sums.raw_requests, base->raw_requests);
  less(sums.allocation_ns, base->allocation_ns);
  less(sums.free_ns, base->free_ns);
  less(sums.zero_byte_requests, base->zero_byte_requests);
  subtract(sums.size_histogram, base->size_histogram);
  subtract(sums.duration_histogram, base->duration_histogram);
  subtract(sums.use_histogram, base->use_histogram);
  return sums;
}

EarlierSums earlier_sums(MappedFlight const& mapped, std::uint32_t ledger) noexcept {
  auto const* const base = mapped.ledger_bases().find(ledger);
  if (base == nullptr) return {};
  return {.allocations = load(base->allocations),
          .frees = load(base->frees),
          .allocation_bytes = load(base->allocation_bytes),
          .deallocation_bytes = load(base->deallocation_bytes)};
}

std::vector<TagSnapshot> sum_tags(MappedFlight const& mapped, std::vector<TagName const*> const& wanted, Word const& peak_word) {
  std::vector<TagSnapshot> tags;
  tags.reserve(wanted.size());
  for (auto const* const name : wanted) {
    auto& tag = tags.emplace_back();
    tag.id = name->id;
    tag.name = name->label;
  }
  // All tags belong to one peak: if a new one was set meanwhile, read again; after 8 tries what was read last is shown.
  for (int i = 0; i < kPeakTries; ++i) {
    // Acquire: pairs with the CAS that set the peak.
    auto const peak = StdAtomics::load_acquire(peak_word);
    for (std::size_t t = 0; t < tags.size(); ++t) sum_tag(mapped, wanted[t]->cell, peak, tags[t]);
    if (StdAtomics::load_relaxed(peak_word) == peak) break;  // after the acquire loads of the cells
  }
  std::ranges::sort(tags, [](TagSnapshot const& a, TagSnapshot const& b) {
    return std::tie(b.bytes, a.name, a.id) < std::tie(a.bytes, b.name, b.id);
  });
  return tags;
}

}  // namespace headroom::flight
