// Folded stacks, for flamegraph.pl, inferno and speedscope: `process;manager;tag;site BYTES`, sorted, each stack once.
//
// What is held at the end, or was at each manager's peak. The latter is known in one pass: a group of blocks notes what it held at the
// last mark when it first changes after it (epochs), so that a new peak costs one number and not a copy of everything.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <headroom/byte_size.hpp>

#include "base/quoted.hpp"
#include "dump/format_writer.hpp"
#include "dump/text_stream.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;

/// Line ends would end the stack, as ';' ends a frame. Other control characters are for no reader.
[[nodiscard]] std::string frame_of(std::string_view text, std::string_view if_empty) {
  std::string frame{text.empty() ? if_empty : text};
  for (auto& c : frame) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return frame;
}

/// A stack is frames already.
[[nodiscard]] std::string stack_of(std::string const& frames) {
  if (frames.empty()) return "unknown site";
  std::string stack;
  for (std::size_t begin = 0; begin <= frames.size();) {
    auto const end = std::min(frames.find(';', begin), frames.size());
    if (begin != 0) stack += ';';
    stack += frame_of(std::string_view{frames}.substr(begin, end - begin), "unknown site");
    begin = end + 1;
  }
  return stack;
}

class FoldedWriter final : public FormatWriter {
public:
  FoldedWriter(ByteSink& sink, bool at_peak) : out_{sink}, at_peak_{at_peak} {}

  void begin(TimelineProcess const& process) override {
    timeline_names_ = process.names;
    process_ = frame_of(process.info.program.empty() ? process.title : process.info.program, "unknown process");
  }
  void ledger(TimelineLedger const& info) override;
  void before(TimelineBlock const& block) override;
  void operation(TimelineOperation const& operation) override;
  void gap(TimelineGap const& gap) override;
  void end(TimelineEnd const& end) override;
  [[nodiscard]] bool stopped() const noexcept override { return out_.error() != 0; }
  [[nodiscard]] Result<void> finish() override;
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  struct Group {
    std::uint64_t bytes = 0;
    std::uint64_t at_mark = 0;
    std::uint64_t epoch = 0;
  };
  struct Ledger {
    TimelineLedger info;
    std::uint64_t allocated = 0, known = 0;
    std::uint64_t epoch = 0;  // marks so far
    std::uint64_t marked = 0, marked_known = 0;
    bool reached = false;                             // the books' peak, at the mark
    std::unordered_map<std::uint64_t, Group> groups;  // by tag and site
  };

  [[nodiscard]] static std::uint64_t key_of(TimelineBlock const& block) noexcept {
    return (std::uint64_t{block.tag} << 32U) | block.site;
  }
  void judge(Ledger& ledger) const;
  void add_line(Ledger const& ledger, std::string const& tag, std::string const& stack, std::uint64_t bytes);

  TextStream out_;
  bool at_peak_;
  TimelineNames const* timeline_names_ = nullptr;
  std::string process_;
  std::map<std::uint32_t, Ledger> ledgers_;
  std::map<std::string, std::uint64_t> lines_;
  std::string error_;
  std::uint64_t written_ = 0;
};

void FoldedWriter::ledger(TimelineLedger const& info) {
  if (info.is_device_account) return;
  auto& ledger = ledgers_[info.id];
  ledger.info = info;
  ledger.allocated = ledger.marked = info.allocated;
  ledger.known = ledger.marked_known = info.allocated - std::min(info.allocated, info.unattributed);
  ledger.reached = info.allocated == info.peak;
}

void FoldedWriter::before(TimelineBlock const& block) {
  auto& group = ledgers_[block.ledger].groups[key_of(block)];
  group.bytes += block.bytes;
  group.at_mark = group.bytes;
}

/// Whether what the ledger holds now is what it held at its peak. A peak may have been reset: then it was higher before, and the last
/// time that it rose to what the books call the peak counts.
void FoldedWriter::judge(Ledger& ledger) const {
  if (!at_peak_) return;
  auto const peak = ledger.info.peak;
  auto is_peak = false;
  if (peak == 0) {  // the books do not say: the highest so far
    is_peak = ledger.allocated > ledger.marked;
  } else {
    if (ledger.allocated > peak) ledger.reached = false;
    is_peak = ledger.allocated == peak && !ledger.reached;
  }
  if (!is_peak) return;
  ++ledger.epoch;
  ledger.reached = true;
  ledger.marked = ledger.allocated;
  ledger.marked_known = ledger.known;
}

void FoldedWriter::operation(TimelineOperation const& operation) {
  auto& ledger = ledgers_[operation.block.ledger];
  // What fills a gap is one step: in the midst of it nothing is what it was.
  if (!operation.assumed) judge(ledger);
  ledger.allocated = operation.allocated_after;
  if (!operation.known) return;
  auto& group = ledger.groups[key_of(operation.block)];
  if (group.epoch != ledger.epoch) {
    group.epoch = ledger.epoch;
    group.at_mark = group.bytes;
  }
  auto const bytes = operation.block.bytes;
  if (operation.kind == EventKind::allocate) {
    group.bytes += bytes;
    ledger.known += bytes;
  } else {
    group.bytes -= std::min(group.bytes, bytes);
    ledger.known -= std::min(ledger.known, bytes);
  }
}

void FoldedWriter::gap(TimelineGap const& gap) {
  auto& ledger = ledgers_[gap.ledger];
  judge(ledger);
  ledger.allocated = gap.allocated_after;
}

void FoldedWriter::add_line(Ledger const& ledger, std::string const& tag, std::string const& stack, std::uint64_t bytes) {
  if (bytes == 0) return;
  lines_[process_ + ';' + frame_of(ledger.info.name, "unnamed manager") + ';' + tag + ';' + stack] += bytes;
}

void FoldedWriter::end(TimelineEnd const& /*end*/) {
  for (auto& [id, ledger] : ledgers_) {
    judge(ledger);
    if (at_peak_ && !ledger.reached && ledger.info.peak != 0) {
      error_ = "the peak of manager " + in_quotes(ledger.info.name) + ", " + format_bytes_exact(ledger.info.peak) +
               ", was reached before the record begins, or in a gap of it; expected a record that has it, or the end instead";
      return;
    }
    for (auto const& [key, group] : ledger.groups) {
      auto const bytes = at_peak_ && group.epoch == ledger.epoch ? group.at_mark : group.bytes;
      auto const tag = timeline_names_->tag(static_cast<std::uint32_t>(key >> 32U));
      add_line(ledger, frame_of(tag, "untagged"), stack_of(timeline_names_->stack(static_cast<std::uint32_t>(key))), bytes);
    }
    auto const held = at_peak_ ? ledger.marked : ledger.allocated;
    auto const known = at_peak_ ? ledger.marked_known : ledger.known;
    add_line(ledger, "(unattributed)", "unknown site", held > known ? held - known : 0);
  }
}

Result<void> FoldedWriter::finish() {
  if (!error_.empty()) return fail(ErrorKind::invalid_argument, Layer::request, error_);
  if (!stopped()) {
    for (auto const& [stack, bytes] : lines_) {
      out_.put(stack);
      out_.put(" ");
      out_.number(bytes);
      out_.put("\n");
      ++written_;
    }
  }
  if (auto const code = out_.finish(); code != 0) return tl::unexpected{write_error(code)};
  return success();
}

}  // namespace

std::unique_ptr<FormatWriter> make_folded_writer(ByteSink& sink, ConvertOptions const& options) {
  return std::make_unique<FoldedWriter>(sink, options.at_peak);
}

}  // namespace headroom::dump
