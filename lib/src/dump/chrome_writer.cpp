// The Trace Event format: an object with "traceEvents", an event on each line. Perfetto, chrome://tracing and Tracy's importer read it.
//
// * One process. A thread's track has what it did: hooks, waits and checkpoints as slices (B and E, which nest by their order), the
//   rest as instants. A slice whose end was lost, or never came, is closed with the next one around it, or at the end, and says so.
// * Counters: for each manager `NAME allocated_bytes`, `NAME limit_bytes` (0 = unlimited), for each of its tags `NAME TAG tag_bytes`, and
//   `NAME unattributed_bytes` for what belongs to blocks that nobody saw. A counter for each tag, and not one with a series for each:
//   an event of a counter has all its series, and Perfetto draws each as a track of its own anyway. The tags of a manager and what is
//   unattributed always add up to what it holds.
// * The first event of each counter is at time 0, with what was live before. Times are microseconds since the first record.
//   Whole numbers above 2^53 are strings; what ledgers hold is below 2^44. Addresses are strings of hexadecimal digits.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dump/format_writer.hpp"
#include "dump/json_stream.hpp"
#include "dump/note_figures.hpp"
#include "dump/words.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;
using flight::PolicyStep;
using Shape = JsonStream::Shape;

constexpr std::size_t kBufferBytes = std::size_t{64} << 10U;
constexpr std::size_t kDeepest = 64;  // slices of one thread: what is nested deeper is an instant

class ChromeWriter final : public FormatWriter {
public:
  explicit ChromeWriter(ByteSink& sink) : buffer_(kBufferBytes, '\0'), json_{sink, buffer_} {}

  void begin(TimelineProcess const& process) override;
  void ledger(TimelineLedger const& info) override;
  void before(TimelineBlock const& block) override { change(block, true); }
  void operation(TimelineOperation const& operation) override;
  void gap(TimelineGap const& gap) override;
  void note(TimelineNote const& note) override;
  void end(TimelineEnd const& end) override;
  [[nodiscard]] bool stopped() const noexcept override { return json_.error() != 0; }
  [[nodiscard]] Result<void> finish() override;
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  struct Counter {
    std::string name;  ///< ends in series
    std::string_view series;
    std::uint64_t value = 0;
    bool begun = false;    // has its event at time 0
    bool changed = false;  // since its last event
  };
  struct Ledger {
    TimelineLedger info;
    std::string name;
    std::size_t allocated = 0, unattributed = 0, limit = 0;  // in counters_
    bool has_limit = false;
    std::unordered_map<std::uint32_t, std::size_t> tags;
  };
  struct Slice {
    EventKind kind = EventKind::none;
    PolicyStep step = PolicyStep::none;
    std::string title;
  };

  [[nodiscard]] std::size_t add_counter(std::string const& name, std::string_view series);
  void set(std::size_t place, std::uint64_t value);
  void set_unattributed(Ledger const& ledger, std::uint64_t value);
  void change(TimelineBlock const& block, bool adds);
  void flush_counters(std::uint64_t time_ns);
  void put_counter(Counter const& counter, std::uint64_t time_ns, std::uint64_t value);
  void begin_event(char phase, std::string_view name, std::string_view category, std::uint64_t time_ns, std::uint64_t thread);
  void end_event() {
    json_.end_object();
    ++written_;
  }
  void put_metadata(std::string_view what, std::uint64_t thread, std::string_view name);
  void instant(TimelineNote const& note, std::string_view title, bool of_process);
  void write_about(TimelineNote const& note);
  void begin_slice(TimelineNote const& note, PolicyStep step);
  [[nodiscard]] bool end_slice(TimelineNote const& note, PolicyStep step);
  void close_top(std::vector<Slice>& slices, std::uint64_t thread, std::uint64_t time_ns, std::string_view why);

  std::vector<char> buffer_;
  JsonStream json_;
  TimelineNames const* names_ = nullptr;
  std::uint64_t pid_ = 1;
  std::map<std::uint32_t, Ledger> ledgers_;
  std::vector<Counter> counters_;
  std::vector<std::size_t> changed_;
  std::set<std::string> counter_names_;
  std::map<std::uint64_t, std::vector<Slice>> slices_;  // by thread
  std::vector<NoteFigure> figures_;
  std::uint64_t time_ns_ = 0;
  std::uint64_t written_ = 0;
};

