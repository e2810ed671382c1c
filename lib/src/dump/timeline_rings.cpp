// A timeline of what rings hold. A model puts each ledger's operations in order and finds what is missing (follow.hpp); here the ledgers
// and the journal are merged by time.
#include <algorithm>
#include <queue>
#include <utility>

#include "dump/timeline_gaps.hpp"
#include "dump/timeline_impl.hpp"

namespace headroom::dump {

using flight::Event;
using flight::EventKind;

namespace {

/// A bound on the model's past that no file reaches: flight files and dumps are smaller themselves.
constexpr std::size_t kWholePast = std::size_t{16} << 30U;

/// What happened to the ledgers of one cell: an operation, or the begin of a stretch.
struct Item {
  std::uint64_t ticks = 0;
  std::optional<std::size_t> stretch;
  follow::Operation operation{};
};

struct Cell {
  flight::LedgerSnapshot book;
  std::vector<Item> items;
  std::vector<follow::PastStretch> stretches;
  SeenBlocks seen;                            // filled where some stretch is not whole
  std::optional<std::uint32_t> now, earlier;  // ledgers: of the books, and of owners before
};

[[nodiscard]] std::pair<std::uint32_t, std::uint64_t> record_key(std::uint32_t lane, std::uint64_t number) noexcept {
  return {lane, number};
}

[[nodiscard]] bool is_about_all(Event const& event) noexcept {
  return event.is_log_line() || event.kind == EventKind::mark || event.kind == EventKind::thread_attach ||
         event.kind == EventKind::thread_detach;
}

[[nodiscard]] bool has_tail(EventKind kind) noexcept {
  return kind == EventKind::refusal || kind == EventKind::observed || kind == EventKind::hook_end;
}

}  // namespace

class Timeline::Impl::Rings {
public:
  Rings(Impl& impl, follow::Model& model) : impl_{impl}, model_{model} {}

  [[nodiscard]] Result<void> play(TimelineVisitor& visitor);

private:
  void collect();
  void collect_items(Cell& cell);
  void collect_journal();
  [[nodiscard]] bool is_told(Event const& event) const;
  void collect_streams();
  void find_start();
  void add_ledgers();
  void add_ledger(Cell& cell);
  void play_item(Cell& cell, Item const& item);
  void play_stretch(Cell& cell, Item const& item);
  void play_note(Event const& event);
  void play_books();

  [[nodiscard]] static bool is_earlier(Cell const& cell, std::uint64_t ticks) noexcept {
    return cell.book.generation > 1 && ticks < cell.book.created_ticks;
  }
  /// Everything that is known, or may be taken, to be live when a stretch begins.
  [[nodiscard]] std::vector<TimelineBlock> live_at_begin(Cell const& cell, std::size_t item, std::uint32_t id);
  [[nodiscard]] TimelineBlock to_block(Cell const& cell, std::uint32_t id, follow::LiveBlock const& live);
  [[nodiscard]] std::optional<std::uint64_t> stream_at(std::uint32_t cell, std::uint64_t address, std::uint64_t bytes,
                                                       std::uint64_t ticks) const;
  [[nodiscard]] std::int64_t signed_since_start(std::uint64_t ticks) const;

