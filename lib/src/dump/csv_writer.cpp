// RMM's log, as TraceReader reads it and CsvSink writes it: what was live before comes first, at the time of the first record.
//
// The log knows addresses and no managers: a free is of whatever is live at its address. So managers whose blocks share an address at
// one time (the host's stand-ins for GPUs do) cannot be in one log.
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <headroom/log_sink.hpp>

#include "base/quoted.hpp"
#include "dump/format_writer.hpp"
#include "dump/text_stream.hpp"
#include "trace/csv_line.hpp"
#include "trace/csv_record.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;

class CsvWriter final : public FormatWriter {
public:
  explicit CsvWriter(ByteSink& sink) : out_{sink} {}

  void begin(TimelineProcess const& process) override {
    clock_ns_ = process.start_realtime_ns.value_or(process.start_clock_ns);
    out_.put(trace::kCsvHeader);
    out_.put("\n");
  }
  void ledger(TimelineLedger const& ledger) override {
    if (names_.size() <= ledger.id) names_.resize(ledger.id + std::size_t{1});
    names_[ledger.id] = ledger.name;
    if (!ledger.is_device_account) ++managers_;
  }
  void before(TimelineBlock const& block) override { allocate(block, 0); }
  void operation(TimelineOperation const& operation) override;
  void note(TimelineNote const& note) override;
  [[nodiscard]] bool stopped() const noexcept override { return out_.error() != 0 || !conflict_.empty(); }
  [[nodiscard]] Result<void> finish() override;
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  struct Holder {
    std::uint32_t ledger = 0;
    std::uint32_t blocks = 0;
  };

  void allocate(TimelineBlock const& block, std::uint64_t time_ns);
  void put(LogLine::Action action, std::uint64_t time_ns, TimelineBlock const& block);

  TextStream out_;
  std::uint64_t clock_ns_ = 0;
  std::vector<std::string> names_;  // by ledger
  std::size_t managers_ = 0;
  std::unordered_map<std::uint64_t, Holder> holders_;  // by address; kept where there are several managers
  std::string conflict_;
  std::uint64_t written_ = 0;
};

void CsvWriter::put(LogLine::Action action, std::uint64_t time_ns, TimelineBlock const& block) {
  LogLine line{};
  line.action = action;
  line.time_ns = clock_ns_ + time_ns;
  line.pointer = block.address;
  line.bytes = block.bytes;
  line.stream = block.stream.value_or(0);
  // A history's threads may have numbers of 64 bits, which a line of ours has not: it is written as thread 0, and put behind the number.
  char text[trace::kCsvLineRoom];
  auto const* const end = trace::CsvLineWriter{text}.write(line);
  out_.number(block.thread);
  out_.put({text + 1, end});
  ++written_;
}

void CsvWriter::allocate(TimelineBlock const& block, std::uint64_t time_ns) {
  if (managers_ > 1) {
    auto& holder = holders_[block.address];
    if (holder.blocks != 0 && holder.ledger != block.ledger) {
      conflict_ = "the managers " + in_quotes(names_[holder.ledger]) + " and " + in_quotes(names_[block.ledger]) +
                  " have blocks at one address at one time, and a log cannot tell them apart; expected one of them to be chosen";
      return;
    }
    holder.ledger = block.ledger;
    ++holder.blocks;
  }
  put(LogLine::Action::allocate, time_ns, block);
}

void CsvWriter::operation(TimelineOperation const& operation) {
  if (operation.kind == EventKind::allocate) return allocate(operation.block, operation.time_ns);
  if (!operation.known) return;  // of a block that is in no line before
  if (managers_ > 1) {
    auto const holder = holders_.find(operation.block.address);
    if (holder != holders_.end() && --holder->second.blocks == 0) holders_.erase(holder);
  }
  put(LogLine::Action::free, operation.time_ns, operation.block);
}

void CsvWriter::note(TimelineNote const& note) {
  if (note.kind != EventKind::refusal) return;
  TimelineBlock request;
  request.bytes = note.event->words[2];
  request.thread = note.thread;
  request.stream = note.stream;
  put(LogLine::Action::allocate_failure, note.time_ns, request);
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
