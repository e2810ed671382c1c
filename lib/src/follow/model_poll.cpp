// Model: reading. A poll reads events first and the books after them, so that the live table and the peak know at least what the
// events say. Operations go through their ledger's sequence; the journal is held back for one read, in which everything that was
// written before is seen.
#include <algorithm>
#include <bit>
#include <utility>

#include "follow/model_impl.hpp"

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;

constexpr std::size_t kLeastMemory = std::size_t{64} << 10U;
constexpr std::size_t kMostChunkSteps = std::size_t{1} << 16U;
constexpr std::size_t kLeastChunkSteps = 256;

/// A sixteenth of the memory, so that the past is forgotten in small pieces.
std::size_t chunk_steps_for(std::size_t memory) noexcept {
  return std::clamp(std::bit_floor(std::max<std::size_t>(memory / sizeof(Step) / 16, 1)), kLeastChunkSteps, kMostChunkSteps);
}

/// A sixteenth of it for the journal.
std::size_t journal_events_for(std::size_t memory) noexcept { return std::max<std::size_t>(memory / sizeof(Event) / 16, 64); }

bool is_operation(Event const& event) noexcept {
  return event.kind == EventKind::allocate || event.kind == EventKind::free || event.kind == EventKind::write_off;
}

/// Before they are sorted, which is most of what they cost. Returns the newest instant of all.
std::uint64_t leave_out_operations(News& news) {
  std::uint64_t newest = 0;
  for (auto const& event : news.events) newest = std::max(newest, event.ticks);
  std::erase_if(news.events, is_operation);
  return newest;
}

/// What is missing happened before the first record of its lane that was read after it; at the latest, now.
std::uint64_t end_of_gap(flight::Gap const& gap, std::vector<Event> const& timeline, std::uint64_t now) {
  auto const after = std::ranges::find_if(timeline, [&](Event const& event) {
    return event.lane == gap.lane && event.ring == gap.ring && event.number > gap.last_missing;
  });
  return after == timeline.end() ? now : after->ticks;
}

}  // namespace

Model::Impl::Impl(std::unique_ptr<Source> from, Options const& wanted)
    : options{wanted},
      source{std::move(from)},
      clock{source->clock()},
      journal{journal_events_for(std::max(wanted.memory_bytes, kLeastMemory))},
      stories{std::max<std::size_t>(wanted.failures, 1), [this](std::uint32_t id) { return label(id); },
              [this](std::uint64_t ticks) { return clock.duration_ns(ticks); }},
      chunk_steps_{chunk_steps_for(std::max(wanted.memory_bytes, kLeastMemory))} {
  options.memory_bytes = std::max(wanted.memory_bytes, kLeastMemory);
  // The clock map converts ticks to ns; a second is found by halving.
  std::uint64_t low = 1;
  std::uint64_t high = std::uint64_t{1} << 40U;
  while (low < high) {
    auto const middle = low + (high - low) / 2;
    if (clock.duration_ns(middle) >= 1'000'000'000) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  second_ = low;
  auto const patience_ms = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted.patience.count(), 0, 1'000'000));
  patience_ticks_ = second_ / 1000 * patience_ms + second_ % 1000 * patience_ms / 1000;
}

// ── names ──

std::string Model::Impl::label(std::uint32_t id) const {
  auto found = source->name(id);
  return found ? std::move(found->label) : std::string{};
}

std::uint16_t Model::Impl::tag_number(std::uint32_t id) {
  if (id == 0) return 0;
  auto const [place, is_new] = tag_numbers_.try_emplace(id);
  if (is_new) place->second = static_cast<std::uint16_t>(tags.intern(label(id)));
  return place->second;
}

std::uint32_t Model::Impl::site_number(std::uint32_t id) {
  if (id == 0) return 0;
  auto const [place, is_new] = site_numbers_.try_emplace(id);
  if (is_new) place->second = sites.intern(label(id));
  return place->second;
}

Model::Impl::Track& Model::Impl::track(std::uint32_t cell) {
  return tracks.try_emplace(cell, second_, chunk_steps_).first->second;
}

