// A timeline: what both roads have in common, and recorded histories, which are played as they are read.
#include "dump/timeline.hpp"

#include <algorithm>
#include <utility>

#include "base/quoted.hpp"
#include "dump/timeline_impl.hpp"

namespace headroom::dump {

// ── names ──

std::string TimelineTexts::label(std::uint32_t id) const {
  auto found = id == 0 ? std::nullopt : source_->name(id);
  return found ? std::move(found->label) : std::string{};
}

std::uint32_t TimelineTexts::tag_of(std::uint32_t id) {
  if (id == 0) return 0;
  auto const [place, is_new] = tag_numbers_.try_emplace(id);
  if (is_new) place->second = tags_.intern(label(id));
  return place->second;
}

/// With very many the last one stands for the rest.
std::uint32_t TimelineTexts::add_site(std::string name, std::uint32_t id) {
  if (sites_.size() + 1 > kMostSites) return static_cast<std::uint32_t>(kMostSites - 1);
  auto const is_last = sites_.size() + 1 == kMostSites;
  sites_.push_back(is_last ? Site{.name = "other", .id = 0} : Site{.name = std::move(name), .id = id});
  return static_cast<std::uint32_t>(sites_.size() - 1);
}

std::uint32_t TimelineTexts::site_number(std::string_view text) {
  if (text.empty()) return 0;
  if (auto const known = sites_by_name_.find(text); known != sites_by_name_.end()) return known->second;
  auto const number = add_site(std::string{text}, 0);
  if (sites_[number].name == text) sites_by_name_.emplace(sites_[number].name, number);
  return number;
}

std::uint32_t TimelineTexts::site_of(std::uint32_t id) {
  if (id == 0) return 0;
  auto const [place, is_new] = site_numbers_.try_emplace(id);
  if (is_new) place->second = add_site(label(id), id);
  return place->second;
}

std::string TimelineTexts::stack(std::uint32_t site) const {
  if (site >= sites_.size()) return {};
  auto const& known = sites_[site];
  return known.id == 0 ? known.name : source_->stack_of(known.id);
}

std::string_view TimelineTexts::kept(std::string text) { return *kept_.insert(std::move(text)).first; }

// ── what both roads need ──

TimelineProcess Timeline::Impl::process_of(follow::Source const& from) const {
  TimelineProcess process;
  process.kind = from.kind();
  process.title = from.title();
  process.info = from.process();
  process.liveness = from.liveness();
  process.names = &texts;
  for (auto const& lane : from.lanes()) {
    if (lane.thread == 0) continue;
    auto const is_here = [&](TimelineThread const& thread) { return thread.id == lane.thread; };
    if (std::ranges::none_of(process.threads, is_here)) process.threads.push_back({lane.thread, lane.thread_name});
  }
  return process;
}

TimelineLedger Timeline::Impl::to_ledger(flight::LedgerSnapshot const& book) {
  TimelineLedger ledger;
  ledger.cell = book.cell;
  ledger.name = book.name;
  ledger.is_device_account = book.is_device_account;
  ledger.device_name = book.device_name;
  ledger.device_uuid = book.device_uuid;
  ledger.device_ordinal = book.device_ordinal;
  ledger.limit = book.limit;
  return ledger;
}

bool Timeline::Impl::is_wanted(flight::LedgerSnapshot const& book) const {
  if (options.manager && (book.is_device_account || book.name != *options.manager)) return false;
  if (!options.device) return true;
  auto const is_number = book.device_ordinal >= 0 && std::to_string(book.device_ordinal) == *options.device;
  return is_number || book.device_uuid == *options.device || book.device_name == *options.device;
}

Result<void> Timeline::Impl::check_wanted(std::vector<flight::LedgerSnapshot> const& ledgers) const {
  if (!options.manager && !options.device) return success();
  std::vector<std::string> known;
  for (auto const& book : ledgers) {
    if (book.is_device_account) continue;
    if (is_wanted(book)) return success();
    known.push_back(book.name + (book.device_name.empty() ? "" : " on " + book.device_name));
  }
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  std::string names;
  for (auto const& name : known) names += (names.empty() ? "" : ", ") + in_quotes(name);
  return fail(ErrorKind::invalid_argument, Layer::request,
              "found no manager " + (options.manager ? in_quotes(*options.manager) : "") +
                  (options.device ? (options.manager ? " on device " : "on device ") + in_quotes(*options.device) : "") +
                  "; expected one of: " + (names.empty() ? "none, since there is none" : names));
}

std::uint64_t Timeline::Impl::since_start(std::uint64_t ticks) const {
  auto const ns = clock_->monotonic_ns(ticks);
  return ns > start_ns_ ? ns - start_ns_ : 0;
}

// ── a history ──

std::optional<std::uint32_t> Timeline::Impl::history_ledger(std::uint32_t cell) {
  if (auto const found = ids_.find(cell); found != ids_.end()) return found->second;
  auto& id = ids_[cell];
  flight::LedgerSnapshot unknown;
  unknown.cell = cell;
  unknown.name = "ledger " + std::to_string(cell);
  auto const ledgers = source->ledgers();
  auto const known = std::ranges::find(ledgers, cell, &flight::LedgerSnapshot::cell);
  auto const& book = known == ledgers.end() ? unknown : *known;
  if (is_wanted(book)) id = books.add_ledger(to_ledger(book));
  return id;
}

void Timeline::Impl::play_mark(flight::Event const& event) {
  TimelineNote note;
  note.kind = event.kind;
  note.time_ns = since_start(event.ticks);
  note.name = texts.kept(texts.label(static_cast<std::uint32_t>(event.words[6])));
  note.event = &event;
  last_ns_ = std::max(last_ns_, note.time_ns);
  books.note(note);
}

void Timeline::Impl::play_event(flight::Event const& event) {
  if (event.kind == flight::EventKind::mark) return play_mark(event);  // about no ledger
  auto const ledger = history_ledger(event.ledger());
  if (!ledger) return;
  auto const time_ns = since_start(event.ticks);
  last_ns_ = std::max(last_ns_, time_ns);
  using enum flight::EventKind;
  if (event.kind == allocate || event.kind == free || event.kind == write_off) {
    TimelineOperation operation;
    operation.kind = event.kind;
    operation.time_ns = time_ns;
    operation.block = {.ledger = *ledger,
                       .address = event.words[2],
                       .bytes = event.bytes(),
                       .tag = texts.tag_of(event.tag()),
                       .site = texts.site_of(static_cast<std::uint32_t>(event.words[6])),
                       .thread = source->thread_id(event.thread()),
                       .stream = source->stream_of(event),
                       .allocated_ns = {}};
    operation.allocated_after = event.allocated_after();
    operation.duration_ns = event.duration_ns();
    books.apply(operation);
    return;
  }
  TimelineNote note;
  note.kind = event.kind;
  note.time_ns = time_ns;
  note.ledger = ledger;
  note.thread = source->thread_id(event.thread());
  note.tag = texts.tag_of(event.tag());
  note.site = texts.site_of(static_cast<std::uint32_t>(event.words[6]));
  note.stream = source->stream_of(event);
  note.event = &event;
  books.note(note);
}

Result<void> Timeline::Impl::play_history(TimelineVisitor& visitor) {
  texts.set_source(*source);
  follow::News news;
  auto const begin = [&] {
    started_ = true;
    clock_ = source->clock();
    start_ticks_ = news.events.empty() ? source->now_ticks() : news.events.front().ticks;
    // A device that comes later may have begun earlier.
    if (auto const first = source->first_ticks()) start_ticks_ = std::min(start_ticks_, *first);
    start_ns_ = clock_->monotonic_ns(start_ticks_);
    auto process = process_of(*source);
    process.start_clock_ns = start_ns_;
    visitor.begin(process);
    for (auto const& book : source->ledgers()) static_cast<void>(history_ledger(book.cell));
  };
  do {
    news.events.clear();
    news.gaps.clear();
    if (auto read = source->read(news); !read) return read;
    // Marks come behind the records that were read with them. No ledger's ticks ever fall.
    if (!std::ranges::is_sorted(news.events, {}, &flight::Event::ticks)) {
      std::ranges::stable_sort(news.events, {}, &flight::Event::ticks);
    }
    if (!started_ && (!news.events.empty() || !news.more)) {
      if (auto good = check_wanted(source->ledgers()); !good) return good;
      begin();
    }
    for (auto const& event : news.events) {
      if (visitor.stopped()) return success();
      play_event(event);
    }
  } while (news.more);
  TimelineEnd end;
  end.time_ns = last_ns_;
  end.events_lost = source->lost();
  for (auto const& book : source->ledgers()) {
    auto const id = history_ledger(book.cell);
    if (!id || book.is_device_account) continue;
    end.ledgers.push_back({.id = *id, .allocated = book.allocated, .unattributed = books.unattributed(*id), .peak = book.peak});
  }
  books.end(std::move(end));
  return success();
}

Result<void> Timeline::Impl::play(TimelineVisitor& visitor) {
  books.set_visitor(visitor);
  return source->kind() == follow::SourceKind::history ? play_history(visitor) : play_rings(visitor);
}

// ── the class ──

Timeline::Timeline(std::unique_ptr<follow::Source> source, TimelineOptions options)
    : impl_{std::make_unique<Impl>(std::move(source), std::move(options))} {}
Timeline::~Timeline() = default;
Result<void> Timeline::play(TimelineVisitor& visitor) { return impl_->play(visitor); }
TimelineNames const& Timeline::names() const noexcept { return impl_->texts; }
void Timeline::for_each_live(std::function<void(TimelineBlock const&)> const& visit) const { impl_->books.for_each_live(visit); }
TimelineTotals const& Timeline::totals() const noexcept { return impl_->totals; }

}  // namespace headroom::dump