[[nodiscard]] std::string_view category_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::refusal:
    case EventKind::observed:
    case EventKind::free_failed:
    case EventKind::resource_refusal:
    case EventKind::resource_free_failed: return "failure";
    case EventKind::hook_begin:
    case EventKind::hook_end:
    case EventKind::hook_skip:
    case EventKind::hook_overrun: return "hook";
    case EventKind::policy:
    case EventKind::trim: return "policy";
    case EventKind::pressure: return "pressure";
    case EventKind::budget:
    case EventKind::reserve:
    case EventKind::reserve_drop: return "budget";
    case EventKind::mark: return "mark";
    default: return "other";
  }
}

// ── events ──

void ChromeWriter::begin_event(char phase, std::string_view name, std::string_view category, std::uint64_t time_ns,
                               std::uint64_t thread) {
  json_.begin_object(Shape::flat);
  json_.member_word("ph", std::string_view{&phase, 1});
  json_.member("name", name);
  if (!category.empty()) json_.member_word("cat", category);
  json_.member("pid", pid_);
  json_.member("tid", thread);
  json_.member("ts", Microseconds{time_ns});
}

void ChromeWriter::put_metadata(std::string_view what, std::uint64_t thread, std::string_view name) {
  begin_event('M', what, {}, 0, thread);
  json_.begin_object("args", Shape::flat);
  json_.member("name", name);
  json_.end_object();
  end_event();
}

void ChromeWriter::begin(TimelineProcess const& process) {
  names_ = process.names;
  if (process.info.pid != 0) pid_ = process.info.pid;
  auto const is_history = process.kind == follow::SourceKind::history;
  json_.begin_object();
  json_.member_word("displayTimeUnit", "ns");
  json_.begin_object("otherData");
  json_.member("source", process.title);
  if (!is_history) {
    json_.member("program", process.info.program);
    json_.member("host", process.info.host);
    json_.member("headroom", process.info.version);
  }
  json_.member_if("start_realtime_ns", process.start_realtime_ns);
  json_.end_object();
  json_.begin_array("traceEvents");
  put_metadata("process_name", 0, is_history || process.info.program.empty() ? process.title : process.info.program);
  for (auto const& thread : process.threads) {
    if (!thread.name.empty()) put_metadata("thread_name", thread.id, thread.name);
  }
}

// ── counters ──

std::size_t ChromeWriter::add_counter(std::string const& name, std::string_view series) {
  // Names of managers and tags are anybody's, and two counters of one name would be one.
  auto unique = name + ' ' + std::string{series};
  for (int number = 2; !counter_names_.insert(unique).second; ++number) {
    unique = name + " #" + std::to_string(number) + ' ' + std::string{series};
  }
  counters_.push_back({.name = std::move(unique), .series = series});
  return counters_.size() - 1;
}

void ChromeWriter::set(std::size_t place, std::uint64_t value) {
  auto& counter = counters_[place];
  if (counter.value == value && counter.begun) return;
  counter.value = value;
  if (!std::exchange(counter.changed, true)) changed_.push_back(place);
}

void ChromeWriter::ledger(TimelineLedger const& info) {
  if (info.is_device_account) return;
  auto& ledger = ledgers_[info.id];
  ledger.info = info;
  ledger.name = info.name.empty() ? "manager " + std::to_string(info.cell) : info.name;
  ledger.allocated = add_counter(ledger.name, "allocated_bytes");
  ledger.unattributed = add_counter(ledger.name, "unattributed_bytes");
  set(ledger.allocated, info.allocated);
  set_unattributed(ledger, info.unattributed);
  if (info.limit) {
    ledger.has_limit = true;
    ledger.limit = add_counter(ledger.name, "limit_bytes");
    set(ledger.limit, *info.limit);
  }
  if (info.from_birth) return;
  // The record of this ledger begins in the middle.
  begin_event('i', "record begins", "loss", 0, 0);
  json_.member_word("s", "p");
  json_.begin_object("args", Shape::flat);
  json_.member("manager", ledger.name);
  json_.member_if("operations_before", info.operations_before);
  json_.end_object();
  end_event();
}

