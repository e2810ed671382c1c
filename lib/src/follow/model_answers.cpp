// Model: answers about an instant.
#include <algorithm>
#include <numeric>
#include <utility>

#include "follow/model_impl.hpp"

namespace headroom::follow {
namespace {

using flight::LedgerSnapshot;

std::vector<TagFigures> tags_of(Sums const& sums, Names const& names) {
  std::vector<TagFigures> tags;
  for (std::uint32_t number = 0; number < sums.tags.size(); ++number) {
    auto const& held = sums.tags[number];
    if (held.allocations == 0 && held.bytes == 0) continue;
    tags.push_back({.name = std::string{names.text(number)}, .bytes = held.bytes, .allocations = held.allocations});
  }
  std::ranges::stable_sort(tags, std::ranges::greater{}, &TagFigures::bytes);
  return tags;
}

constexpr Journal::Limit kUnknownLimit{.known = false, .bytes = {}, .enforcing = true};

Journal::Limit limit_of(LedgerSnapshot const& book) noexcept {
  return {.known = true, .bytes = book.limit, .enforcing = book.enforcing};
}

/// Without operations of its own a ledger has only what the books say now: an account's are its managers', and a model may be told to
/// keep none.
LedgerState state_in_books(LedgerSnapshot const& book, bool is_present) {
  LedgerState state;
  state.known = is_present ? Known::exact : Known::not_recorded;
  if (!is_present) return state;
  state.limit = book.limit;
  state.enforcing = book.enforcing;
  state.allocated = book.allocated;
  state.claimed = book.claimed;
  state.peak = book.peak;
  state.live_allocations = book.live_allocations;
  state.pressure = book.pressure;
  std::uint64_t sum = 0;
  for (auto const& tag : book.tags) {
    if (tag.bytes == 0) continue;
    // Only live bytes are in the books, not in how many allocations.
    state.tags.push_back({.name = tag.name, .bytes = tag.bytes, .allocations = 0});
    sum += tag.bytes;
  }
  state.unattributed_bytes = book.allocated > sum ? book.allocated - sum : 0;
  return state;
}

/// Where nothing was reserved, claimed is allocated; requests that were under way at the instant have no record.
std::optional<std::uint64_t> claimed_at(Journal const& journal, LedgerSnapshot const* book, std::uint32_t ledger,
                                        std::uint64_t ticks, std::uint64_t allocated) {
  if (book == nullptr || !journal.reservations_stood_since(ledger, ticks)) return std::nullopt;
  // How much of an open reservation was spent by then is not recorded.
  if (book->unspent_reservations != 0 || book->unspent != 0) return std::nullopt;
  return allocated;
}

}  // namespace

std::string_view to_string(Known known) noexcept {
  switch (known) {
    case Known::exact: return "exact";
    case Known::partial: return "partial";
    case Known::gap: return "gap";
    case Known::forgotten: return "forgotten";
    case Known::not_recorded: return "not_recorded";
    case Known::no_ledger: return "no_ledger";
  }
  return "unknown";
}

LedgerState Model::state_at(std::uint32_t ledger, std::uint64_t ticks) const {
  LedgerState state;
  auto const* const book = impl_->book_of(ledger);
  auto const* const track = impl_->track_of(ledger);
  // The cell may have had another owner before. What is in the books, a name above all, is not about that one.
  auto const since = Impl::owner_since(book);
  auto const is_owners = ticks >= since;
  if (book != nullptr && (book->is_device_account || !impl_->options.operations)) {
    state = state_in_books(*book, ticks >= impl_->polled_ticks);
  } else if (track != nullptr) {
    auto const has_come_to_it = !is_owners || track->owner_since >= since;
    auto const place = track->past.find(ticks);
    state.known = place.known;
    if (place.chunk != nullptr) {
      auto const sums = track->past.sums_at(place);
      state.missing_operations = place.missing;
      state.allocated = sums.allocated;
      state.live_allocations = sums.blocks;
      state.unattributed_bytes = sums.unattributed();
      state.tags = tags_of(sums, impl_->tags);
      if (has_come_to_it) state.peak = track->past.peak_at(place, sums);
      state.claimed = claimed_at(impl_->journal, book, ledger, ticks, sums.allocated);
      if (state.known == Known::exact && state.unattributed_bytes != 0) state.known = Known::partial;
      auto const pressure = impl_->journal.pressure_at(ledger, ticks, is_owners ? since : 0);
      auto const* const step = has_come_to_it ? track->past.step_before(place) : nullptr;
      if (step != nullptr) {
        state.as_of_ticks = step->ticks;
        state.pressure = static_cast<PressureLevel>(step->bits & Step::kPressure);
      }
      if (pressure && (step == nullptr || pressure->ticks >= step->ticks)) state.pressure = pressure->level;
    }
    auto const limit =
        book == nullptr || !is_owners ? kUnknownLimit : impl_->journal.limit_at(ledger, ticks, limit_of(*book), since);
    state.limit_known = limit.known;
    state.limit = limit.bytes;
    state.enforcing = limit.enforcing;
  }
  state.ledger = ledger;
  if (book != nullptr && is_owners) state.name = book->name;
  return state;
}

std::vector<LedgerState> Model::states_at(std::uint64_t ticks) const {
  std::vector<LedgerState> states;
  states.reserve(impl_->books.size());
  for (auto const& book : impl_->books) states.push_back(state_at(book.cell, ticks));
  return states;
}

PeakAnswer Model::peak(std::uint32_t ledger) const {
  PeakAnswer answer;
  auto const* const book = impl_->book_of(ledger);
  auto const* const track = impl_->track_of(ledger);
  if (book != nullptr) answer.bytes = book->peak;
  if (book == nullptr && track != nullptr) answer.bytes = track->past.sums().highest;
  auto const place = track == nullptr ? LedgerPast::Place{} : track->past.find_peak(answer.bytes, Impl::owner_since(book));
  if (place.chunk != nullptr) {
    auto const sums = track->past.sums_at(place);
    answer.ticks = place.chunk->steps[place.steps - 1].ticks;
    answer.tags = tags_of(sums, impl_->tags);
    answer.unattributed_bytes = sums.unattributed();
    return answer;
  }
  if (book == nullptr) return answer;
  answer.from_books = true;
  std::uint64_t sum = 0;
  for (auto const& tag : book->tags) {
    if (tag.at_peak_bytes == 0) continue;
    answer.tags.push_back({.name = tag.name, .bytes = tag.at_peak_bytes, .allocations = 0});
    sum += tag.at_peak_bytes;
  }
  std::ranges::stable_sort(answer.tags, std::ranges::greater{}, &TagFigures::bytes);
  answer.unattributed_bytes = answer.bytes > sum ? answer.bytes - sum : 0;
  return answer;
}

LiveBlock Model::Impl::to_live_block(Block const& block) const {
  return {.address = block.address,
          .bytes = block.bytes,
          .ticks = block.ticks == 0 ? std::nullopt : std::optional{block.ticks},
          .tag = std::string{tags.text(block.tag)},
          .site = std::string{sites.text(block.site)},
          .thread = block.thread};
}

std::vector<LiveBlock> Model::live_at(std::uint32_t ledger, std::uint64_t ticks) const {
  std::vector<LiveBlock> live;
  auto const* const track = impl_->track_of(ledger);
  auto const place = track == nullptr ? LedgerPast::Place{} : track->past.find(ticks);
  if (place.chunk == nullptr) return live;
  auto blocks = track->past.live_at(place);
  std::ranges::sort(blocks,
                    [](Block const& a, Block const& b) { return std::pair{a.ticks, a.address} < std::pair{b.ticks, b.address}; });
  live.reserve(blocks.size());
  for (auto const& block : blocks) live.push_back(impl_->to_live_block(block));
  return live;
}

LeakAnswer Model::alive_since(std::uint32_t ledger, std::uint64_t since, std::uint64_t ticks) const {
  LeakAnswer answer;
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr) return answer;
  auto const place = track->past.find(ticks);
  answer.known = place.known;
  if (place.chunk == nullptr) return answer;
  answer.unattributed_bytes = track->past.sums_at(place).unattributed();
  if (answer.known == Known::exact && answer.unattributed_bytes != 0) answer.known = Known::partial;

