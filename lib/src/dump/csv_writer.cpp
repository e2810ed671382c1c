// RMM's log, as TraceReader reads it and CsvSink writes it. What was live before comes first, at the time of the first record; of a
// manager whose record begins later, at the time of its allocation, or where that is not known when its record begins.
//
// The log knows addresses and no managers: a free is of whatever is live at its address. So managers whose blocks share an address at
// one time (the host's stand-ins for GPUs do) cannot be in one log. When a block went in a gap, nobody knows when: if another manager
// has its address meanwhile, it had gone by then, and its free is written there instead of at the gap's end.
//
// Times are of day, as RMM writes them and its tools expect; whole days before the first are left out. From the first time on that a
// reader would take for one of another day (it adds a day where they jump back), because more than 23 hours passed without a line or
// a history goes back to the beginning with its next device, times are microseconds since the midnight before the first line.
// TraceReader reads both, line by line.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <headroom/log_sink.hpp>

#include "base/checked.hpp"
#include "base/quoted.hpp"
#include "dump/format_writer.hpp"
#include "dump/text_stream.hpp"
#include "trace/csv_line.hpp"
#include "trace/csv_record.hpp"
#include "trace/day_clock.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;

constexpr std::uint64_t kDayUs = std::uint64_t{24} * 3600 * 1'000'000;
constexpr std::size_t kTimeOfDayLength = 15;  // HH:MM:SS.micro

class CsvWriter final : public FormatWriter {
public:
  explicit CsvWriter(ByteSink& sink) : out_{sink} {}

  void begin(TimelineProcess const& process) override {
    clock_ns_ = process.start_realtime_ns.value_or(process.start_clock_ns);
    out_.put(trace::kCsvHeader);
    out_.put("\n");
  }
  void ledger(TimelineLedger const& ledger) override;
  void before(TimelineBlock const& block) override;
  void operation(TimelineOperation const& operation) override;
  void gap(TimelineGap const& gap) override { ledgers_[gap.ledger].has_gap = true; }
  void note(TimelineNote const& note) override;
  void end(TimelineEnd const& end) override;
  [[nodiscard]] bool stopped() const noexcept override { return out_.error() != 0 || !conflict_.empty(); }
  [[nodiscard]] Result<void> finish() override;
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  struct Ledger {
    std::string name;
    std::uint64_t begin_ns = 0;
    bool has_begun = false;
    bool has_gap = false;
    std::size_t in_doubt = 0;  // blocks freed early that can have gone in no earlier gap than the next one
  };
  struct Before {
    std::uint64_t time_ns = 0;
    TimelineBlock block;
    bool is_written = false;
  };
  struct Holder {
    TimelineBlock block;  // the last one
    std::uint32_t blocks = 0;
  };

  void write_before(std::uint64_t time_ns, std::optional<std::uint32_t> ledger);
  void allocate(TimelineBlock const& block, std::uint64_t time_ns);
  void free(TimelineOperation const& operation);
  void free_early(TimelineBlock const& block, TimelineBlock const& next, std::uint64_t time_ns);
  void set_conflict(std::uint32_t ledger, std::uint32_t other);
  void put(LogLine::Action action, std::uint64_t time_ns, TimelineBlock const& block);

  TextStream out_;
  std::uint64_t clock_ns_ = 0;
  std::vector<Ledger> ledgers_;  // by id
  std::size_t managers_ = 0;
  std::vector<Before> before_;  // by time, from the first event on
  std::size_t next_before_ = 0;
  bool has_begun_ = false;
  std::unordered_map<std::uint64_t, Holder> holders_;  // by address; kept where there are several managers
  /// Blocks whose address another manager had before their free came: by ledger and address, who had it.
  struct Early {
    std::uint32_t other = 0;
    bool in_doubt = false;
  };
  std::map<std::pair<std::uint32_t, std::uint64_t>, Early> early_;
  std::string conflict_;
  trace::DayClock days_;  // what a reader makes of the lines so far
  std::optional<std::uint64_t> midnight_us_;
  bool is_time_of_day_ = true;
  std::uint64_t written_ = 0;
};

void CsvWriter::put(LogLine::Action action, std::uint64_t time_ns, TimelineBlock const& block) {
  LogLine line{};
  line.action = action;
  line.time_ns = clock_ns_ + time_ns;
  line.pointer = block.address;
  line.bytes = block.bytes;
  line.stream = block.stream.value_or(0);
  auto const time_us = line.time_ns / 1'000;
  if (!midnight_us_) midnight_us_ = time_us - time_us % kDayUs;
  auto const since_midnight_us = time_us - *midnight_us_;
  is_time_of_day_ = is_time_of_day_ && days_.unwrap(time_us % kDayUs) == since_midnight_us;
  // A history's threads may have numbers of 64 bits, which a line of ours has not: it is written as thread 0, and put behind the number.
  char text[trace::kCsvLineRoom];
  std::string_view rest{text, trace::CsvLineWriter{text}.write(line)};
  rest.remove_prefix(1);
  out_.number(block.thread);
  if (!is_time_of_day_) {
    rest.remove_prefix(1 + kTimeOfDayLength);
    out_.put(",");
    out_.number(since_midnight_us);
  }
  out_.put(rest);
  ++written_;
}

void CsvWriter::ledger(TimelineLedger const& ledger) {
  if (ledgers_.size() <= ledger.id) ledgers_.resize(ledger.id + std::size_t{1});
  ledgers_[ledger.id].name = ledger.name;
  ledgers_[ledger.id].begin_ns = ledger.begin_ns;
  if (!ledger.is_device_account) ++managers_;
}