void ChromeWriter::change(TimelineBlock const& block, bool adds) {
  auto& ledger = ledgers_[block.ledger];
  auto const [place, is_new] = ledger.tags.try_emplace(block.tag);
  if (is_new) {
    auto const tag = names_->tag(block.tag);
    place->second = add_counter(ledger.name + ' ' + (tag.empty() ? "untagged" : std::string{tag}), "tag_bytes");
  }
  auto const held = counters_[place->second].value;
  set(place->second, adds ? held + block.bytes : held - std::min(held, block.bytes));
}

void ChromeWriter::put_counter(Counter const& counter, std::uint64_t time_ns, std::uint64_t value) {
  begin_event('C', counter.name, {}, time_ns, 0);
  json_.begin_object("args", Shape::flat);
  json_.member(counter.series, value);
  json_.end_object();
  end_event();
}

/// What changed since the last call, with its value now. `time_ns` is when.
void ChromeWriter::flush_counters(std::uint64_t time_ns) {
  for (auto const place : changed_) {
    auto& counter = counters_[place];
    counter.changed = false;
    if (!std::exchange(counter.begun, true) && time_ns != 0) put_counter(counter, 0, 0);
    put_counter(counter, time_ns, counter.value);
  }
  changed_.clear();
}

void ChromeWriter::operation(TimelineOperation const& operation) {
  // What stands at one place of the record is one event of each counter: operations that fill a gap, and what was live before.
  if (!operation.assumed) flush_counters(time_ns_);
  time_ns_ = operation.time_ns;
  if (operation.known) change(operation.block, operation.kind == EventKind::allocate);
  auto const& ledger = ledgers_[operation.block.ledger];
  set(ledger.allocated, operation.allocated_after);
  set_unattributed(ledger, operation.unattributed_after);
}

/// Most managers have none ever, and no counter of it.
void ChromeWriter::set_unattributed(Ledger const& ledger, std::uint64_t value) {
  auto const& counter = counters_[ledger.unattributed];
  if (value != 0 || counter.begun || counter.changed) set(ledger.unattributed, value);
}

void ChromeWriter::gap(TimelineGap const& gap) {
  flush_counters(time_ns_);
  time_ns_ = gap.time_ns;
  auto const& ledger = ledgers_[gap.ledger];
  auto const how_many = gap.missing == 0
                            ? std::string{"operations missing"}
                            : std::to_string(gap.missing) + (gap.missing == 1 ? " operation" : " operations") + " missing";
  begin_event('i', how_many, "loss", gap.time_ns, 0);
  json_.member_word("s", "p");
  json_.begin_object("args", Shape::flat);
  json_.member("manager", ledger.name);
  if (gap.missing != 0) json_.member("missing_operations", gap.missing);
  json_.end_object();
  end_event();
  set(ledger.allocated, gap.allocated_after);
  set_unattributed(ledger, gap.unattributed_after);
}

// ── slices and instants ──

void ChromeWriter::write_about(TimelineNote const& note) {
  json_.begin_object("args", Shape::flat);
  if (note.ledger) {
    auto const found = ledgers_.find(*note.ledger);
    if (found != ledgers_.end()) json_.member("manager", found->second.name);
  }
  if (note.tag != 0) json_.member("tag", names_->tag(note.tag));
  if (note.site != 0) json_.member("site", names_->site(note.site));
  figures_of(note, figures_);
  write_figures(json_, figures_);
}

void ChromeWriter::instant(TimelineNote const& note, std::string_view title, bool of_process) {
  begin_event('i', title, category_of(note.kind), note.time_ns, note.thread);
  json_.member_word("s", of_process ? "p" : "t");
  write_about(note);
  json_.end_object();
  end_event();
}

void ChromeWriter::begin_slice(TimelineNote const& note, PolicyStep step) {
  auto& slices = slices_[note.thread];
  auto title = title_of(note);
  if (slices.size() >= kDeepest) return instant(note, title + " begins", false);
  begin_event('B', title, category_of(note.kind), note.time_ns, note.thread);
  write_about(note);
  json_.end_object();
  end_event();
  slices.push_back({.kind = note.kind, .step = step, .title = std::move(title)});
}

void ChromeWriter::close_top(std::vector<Slice>& slices, std::uint64_t thread, std::uint64_t time_ns, std::string_view why) {
  begin_event('E', slices.back().title, category_of(slices.back().kind), time_ns, thread);
  json_.begin_object("args", Shape::flat);
  json_.member_word("end", why);
  json_.end_object();
  end_event();
  slices.pop_back();
}