  struct Group {
    std::uint64_t bytes = 0, allocations = 0, oldest = ~std::uint64_t{0};
  };
  std::map<std::pair<std::uint16_t, std::uint32_t>, Group> groups;
  auto const& segment = track->past.segment_of(*place.chunk);
  for (auto const& block : track->past.live_at(place)) {
    // A block of unknown age is older than its segment, and not known to be older than anything before that.
    auto const allocated_before = block.ticks == 0 ? since >= segment.begin_ticks : block.ticks < since;
    if (!allocated_before) continue;
    auto& group = groups[{block.tag, block.site}];
    group.bytes += block.bytes;
    ++group.allocations;
    group.oldest = std::min(group.oldest, block.ticks);
    answer.bytes += block.bytes;
    ++answer.allocations;
  }
  for (auto const& [key, group] : groups) {
    answer.groups.push_back({.tag = std::string{impl_->tags.text(key.first)},
                             .site = std::string{impl_->sites.text(key.second)},
                             .bytes = group.bytes,
                             .allocations = group.allocations,
                             .oldest_ticks = group.oldest == 0 ? std::nullopt : std::optional{group.oldest}});
  }
  std::ranges::stable_sort(answer.groups, std::ranges::greater{}, &LeakGroup::bytes);
  return answer;
}

std::optional<Fragmentation> Model::fragmentation_at(std::uint32_t ledger, std::uint64_t ticks) const {
  auto const regions = impl_->source->regions(ledger);
  if (regions.empty()) return std::nullopt;
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr || track->past.find(ticks).chunk == nullptr) return std::nullopt;
  return fragmentation_of(regions, live_at(ledger, ticks));
}

std::optional<HeldThen> held_at(Model const& model, FailureStory const& story) {
  // Without any event a model knows the present only.
  auto const then = model.losses().events_read == 0 ? LedgerState{} : model.state_at(story.ledger, story.ticks);
  auto from_records = HeldThen{.bytes = then.allocated, .tags = then.tags, .unattributed_bytes = then.unattributed_bytes};
  if (then.known == Known::exact) return from_records;
  if (!story.holders.empty()) {
    auto const bytes = std::accumulate(story.holders.begin(), story.holders.end(), std::uint64_t{0},
                                       [](std::uint64_t sum, TagFigures const& tag) { return sum + tag.bytes; });
    return HeldThen{.bytes = bytes, .tags = story.holders, .unattributed_bytes = 0};
  }
  return then.known == Known::partial ? std::optional{std::move(from_records)} : std::nullopt;
}

}  // namespace headroom::follow