void CsvWriter::before(TimelineBlock const& block) {
  auto const begin_ns = ledgers_[block.ledger].begin_ns;
  auto const allocated_ns = block.allocated_ns ? std::max<std::int64_t>(*block.allocated_ns, 0) : std::int64_t{0};
  before_.push_back({.time_ns = block.allocated_ns ? std::min(static_cast<std::uint64_t>(allocated_ns), begin_ns) : begin_ns,
                     .block = block,
                     .is_written = false});
}

/// What was live before and is older than `time_ns`; of `ledger`, whose first event comes, all that is left.
void CsvWriter::write_before(std::uint64_t time_ns, std::optional<std::uint32_t> ledger) {
  if (!std::exchange(has_begun_, true)) std::ranges::stable_sort(before_, {}, &Before::time_ns);
  for (; next_before_ < before_.size() && before_[next_before_].time_ns < time_ns; ++next_before_) {
    auto& before = before_[next_before_];
    if (!std::exchange(before.is_written, true)) allocate(before.block, before.time_ns);
  }
  if (!ledger || std::exchange(ledgers_[*ledger].has_begun, true)) return;
  for (auto at = next_before_; at < before_.size() && before_[at].time_ns <= time_ns; ++at) {
    auto& before = before_[at];
    if (before.block.ledger == *ledger && !std::exchange(before.is_written, true)) allocate(before.block, before.time_ns);
  }
}

void CsvWriter::set_conflict(std::uint32_t ledger, std::uint32_t other) {
  if (!conflict_.empty()) return;
  conflict_ = "the managers " + in_quotes(ledgers_[ledger].name) + " and " + in_quotes(ledgers_[other].name) +
              " have blocks at one address at one time, and a log cannot tell them apart; expected one of them to be chosen";
}

void CsvWriter::allocate(TimelineBlock const& block, std::uint64_t time_ns) {
  if (managers_ > 1) {
    auto& holder = holders_[block.address];
    if (holder.blocks != 0 && holder.block.ledger != block.ledger) {
      if (holder.blocks > 1) return set_conflict(holder.block.ledger, block.ledger);
      free_early(holder.block, block, time_ns);
      holder.blocks = 0;
    }
    holder.block = block;
    ++holder.blocks;
  }
  put(LogLine::Action::allocate, time_ns, block);
}

/// It is right if the block went in a gap, which is told later; else both have the address at one time.
void CsvWriter::free_early(TimelineBlock const& block, TimelineBlock const& next, std::uint64_t time_ns) {
  auto& ledger = ledgers_[block.ledger];
  // Behind one gap, a block that went in it may be told as live until the next one.
  auto const in_doubt = !ledger.has_gap;
  if (!early_.try_emplace({block.ledger, block.address}, Early{.other = next.ledger, .in_doubt = in_doubt}).second) {
    return set_conflict(block.ledger, next.ledger);
  }
  if (in_doubt) ++ledger.in_doubt;
  put(LogLine::Action::free, time_ns, block);
}

void CsvWriter::operation(TimelineOperation const& operation) {
  auto const& block = operation.block;
  write_before(operation.time_ns, block.ledger);
  if (!operation.assumed && ledgers_[block.ledger].in_doubt != 0) {
    // No gap in between: what is freed now, or later, was live all the time.
    auto const early = std::ranges::find_if(
        early_, [&](auto const& entry) { return entry.first.first == block.ledger && entry.second.in_doubt; });
    if (early != early_.end()) return set_conflict(block.ledger, early->second.other);
  }
  if (operation.kind == EventKind::allocate) return allocate(block, operation.time_ns);
  if (operation.known) free(operation);  // else of a block that is in no line before
}

void CsvWriter::free(TimelineOperation const& operation) {
  auto const& block = operation.block;
  if (managers_ > 1) {
    auto const holder = holders_.find(block.address);
    auto const is_held = holder != holders_.end() && holder->second.block.ledger == block.ledger;
    auto const early = is_held ? early_.end() : early_.find({block.ledger, block.address});
    if (early != early_.end()) {
      if (!operation.assumed) return set_conflict(block.ledger, early->second.other);
      if (early->second.in_doubt) --ledgers_[block.ledger].in_doubt;
      early_.erase(early);
      return;
    }
    if (is_held && --holder->second.blocks == 0) holders_.erase(holder);
  }
  put(LogLine::Action::free, operation.time_ns, block);
}

void CsvWriter::note(TimelineNote const& note) {
  if (note.kind != EventKind::refusal) return;
  write_before(note.time_ns, std::nullopt);
  TimelineBlock request;
  request.bytes = note.event->words[2];
  request.thread = note.thread;
  request.stream = note.stream;
  put(LogLine::Action::allocate_failure, note.time_ns, request);
}

void CsvWriter::end(TimelineEnd const& /*end*/) {
  write_before(kMaxUint64, std::nullopt);
  if (!early_.empty()) set_conflict(early_.begin()->first.first, early_.begin()->second.other);
}

Result<void> CsvWriter::finish() {
  if (!conflict_.empty()) return fail(ErrorKind::invalid_argument, Layer::request, conflict_);
  if (auto const code = out_.finish(); code != 0) return tl::unexpected{write_error(code)};
  return success();
}

}  // namespace

std::unique_ptr<FormatWriter> make_csv_writer(ByteSink& sink, ConvertOptions const& /*options*/) {
  return std::make_unique<CsvWriter>(sink);
}

}  // namespace headroom::dump