/// False: no slice of this thread begins with it.
bool ChromeWriter::end_slice(TimelineNote const& note, PolicyStep step) {
  auto const found = slices_.find(note.thread);
  if (found == slices_.end()) return false;
  auto& slices = found->second;
  auto const is_begin = [&](Slice const& slice) {
    if (note.kind == EventKind::hook_end) return slice.kind == EventKind::hook_begin && slice.title == title_of(note);
    return slice.kind == EventKind::policy && slice.step == step;
  };
  auto const begin = std::ranges::find_if(slices.rbegin(), slices.rend(), is_begin);
  if (begin == slices.rend()) return false;
  // What is above it on its thread ended before: the record of that is lost.
  for (auto above = begin - slices.rbegin(); above > 0; --above) close_top(slices, note.thread, note.time_ns, "not_recorded");
  begin_event('E', slices.back().title, category_of(note.kind), note.time_ns, note.thread);
  write_about(note);
  json_.end_object();
  end_event();
  slices.pop_back();
  return true;
}

void ChromeWriter::note(TimelineNote const& note) {
  flush_counters(time_ns_);
  time_ns_ = note.time_ns;
  switch (note.kind) {
    case EventKind::thread_attach: {
      std::string name{reinterpret_cast<char const*>(&note.event->words[2]), 2 * sizeof(std::uint64_t)};
      name.resize(std::min(name.size(), name.find('\0')));
      if (!name.empty()) put_metadata("thread_name", note.thread, name);
      return;
    }
    case EventKind::thread_detach:
    case EventKind::peak: return;  // the counters show it
    case EventKind::hook_begin: return begin_slice(note, PolicyStep::none);
    case EventKind::hook_end:
      if (!end_slice(note, PolicyStep::none)) instant(note, title_of(note) + " ended", false);
      return;
    case EventKind::hook_skip:
      // A wait for another thread's run of it ends so.
      static_cast<void>(end_slice(note, PolicyStep::none));
      return instant(note, title_of(note), false);
    case EventKind::policy: {
      auto step = note.event->policy_step();
      if (step == PolicyStep::begun) return begin_slice(note, note.event->policy_begins());
      auto const title = title_of(note);
      if (step == PolicyStep::checkpoint_shared || step == PolicyStep::checkpoint_failed) step = PolicyStep::checkpoint;
      if (!end_slice(note, step)) instant(note, title, false);
      return;
    }
    case EventKind::budget: {
      auto const found = note.ledger ? ledgers_.find(*note.ledger) : ledgers_.end();
      if (found != ledgers_.end()) {
        auto& ledger = found->second;
        auto const word = note.event->words[3];
        if (!std::exchange(ledger.has_limit, true)) ledger.limit = add_counter(ledger.name, "limit_bytes");
        set(ledger.limit, (word & flight::kLimitNone) != 0 ? 0 : word & flight::kBytesMask);
      }
      return instant(note, title_of(note), true);
    }
    case EventKind::pressure:
    case EventKind::mark: return instant(note, title_of(note), true);
    default: return instant(note, title_of(note), false);
  }
}

void ChromeWriter::end(TimelineEnd const& end) {
  flush_counters(time_ns_);
  for (auto& [thread, slices] : slices_) {
    while (!slices.empty()) close_top(slices, thread, end.time_ns, "under_way");
  }
  for (auto const& at_end : end.ledgers) {
    auto const& ledger = ledgers_[at_end.id];
    set(ledger.allocated, at_end.allocated);
    set_unattributed(ledger, at_end.unattributed);
  }
  flush_counters(end.time_ns);
  if (end.events_lost != 0) {
    // Of no place in particular, and known only now.
    begin_event('i', std::to_string(end.events_lost) + " records lost", "loss", end.time_ns, 0);
    json_.member_word("s", "p");
    json_.begin_object("args", Shape::flat);
    json_.member("events_lost", end.events_lost);
    json_.end_object();
    end_event();
  }
  json_.end_array();
  json_.end_object();
}

Result<void> ChromeWriter::finish() {
  if (auto const code = json_.finish(); code != 0) return tl::unexpected{write_error(code)};
  return success();
}

}  // namespace

std::unique_ptr<FormatWriter> make_chrome_writer(ByteSink& sink, ConvertOptions const& /*options*/) {
  return std::make_unique<ChromeWriter>(sink);
}

}  // namespace headroom::dump