Step Model::Impl::to_step(Event const& event) {
  auto bits = static_cast<std::uint8_t>(std::min<std::uint64_t>((event.words[5] >> 52U) & 0xFU, 4));
  if ((event.flags() & flight::kFlagUntracked) != 0) bits |= Step::kUntracked;
  return {.ticks = event.ticks,
          .address = event.words[2],
          .bytes = event.bytes(),
          .allocated = event.allocated_after(),
          .site = site_number(static_cast<std::uint32_t>(event.words[6])),
          .thread = event.thread(),
          .duration_ns = event.duration_ns(),
          .tag = tag_number(event.tag()),
          .kind = event.kind,
          .bits = bits};
}

// ── a poll ──

Result<bool> Model::Impl::poll(bool give_up) {
  if (ended) return false;
  News news;
  if (auto read = source->read(news); !read) return tl::unexpected{std::move(read.error())};
  tag_numbers_.clear();
  site_numbers_.clear();
  slots_.reset();
  clock = source->clock();
  books = source->ledgers();
  ended = news.ended && !news.more;
  has_more = news.more;
  if (!origin_ticks) note_origin(news);
  // Also without a new record the answers change: what was held back goes in, patience with a late one runs out, the program ends.
  auto const has_news = news.more || !news.events.empty() || !news.gaps.empty() || !held_.empty() || ended;
  auto const before = extent();
  if (!options.operations) last_ticks = std::max(last_ticks, leave_out_operations(news));
  sort_in(news);
  // A read that is cut off may have left out what came before its last events.
  auto const final = (give_up || ended) && !news.more;
  for (auto& [cell, track] : tracks) drain(cell, track, final);
  if (options.operations) begin_quiet_ledgers(final);
  auto const has_table = source->kind() != SourceKind::history && source->live_is_whole();
  if (ended && has_table && source->liveness() == flight::Liveness::dead) reconcile_with_table();
  note_books(ended);
  for (auto& [cell, track] : tracks) track.past.settle();
  forget();
  polled_ticks = std::max({polled_ticks, source->now_ticks(), last_ticks});
  return has_news || extent() != before;
}

Model::Impl::Extent Model::Impl::extent() const noexcept {
  Extent extent;
  for (auto const& [cell, track] : tracks) {
    extent.steps += track.past.steps();
    extent.segments += track.past.segment_count();
    extent.behind += track.past.is_behind() ? 1U : 0U;
  }
  return extent;
}

void Model::Impl::note_origin(News const& news) {
  if (news.events.empty()) return;
  origin_ticks = std::ranges::min_element(news.events, {}, &Event::ticks)->ticks;
  if (auto const first = source->first_ticks()) origin_ticks = std::min(*origin_ticks, *first);
}

void Model::Impl::sort_in(News& news) {
  flight::sort_timeline(news.events);
  auto const lost_journal =
      std::ranges::any_of(news.gaps, [](flight::Gap const& gap) { return gap.ring == flight::Ring::journal; });
  if (lost_journal) {
    for (auto const& gap : news.gaps) {
      if (gap.ring == flight::Ring::journal) journal.note_loss(end_of_gap(gap, news.events, source->now_ticks()));
    }
  }
  for (auto const& event : news.events) {
    last_ticks = std::max(last_ticks, event.ticks);
    if (is_operation(event)) track(event.ledger()).sequence.add(event.words[4], to_step(event));
  }
  add_journal(news);
}

