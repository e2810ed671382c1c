#include <algorithm>
#include <utility>
#include <vector>

#include "follow/model_impl.hpp"

namespace headroom::follow {

Model::Model(std::unique_ptr<Source> source, Options const& options)
    : impl_{std::make_unique<Impl>(std::move(source), options)} {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::open_flight(std::string path, Options const& options) {
  auto source = open_flight_source(std::move(path));
  if (!source) return tl::unexpected{std::move(source.error())};
  return Model{std::move(*source), options};
}

Result<Model> Model::open_history(std::string path, Options const& options) {
  auto source = open_history_source(std::move(path));
  if (!source) return tl::unexpected{std::move(source.error())};
  return Model{std::move(*source), options};
}

Result<bool> Model::poll() { return impl_->poll(false); }

Result<void> Model::catch_up() {
  // A flight file is read whole each time, and a busy process always has more: a few reads let it come to rest. What is given up
  // in the second one has its blocks from the table; the peak is judged by a read after that.
  constexpr int kSettlingReads = 3;
  do {
    if (auto read = impl_->poll(false); !read) return tl::unexpected{std::move(read.error())};
  } while (impl_->has_more);
  for (int i = 0; i < kSettlingReads && !impl_->ended; ++i) {
    if (auto read = impl_->poll(true); !read) return tl::unexpected{std::move(read.error())};
  }
  return {};
}

Source const& Model::source() const noexcept { return *impl_->source; }
bool Model::ended() const noexcept { return impl_->ended; }
std::uint64_t Model::last_ticks() const noexcept { return impl_->last_ticks; }
std::uint64_t Model::origin_ticks() const noexcept { return impl_->origin_ticks.value_or(0); }
std::uint64_t Model::realtime_ns(std::uint64_t ticks) const { return impl_->clock.realtime_ns(ticks); }
std::uint64_t Model::monotonic_ns(std::uint64_t ticks) const { return impl_->clock.monotonic_ns(ticks); }
std::uint64_t Model::duration_ns(std::uint64_t ticks) const { return impl_->clock.duration_ns(ticks); }
std::size_t Model::memory_bytes() const noexcept { return impl_->memory(); }
std::span<flight::LedgerSnapshot const> Model::ledgers() const noexcept { return impl_->books; }
flight::LedgerSnapshot const* Model::ledger(std::uint32_t cell) const noexcept { return impl_->book_of(cell); }

std::uint64_t Model::first_ticks() const noexcept {
  auto first = ~std::uint64_t{0};
  if (!impl_->journal.events().empty()) first = impl_->journal.events().front().ticks;
  for (auto const& [cell, track] : impl_->tracks) {
    for (auto const& chunk : track.past.chunks()) {
      if (chunk.steps.empty()) continue;
      first = std::min(first, chunk.steps.front().ticks);
      break;
    }
  }
  return first == ~std::uint64_t{0} ? 0 : first;
}

Losses Model::losses() const {
  Losses losses;
  losses.events_read = impl_->source->accepted();
  losses.events_lost = impl_->source->lost();
  auto const process = impl_->source->process();
  losses.events_refused = process.refused_no_lane + process.refused_reentrant + process.refused_early;
  for (auto const& [cell, track] : impl_->tracks) {
    losses.operations_missing += track.missing;
    losses.gaps += track.gaps;
    losses.late_events += track.sequence.late();
    losses.waiting_events += track.sequence.waiting();
    losses.forgotten_operations += track.past.forgotten();
    losses.unmatched_frees += track.past.unmatched();
  }
  losses.forgotten_failures = impl_->stories.forgotten();
  return losses;
}

namespace {

/// The failure that a file is about, among those that its events tell. It is told by its first record where that is left, and by its
/// holders, which were written down because they mattered.
void take_in(std::vector<FailureStory>& stories, FailureStory recorded) {
  auto const is_same = [&](FailureStory const& story) {
    return story.ledger == recorded.ledger && story.ticks == recorded.ticks && story.requested == recorded.requested;
  };
  if (auto const told = std::ranges::find_if(stories, is_same); told != stories.end()) {
    told->holders = std::move(recorded.holders);
    return;
  }
  recorded.number = stories.empty() ? 1 : stories.back().number + 1;
  auto const after = std::ranges::upper_bound(stories, recorded.ticks, {}, &FailureStory::ticks);
  stories.insert(after, std::move(recorded));
}

}  // namespace

std::vector<FailureStory> Model::failures(std::size_t most) const {
  auto recorded = impl_->source->failure();
  auto stories = impl_->stories.last(recorded ? ~std::size_t{0} : most);  // it may be about an older one
  if (recorded) {
    take_in(stories, std::move(*recorded));
    if (stories.size() > most) stories.erase(stories.begin(), stories.end() - static_cast<std::ptrdiff_t>(most));
  }
  for (auto& story : stories) {
    auto const* const book = impl_->book_of(story.ledger);
    // A failure of the cell's owner before this one has a name that the books have forgotten; one without an instant is a dump's own.
    auto const is_owners = story.ticks == 0 || story.ticks >= Impl::owner_since(book);
    if (book != nullptr && is_owners) story.ledger_name = book->name;
  }
  return stories;
}

void Model::for_each_journal_event(std::uint64_t begin, std::uint64_t end,
                                   std::function<void(flight::Event const&)> const& visit) const {
  auto const& events = impl_->journal.events();
  for (auto at = std::ranges::lower_bound(events, begin, {}, &flight::Event::ticks); at != events.end() && at->ticks <= end;
       ++at) {
    visit(*at);
  }
}

Operation Model::Impl::to_operation(std::uint32_t cell, Step const& step) const {
  return {.ticks = step.ticks,
          .ledger = cell,
          .kind = step.kind,
          .address = step.address,
          .bytes = step.bytes,
          .allocated_after = step.allocated,
          .thread = step.thread,
          .duration_ns = step.duration_ns,
          .recovered = (step.bits & Step::kRecovered) != 0,
          .tag = tags.text(step.tag),
          .site = sites.text(step.site)};
}

void Model::for_each_operation(std::uint32_t ledger, std::uint64_t begin, std::uint64_t end,
                               std::function<bool(Operation const&)> const& visit) const {
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr) return;
  for (auto const& chunk : track->past.chunks()) {
    if (chunk.steps.empty() || chunk.steps.back().ticks < begin) continue;
    auto step = std::ranges::lower_bound(chunk.steps, begin, {}, &Step::ticks);
    for (; step != chunk.steps.end(); ++step) {
      if (step->ticks > end) return;
      if (!visit(impl_->to_operation(ledger, *step))) return;
    }
  }
}

std::vector<PastGap> Model::gaps(std::uint32_t ledger, std::uint64_t since) const {
  std::vector<PastGap> gaps;
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr) return gaps;
  auto const& past = track->past;
  Chunk const* after = nullptr;
  for (auto chunk = past.chunks().rbegin(); chunk != past.chunks().rend(); ++chunk) {
    auto const& segment = after == nullptr ? past.segment_of(*chunk) : past.segment_of(*after);
    auto const last = chunk->steps.empty() ? chunk->begin_ticks : chunk->steps.back().ticks;
    if (after == nullptr) {
      if (past.is_behind()) gaps.push_back({.begin_ticks = last, .end_ticks = 0, .missing = 0});
    } else if (&past.segment_of(*chunk) != &segment && !segment.continues) {
      auto const end = after->steps.empty() ? after->begin_ticks : after->steps.front().ticks;
      if (end < since) break;
      gaps.push_back({.begin_ticks = last, .end_ticks = end, .missing = segment.missing});
    }
    after = &*chunk;
  }
  std::ranges::reverse(gaps);
  return gaps;
}

void Model::for_each_stretch(std::uint32_t ledger, std::function<void(PastStretch const&)> const& begin,
                             std::function<void(Operation const&)> const& operation) const {
  auto const* const track = impl_->track_of(ledger);
  if (track == nullptr) return;
  Segment const* last = nullptr;
  for (auto const& chunk : track->past.chunks()) {
    auto const& segment = track->past.segment_of(chunk);
    auto const is_begin = last == nullptr || (&segment != last && (!segment.continues || segment.is_new_owner));
    last = &segment;
    if (is_begin) {
      PastStretch stretch{.ticks = chunk.begin_ticks,
                          .from_birth = segment.from_birth && track->past.forgotten() == 0,
                          .new_owner = segment.is_new_owner,
                          .missing = segment.missing,
                          .allocated = chunk.keyframes.front().sums.allocated,
                          .live = {},
                          .is_whole = segment.is_whole};
      stretch.live.reserve(chunk.base.size());
      for (auto const& block : chunk.base) stretch.live.push_back(impl_->to_live_block(block));
      begin(stretch);
    }
    for (auto const& step : chunk.steps) operation(impl_->to_operation(ledger, step));
  }
}

}  // namespace headroom::follow
