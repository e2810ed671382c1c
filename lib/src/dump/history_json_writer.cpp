// A recorded history as JSON: lib/schema/history.schema.json. Events are rows under one header, in the order of the history; tags and
// sites are numbers in them, whose texts stand in lists behind the events, as does what it all adds up to: nothing of it is known
// before, since a history is read once and never kept. So `end` is the last member, and a file without it was cut off.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dump/format_writer.hpp"
#include "dump/json_stream.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;
using Shape = JsonStream::Shape;

constexpr std::size_t kBufferBytes = std::size_t{64} << 10U;

class HistoryJsonWriter final : public FormatWriter {
public:
  explicit HistoryJsonWriter(ByteSink& sink) : buffer_(kBufferBytes, '\0'), json_{sink, buffer_} {}

  void begin(TimelineProcess const& process) override;
  void ledger(TimelineLedger const& ledger) override { ledgers_[ledger.id] = ledger; }
  void operation(TimelineOperation const& operation) override;
  void note(TimelineNote const& note) override;
  void end(TimelineEnd const& end) override;
  [[nodiscard]] bool stopped() const noexcept override { return json_.error() != 0; }
  [[nodiscard]] Result<void> finish() override {
    if (auto const code = json_.finish(); code != 0) return tl::unexpected{write_error(code)};
    return success();
  }
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  struct Cells {
    std::string_view action;
    std::uint64_t time_ns = 0;
    std::optional<std::uint64_t> address;
    std::uint64_t bytes = 0, thread = 0;
    std::optional<std::uint64_t> stream;
    std::uint32_t tag = 0, site = 0, ledger = 0;
    std::uint64_t allocated = 0;
  };
  void write_row(Cells const& cells);
  template <class TextOf>
  void write_texts(std::string_view name, std::uint32_t count, TextOf const& text_of);

  std::vector<char> buffer_;
  JsonStream json_;
  TimelineNames const* names_ = nullptr;
  std::map<std::uint32_t, TimelineLedger> ledgers_;
  std::uint32_t tags_ = 0, sites_ = 0;  // highest numbers
  std::uint64_t allocations_ = 0, frees_ = 0, failures_ = 0, live_ = 0;
  std::uint64_t written_ = 0;
};

void HistoryJsonWriter::begin(TimelineProcess const& process) {
  names_ = process.names;
  json_.begin_object();
  json_.member_word("schema", "headroom.history");
  json_.member("version", std::uint64_t{1});
  json_.member("name", process.title);
  // What to add to a time to get the one that the history has.
  json_.member("start_clock_ns", process.start_clock_ns);
  json_.begin_array("columns", Shape::flat);
  for (auto const* const column :
       {"time_ns", "action", "address", "bytes", "thread", "stream", "tag", "site", "manager", "allocated_bytes"}) {
    json_.word(column);
  }
  json_.end_array();
  json_.begin_array("events");
}

void HistoryJsonWriter::write_row(Cells const& cells) {
  JsonStream::Row row{json_};
  row.number(cells.time_ns);
  row.word(cells.action);
  cells.address ? row.hex(*cells.address) : row.null();
  row.number(cells.bytes);
  row.number(cells.thread);
  cells.stream ? row.hex(*cells.stream) : row.null();
  row.number(cells.tag);
  row.number(cells.site);
  row.number(cells.ledger);
  row.number(cells.allocated);
  tags_ = std::max(tags_, cells.tag);
  sites_ = std::max(sites_, cells.site);
  ++written_;
}

void HistoryJsonWriter::operation(TimelineOperation const& operation) {
  auto const is_allocation = operation.kind == EventKind::allocate;
  ++(is_allocation ? allocations_ : frees_);
  if (is_allocation) {
    ++live_;
  } else if (operation.known) {
    --live_;
  }
  auto const& block = operation.block;
  write_row({.action = is_allocation ? "allocate" : "free",
             .time_ns = operation.time_ns,
             .address = block.address,
             .bytes = block.bytes,
             .thread = block.thread,
             .stream = block.stream,
             .tag = block.tag,
             .site = block.site,
             .ledger = block.ledger,
             .allocated = operation.allocated_after});
}

void HistoryJsonWriter::note(TimelineNote const& note) {
  if (note.kind != EventKind::refusal || !note.ledger) return;
  ++failures_;
  write_row({.action = "allocate_failure",
             .time_ns = note.time_ns,
             .address = {},
             .bytes = note.event->words[2],
             .thread = note.thread,
             .stream = note.stream,
             .tag = note.tag,
             .site = note.site,
             .ledger = *note.ledger,
             .allocated = note.event->allocated_after()});
}

template <class TextOf>
void HistoryJsonWriter::write_texts(std::string_view name, std::uint32_t count, TextOf const& text_of) {
  json_.begin_array(name);
  for (std::uint32_t number = 0; number <= count; ++number) json_.value(text_of(number));
  json_.end_array();
}

void HistoryJsonWriter::end(TimelineEnd const& end) {
  json_.end_array();
  write_texts("tags", tags_, [&](std::uint32_t number) { return names_->tag(number); });
  write_texts("sites", sites_, [&](std::uint32_t number) { return names_->site(number); });
  json_.begin_array("managers");
  std::uint64_t live_bytes = 0;
  for (auto const& at_end : end.ledgers) {
    auto const& ledger = ledgers_[at_end.id];
    json_.begin_object(Shape::flat);
    json_.member("manager", at_end.id);
    json_.member("name", ledger.name);
    json_.member_if_text("device_name", ledger.device_name);
    if (ledger.device_ordinal >= 0) json_.member("device_ordinal", ledger.device_ordinal);
    json_.member("live_bytes", at_end.allocated);
    json_.member("peak_bytes", at_end.peak);
    json_.end_object();
    live_bytes += at_end.allocated;
  }
  json_.end_array();
  json_.begin_object("summary");
  json_.member("events", written_);
  json_.member("allocations", allocations_);
  json_.member("frees", frees_);
  json_.member("failures", failures_);
  json_.member("live_bytes", live_bytes);
  json_.member("live_allocations", live_);
  json_.member("duration_ns", end.time_ns);
  json_.end_object();
  json_.member("end", true);
  json_.end_object();
}

}  // namespace

std::unique_ptr<FormatWriter> make_history_json_writer(ByteSink& sink, ConvertOptions const& /*options*/) {
  return std::make_unique<HistoryJsonWriter>(sink);
}

}  // namespace headroom::dump