  Impl& impl_;
  follow::Model& model_;
  std::map<std::uint32_t, Cell> cells_;
  std::vector<Event const*> notes_;
  std::vector<Event> journal_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Event const*> tails_;
  struct Slot {
    std::uint64_t bytes = 0, stream = 0, ticks = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint64_t>, Slot> slots_;  // by cell and address
};

// ── gathering ──

void Timeline::Impl::Rings::collect() {
  for (auto const& book : model_.ledgers()) {
    if (!impl_.is_wanted(book)) continue;
    auto& cell = cells_[book.cell];
    cell.book = book;
    if (!book.is_device_account) collect_items(cell);
  }
  collect_journal();
}

void Timeline::Impl::Rings::collect_items(Cell& cell) {
  model_.for_each_stretch(
      cell.book.cell,
      [&](follow::PastStretch const& stretch) {
        cell.items.push_back({.ticks = stretch.ticks, .stretch = cell.stretches.size(), .operation = {}});
        cell.stretches.push_back(stretch);
      },
      [&](follow::Operation const& operation) {
        cell.items.push_back({.ticks = operation.ticks, .stretch = {}, .operation = operation});
      });
  // A stretch begins with its first operation, and is told at its time.
  for (std::size_t i = 0; i + 1 < cell.items.size(); ++i) {
    auto& item = cell.items[i];
    if (item.stretch && !cell.items[i + 1].stretch) item.ticks = cell.items[i + 1].ticks;
  }
  // Of an earlier owner neither name nor device is known: it is none that was asked for.
  if (impl_.is_choice()) std::erase_if(cell.items, [&](Item const& item) { return is_earlier(cell, item.ticks); });
  auto const is_whole = [](follow::PastStretch const& stretch) { return stretch.is_whole; };
  if (std::ranges::all_of(cell.stretches, is_whole)) return;
  for (std::size_t i = 0; i < cell.stretches.size(); ++i) cell.seen.add(i, cell.stretches[i].live);
  cell.seen.sort();
}

/// Whether it is about something that is played.
bool Timeline::Impl::Rings::is_told(Event const& event) const {
  if (!impl_.is_choice() || is_about_all(event)) return true;
  auto const found = cells_.find(event.ledger());
  return found != cells_.end() && !is_earlier(found->second, event.ticks);
}

void Timeline::Impl::Rings::collect_journal() {
  model_.for_each_journal_event(0, ~std::uint64_t{0}, [&](Event const& event) { journal_.push_back(event); });
  for (auto const& event : journal_) {
    if ((event.flags() & flight::kFlagContinues) != 0) {
      tails_[record_key(event.lane, event.number)] = &event;
    } else if (is_told(event)) {
      notes_.push_back(&event);
    }
  }
}

void Timeline::Impl::Rings::collect_streams() {
  model_.source().for_each_live([&](flight::LiveAllocation const& live) {
    slots_[{live.ledger, live.address}] = {.bytes = live.bytes, .stream = live.stream, .ticks = live.ticks};
  });
}

/// Time 0: the first that was recorded of anything.
void Timeline::Impl::Rings::find_start() {
  auto first = ~std::uint64_t{0};
  for (auto const& [number, cell] : cells_) {
    for (auto const& item : cell.items) {
      if (item.stretch) continue;
      first = std::min(first, item.ticks);
      break;  // a ledger's ticks never fall
    }
  }
  if (!notes_.empty()) first = std::min(first, notes_.front()->ticks);
  if (first == ~std::uint64_t{0}) first = std::max<std::uint64_t>(model_.last_ticks(), model_.source().now_ticks());
  impl_.start_ticks_ = first;
  impl_.start_ns_ = impl_.clock_->monotonic_ns(first);
}

std::int64_t Timeline::Impl::Rings::signed_since_start(std::uint64_t ticks) const {
  auto const ns = impl_.clock_->monotonic_ns(ticks);
  return static_cast<std::int64_t>(ns - impl_.start_ns_);
}

std::optional<std::uint64_t> Timeline::Impl::Rings::stream_at(std::uint32_t cell, std::uint64_t address, std::uint64_t bytes,
                                                              std::uint64_t ticks) const {
  auto const slot = slots_.find({cell, address});
  // An earlier block at the same address is older than what is there now.
  if (slot == slots_.end() || slot->second.bytes != bytes || ticks < slot->second.ticks) return std::nullopt;
  return slot->second.stream;
}

TimelineBlock Timeline::Impl::Rings::to_block(Cell const& cell, std::uint32_t id, follow::LiveBlock const& live) {
  return {.ledger = id,
          .address = live.address,
          .bytes = live.bytes,
          .tag = impl_.texts.tag_number(live.tag),
          .site = impl_.texts.site_number(live.site),
          .thread = live.thread,
          .stream = live.ticks ? stream_at(cell.book.cell, live.address, live.bytes, *live.ticks) : std::nullopt,
          .allocated_ns = live.ticks ? std::optional{signed_since_start(*live.ticks)} : std::nullopt};
}

std::vector<TimelineBlock> Timeline::Impl::Rings::live_at_begin(Cell const& cell, std::size_t item, std::uint32_t id) {
  auto const number = *cell.items[item].stretch;
  auto const& stretch = cell.stretches[number];
  std::vector<TimelineBlock> live;
  live.reserve(stretch.live.size());
  for (auto const& block : stretch.live) live.push_back(to_block(cell, id, block));
  if (stretch.is_whole) return live;
  LiveBetweenGaps between{stretch.allocated, live};
  for (auto i = item + 1; i < cell.items.size() && !cell.items[i].stretch; ++i) {
    auto const& operation = cell.items[i].operation;
    if (operation.kind == EventKind::allocate) between.leave_out(operation.address);
  }
  cell.seen.for_each_older(number, cell.items[item].ticks, [&](std::size_t later, std::size_t place) {
    between.take(to_block(cell, id, cell.stretches[later].live[place]));
  });
  if (id < impl_.books.ledger_count()) {
    for (auto const& block : impl_.books.live_of(id)) between.take(block);
  }
  return std::move(between).blocks();
}

// ── ledgers, and what they held before ──

/// What is in force when the record begins: what the first change changed, else what is in force now.
[[nodiscard]] static std::optional<std::uint64_t> limit_before(std::vector<Event const*> const& notes,
                                                               flight::LedgerSnapshot const& book) {
  for (auto const* const event : notes) {
    if (event->kind != EventKind::budget || event->ledger() != book.cell) continue;
    if (book.generation > 1 && event->ticks < book.created_ticks) continue;
    auto const word = event->words[2];
    return (word & flight::kLimitNone) != 0 ? std::nullopt : std::optional{word & flight::kBytesMask};
  }
  return book.limit;
}

void Timeline::Impl::Rings::add_ledger(Cell& cell) {
  auto const& book = cell.book;
  std::uint64_t operations = 0;
  std::uint64_t missing = 0;
  // What the first of them begins with; null: it holds nothing then.
  auto const* const base =
      cell.items.empty() || !cell.items.front().stretch ? nullptr : &cell.stretches[*cell.items.front().stretch];
  auto const begins_with_earlier = !cell.items.empty() && is_earlier(cell, cell.items.front().ticks);
  for (auto const& item : cell.items) {
    if (is_earlier(cell, item.ticks)) continue;
    if (!item.stretch) ++operations;
    if (item.stretch && &item != &cell.items.front()) missing += cell.stretches[*item.stretch].missing;
  }
  auto const add = [&](TimelineLedger info, bool is_first) {
    std::vector<TimelineBlock> blocks;
    auto const id = static_cast<std::uint32_t>(impl_.books.ledger_count());
    if (is_first && base != nullptr) {
      info.allocated = base->allocated;
      info.from_birth = base->from_birth || base->new_owner;
      info.unattributed = base->allocated;
      blocks = live_at_begin(cell, 0, id);
      for (auto const& block : blocks) info.unattributed -= std::min(info.unattributed, block.bytes);
    }
    if (is_first && !cell.items.empty()) info.begin_ns = impl_.since_start(cell.items.front().ticks);
    static_cast<void>(impl_.books.add_ledger(std::move(info)));
    for (auto const& block : blocks) impl_.books.add_before(block);
    return id;
  };
  if (begins_with_earlier) {
    TimelineLedger earlier;
    earlier.cell = book.cell;
    earlier.name = "earlier in place " + std::to_string(book.cell);
    earlier.has_ended = true;
    cell.earlier = add(std::move(earlier), true);
  }
  auto now = to_ledger(book);
  now.limit = limit_before(notes_, book);
  now.peak = book.peak;
  auto const all = book.counters.allocations + book.counters.frees;
  auto const is_whole = base == nullptr || base->from_birth || base->new_owner;
  if (!book.is_device_account && !begins_with_earlier && !is_whole && all >= operations + missing) {
    now.operations_before = all - operations - missing;
  }
  cell.now = add(std::move(now), !begins_with_earlier);
}

void Timeline::Impl::Rings::add_ledgers() {
  // Accounts first, so that a manager's can be named.
  for (auto const accounts : {true, false}) {
    for (auto& [number, cell] : cells_) {
      if (cell.book.is_device_account == accounts) add_ledger(cell);
    }
  }
}

// ── events ──

void Timeline::Impl::Rings::play_stretch(Cell& cell, Item const& item) {
  auto const& stretch = cell.stretches[*item.stretch];
  if (&item == &cell.items.front()) return;  // told as what was before
  auto const time_ns = impl_.since_start(item.ticks);
  impl_.last_ns_ = std::max(impl_.last_ns_, time_ns);
  auto& all = impl_.books;
  auto const earlier = cell.earlier && is_earlier(cell, item.ticks);
  if (!earlier && cell.earlier && (all.allocated(*cell.earlier) != 0 || !all.live_of(*cell.earlier).empty())) {
    // A cell is handed on only when it holds nothing: what its owner gave back at last is among what is missing.
    all.apply_gap({.time_ns = time_ns, .ledger = *cell.earlier, .missing = 0, .allocated_after = 0, .unattributed_after = 0}, {});
  }
  if (stretch.new_owner && !earlier) return;
  auto const id = earlier ? *cell.earlier : *cell.now;
  auto live = live_at_begin(cell, static_cast<std::size_t>(&item - cell.items.data()), id);
  all.apply_gap({.time_ns = time_ns,
                 .ledger = id,
                 .missing = stretch.missing,
                 .allocated_after = stretch.allocated,
                 .unattributed_after = 0},
                std::move(live));
}

void Timeline::Impl::Rings::play_item(Cell& cell, Item const& item) {
  if (item.stretch) return play_stretch(cell, item);
  auto const& from = item.operation;
  auto const is_of_earlier = cell.earlier && is_earlier(cell, item.ticks);
  TimelineOperation operation;
  operation.kind = from.kind;
  operation.time_ns = impl_.since_start(from.ticks);
  operation.block = {
      .ledger = is_of_earlier ? *cell.earlier : *cell.now,
      .address = from.address,
      .bytes = from.bytes,
      .tag = impl_.texts.tag_number(from.tag),
      .site = impl_.texts.site_number(from.site),
      .thread = from.thread,
      .stream = from.kind == EventKind::allocate ? stream_at(cell.book.cell, from.address, from.bytes, from.ticks) : std::nullopt,
      .allocated_ns = {}};
  operation.allocated_after = from.allocated_after;
  operation.duration_ns = from.duration_ns;
  operation.recovered = from.recovered;
  impl_.last_ns_ = std::max(impl_.last_ns_, operation.time_ns);
  impl_.books.apply(operation);
}

void Timeline::Impl::Rings::play_note(Event const& event) {
  TimelineNote note;
  note.kind = event.kind;
  if (!is_about_all(event)) {
    auto const found = cells_.find(event.ledger());
    if (found != cells_.end()) {
      auto const& cell = found->second;
      note.ledger = is_earlier(cell, event.ticks) ? cell.earlier : cell.now;
    }
    note.tag = impl_.texts.tag_of(event.tag());
  }
  note.time_ns = impl_.since_start(event.ticks);
  note.thread = event.thread();
  using enum EventKind;
  switch (event.kind) {
    case refusal:
    case observed:
    case free_failed: note.site = impl_.texts.site_of(static_cast<std::uint32_t>(event.words[6])); break;
    case hook_begin:
    case hook_end:
    case hook_skip:
    case hook_overrun: note.name = impl_.texts.kept(impl_.texts.label(event.hook())); break;
    case mark: note.name = impl_.texts.kept(impl_.texts.label(static_cast<std::uint32_t>(event.words[6]))); break;
    default: break;
  }
  note.event = &event;
  if (has_tail(event.kind)) {
    auto const tail = tails_.find(record_key(event.lane, event.number + 1));
    if (tail != tails_.end() && tail->second->kind == event.kind) note.tail = tail->second;
  }
  impl_.last_ns_ = std::max(impl_.last_ns_, note.time_ns);
  impl_.books.note(note);
}

/// What the books say in the end counts. Of a living process they may be ahead of the records; so may they be of one whose last
/// records were lost.
void Timeline::Impl::Rings::play_books() {
  for (auto& [number, cell] : cells_) {
    if (cell.book.is_device_account || !cell.now || impl_.books.allocated(*cell.now) == cell.book.allocated) continue;
    std::vector<flight::LiveAllocation> slots;
    model_.source().for_each_live([&, wanted = number](flight::LiveAllocation const& live) {
      if (live.ledger == wanted) slots.push_back(live);
    });
    // The table is read after the books: what is newer than they are goes first, as do slots whose block is on its way back.
    std::ranges::sort(slots, {}, [](flight::LiveAllocation const& live) {
      return std::pair{live.state == flight::SlotState::freeing, live.ticks};
    });
    std::vector<TimelineBlock> live;
    std::uint64_t sum = 0;
    for (auto const& slot : slots) {
      if (slot.bytes > cell.book.allocated - sum) break;
      sum += slot.bytes;
      live.push_back({.ledger = *cell.now,
                      .address = slot.address,
                      .bytes = slot.bytes,
                      .tag = impl_.texts.tag_of(slot.tag),
                      .site = impl_.texts.site_of(slot.site),
                      .thread = slot.thread,
                      .stream = slot.stream,
                      .allocated_ns = signed_since_start(slot.ticks)});
    }
    impl_.books.apply_gap({.time_ns = impl_.last_ns_,
                           .ledger = *cell.now,
                           .missing = 0,
                           .allocated_after = cell.book.allocated,
                           .unattributed_after = 0},
                          std::move(live));
  }
}

Result<void> Timeline::Impl::Rings::play(TimelineVisitor& visitor) {
  impl_.clock_ = model_.source().clock();
  collect();
  collect_streams();
  find_start();
  auto process = impl_.process_of(model_.source());
  process.start_realtime_ns = model_.realtime_ns(impl_.start_ticks_);
  visitor.begin(process);
  add_ledgers();

  // The next item of each cell; ties go by cell, and operations before the journal.
  struct Cursor {
    Cell* cell = nullptr;
    std::size_t next = 0;
    [[nodiscard]] std::uint64_t ticks() const noexcept { return cell->items[next].ticks; }
  };
  auto const later = [](Cursor const& a, Cursor const& b) {
    return std::pair{a.ticks(), a.cell->book.cell} > std::pair{b.ticks(), b.cell->book.cell};
  };
  std::priority_queue<Cursor, std::vector<Cursor>, decltype(later)> cursors{later};
  for (auto& [number, cell] : cells_) {
    if (!cell.items.empty()) cursors.push({&cell, 0});
  }
  std::size_t next_note = 0;
  while (!cursors.empty() || next_note < notes_.size()) {
    if (visitor.stopped()) return success();
    if (cursors.empty() || (next_note < notes_.size() && notes_[next_note]->ticks < cursors.top().ticks())) {
      play_note(*notes_[next_note++]);
      continue;
    }
    auto cursor = cursors.top();
    cursors.pop();
    play_item(*cursor.cell, cursor.cell->items[cursor.next]);
    if (++cursor.next < cursor.cell->items.size()) cursors.push(cursor);
  }
  play_books();

  TimelineEnd end;
  end.time_ns = impl_.last_ns_;
  end.events_lost = model_.losses().events_lost;
  for (auto const& [number, cell] : cells_) {
    if (cell.book.is_device_account) continue;
    if (cell.earlier) end.ledgers.push_back({.id = *cell.earlier, .allocated = 0, .unattributed = 0, .peak = 0});
    end.ledgers.push_back({.id = *cell.now,
                           .allocated = cell.book.allocated,
                           .unattributed = impl_.books.unattributed(*cell.now),
                           .peak = cell.book.peak});
  }
  impl_.books.end(std::move(end));
  return success();
}

Result<void> Timeline::Impl::play_rings(TimelineVisitor& visitor) {
  model = std::make_unique<follow::Model>(std::move(source), follow::Options{.memory_bytes = kWholePast});
  if (auto read = model->catch_up(); !read) return read;
  texts.set_source(model->source());
  auto const ledgers = model->ledgers();
  if (auto good = check_wanted({ledgers.begin(), ledgers.end()}); !good) return good;
  return Rings{*this, *model}.play(visitor);
}

}  // namespace headroom::dump