/// What was held back goes in now, and whatever came before it meanwhile; what is newer is held back in turn.
void Model::Impl::add_journal(News const& news) {
  auto const newest = news.ended ? ~std::uint64_t{0} : held_.empty() ? 0 : held_.back().ticks;
  auto ready = std::exchange(held_, {});
  for (auto const& event : news.events) {
    if (event.ring == flight::Ring::journal) (event.ticks <= newest ? ready : held_).push_back(event);
  }
  flight::sort_timeline(ready);
  // What the last read brought is added in this one, with gaps that it noticed; of what is new, some is.
  std::size_t old = cuts_.size();
  std::ranges::copy_if(news.gaps, std::back_inserter(cuts_),
                       [](flight::Gap const& gap) { return gap.ring == flight::Ring::journal; });
  auto const tell = [&](std::size_t place) {
    stories.note_loss(cuts_[place].lane);
    cuts_.erase(cuts_.begin() + static_cast<std::ptrdiff_t>(place));
    if (place < old) --old;
  };
  for (auto const& event : ready) {
    for (std::size_t place = 0; place < cuts_.size();) {
      if (cuts_[place].lane == event.lane && event.number > cuts_[place].last_missing) {
        tell(place);
      } else {
        ++place;
      }
    }
    journal.add(event);
    stories.add(event);
  }
  // Nothing that was written before these is still to be added.
  if (news.ended) old = cuts_.size();
  while (old > 0) tell(0);
}

void Model::Impl::drain(std::uint32_t cell, Track& track, bool give_up) {
  auto const* const book = book_of(cell);
  auto const owner_since = book == nullptr ? 0 : book->created_ticks;
  track.sequence.drain(
      give_up, patience_ticks_, source->now_ticks(),
      [&](std::uint64_t alloc_word, Step const& first, std::uint64_t missing, bool whole) {
        begin(cell, track, alloc_word, first, missing, whole);
      },
      [&](Step const& step) {
        // A cell is handed on only when it holds nothing and no operation of its owner is under way: ticks tell whose this one is.
        if (track.owner_since < owner_since && step.ticks >= owner_since) {
          track.past.reopen(owner_since);
          track.owner_since = owner_since;
        }
        track.past.apply(step);
      });
}

/// A new owner that has done nothing yet. Records of the one before are all there at the read after the one in which the books
/// told of it.
void Model::Impl::note_owner(flight::LedgerSnapshot const& book, Track& track, bool final) {
  auto const was_known = std::exchange(track.owner_in_books, book.created_ticks) == book.created_ticks;
  if (track.owner_since >= book.created_ticks || track.sequence.waiting() != 0) return;
  if (!final && (!was_known || book.created_ticks > source->now_ticks())) return;
  track.past.reopen(book.created_ticks);
  track.owner_since = book.created_ticks;
}

void Model::Impl::note_books(bool final) {
  for (auto const& book : books) {
    auto const found = tracks.find(book.cell);
    if (found == tracks.end() || !found->second.past.has_segment()) continue;
    auto& [cell, track] = *found;
    track.past.note_behind(book.allocated != track.past.sums().allocated);
    note_owner(book, track, final);
    // Until the past has come to the owner of the books, their peak says nothing about it.
    if (track.owner_since < book.created_ticks) continue;
    track.past.note_book_peak(book.peak, track.sequence.waiting() == 0, final);
  }
}

std::size_t Model::Impl::memory() const noexcept {
  auto bytes = journal.memory();
  for (auto const& [cell, track] : tracks) bytes += track.past.memory();
  return bytes;
}

/// The oldest chunk of all ledgers goes first; the one that is being written always stays.
void Model::Impl::forget() {
  while (memory() > options.memory_bytes) {
    LedgerPast* oldest = nullptr;
    for (auto& [cell, track] : tracks) {
      auto const& chunks = track.past.chunks();
      if (chunks.size() < 2) continue;
      if (oldest == nullptr || chunks[1].begin_ticks < oldest->chunks()[1].begin_ticks) oldest = &track.past;
    }
    if (oldest == nullptr) return;
    oldest->forget_oldest();
  }
}

flight::LedgerSnapshot const* Model::Impl::book_of(std::uint32_t cell) const noexcept {
  auto const found = std::ranges::find(books, cell, &flight::LedgerSnapshot::cell);
  return found == books.end() ? nullptr : &*found;
}

Model::Impl::Track const* Model::Impl::track_of(std::uint32_t cell) const noexcept {
  auto const found = tracks.find(cell);
  return found == tracks.end() ? nullptr : &found->second;
}

}  // namespace headroom::follow
