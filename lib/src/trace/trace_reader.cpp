#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <headroom/byte_size.hpp>
#include <headroom/trace.hpp>

#include "trace/day_clock.hpp"
#include "trace/line_buffer.hpp"
#include "trace/thread_index.hpp"

namespace headroom {

std::string_view to_string(TraceEvent::Action action) noexcept {
  switch (action) {
    case TraceEvent::Action::allocate: return "allocate";
    case TraceEvent::Action::allocate_failure: return "allocate failure";
    case TraceEvent::Action::free: return "free";
  }
  return "unknown";
}

std::string_view to_string(TraceCompression compression) noexcept {
  switch (compression) {
    case TraceCompression::none: return "none";
    case TraceCompression::xz: return "xz";
    case TraceCompression::gzip: return "gzip";
  }
  return "unknown";
}

class TraceReader::Impl {
public:
  Impl(std::string name, trace::OpenedSource source)
      : name_{std::move(name)}, compression_{source.compression}, lines_{std::move(source.bytes)} {
    events_.reserve(kBatchEvents);
  }

  [[nodiscard]] Result<void> read_header() {
    auto const state = lines_.refill();
    if (!state) return tl::unexpected{state.error()};
    auto const expected =
        std::string{"; expected RMM's CSV log (first line "} + std::string{trace::kCsvHeader} + "), plain, .xz or .gz";
    if (*state == State::end) return fail(ErrorKind::parse, Layer::request, name_ + ": the history is empty" + expected);
    if (*state == State::line_too_long) {
      // The window may end within the slack that describe_bad_header reads, which is there all the same.
      return fail(ErrorKind::parse, Layer::request, name_ + ": " + trace::describe_bad_header(lines_.seen()));
    }
    auto const* const end = line_end_of(lines_.text());
    auto line = without_return(lines_.text(), end);
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    if (line != trace::kCsvHeader) {
      return fail(ErrorKind::parse, Layer::request, name_ + ":1: " + trace::describe_bad_header(line));
    }
    lines_.consume_to(end + 1);
    return {};
  }

  [[nodiscard]] Result<std::span<TraceEvent const>> next_batch() {
    if (next_ < events_.size()) {  // next() took some of the last batch
      auto const rest = std::span{events_}.subspan(next_);
      next_ = events_.size();
      return rest;
    }
    fill_batch();
    next_ = events_.size();
    if (events_.empty() && error_) return tl::unexpected{*error_};
    return std::span<TraceEvent const>{events_};
  }

  [[nodiscard]] Result<bool> next(TraceEvent& event) {
    if (next_ == events_.size()) {
      fill_batch();
      next_ = 0;
      if (events_.empty() && error_) return tl::unexpected{*error_};
      if (events_.empty()) return false;
    }
    event = events_[next_++];
    return true;
  }

  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] TraceCompression compression() const noexcept { return compression_; }
  [[nodiscard]] std::span<std::uint64_t const> thread_ids() const noexcept { return threads_.ids(); }

private:
  using State = trace::LineBuffer::State;

  /// Few enough that a batch (48 KiB) stays in the second-level cache on its way to the caller.
  static constexpr std::size_t kBatchEvents = 1024;

  /// The '\n' of the whole line at `text`.
  [[nodiscard]] char const* line_end_of(char const* text) const noexcept {
    return static_cast<char const*>(std::memchr(text, '\n', static_cast<std::size_t>(lines_.complete_end() - text)));
  }

  [[nodiscard]] static std::string_view without_return(char const* begin, char const* end) noexcept {
    if (end != begin && end[-1] == '\r') --end;
    return {begin, static_cast<std::size_t>(end - begin)};
  }

  /// Fills events_ as far as one window goes; sets error_ when it meets something bad. Both empty: the end.
  void fill_batch() {
    events_.clear();
    while (events_.empty() && !error_ && !over_) {
      if (lines_.text() == lines_.complete_end() && !refill()) return;
      while (lines_.text() != lines_.complete_end() && events_.size() < kBatchEvents) {
        if (!take_line()) return;
      }
    }
  }

  [[nodiscard]] bool refill() {
    auto const state = lines_.refill();
    if (!state) {
      error_ = state.error();
      return false;
    }
    if (*state == State::line_too_long) return refuse_line("a line longer than " + format_count(kMaxLineBytes) + " bytes");
    over_ = *state == State::end;
    return !over_;
  }

  [[nodiscard]] bool take_line() {
    auto const* const begin = lines_.text();
    trace::CsvRecord record;
    auto const* const end = trace::parse_record(begin, record);
    if (end == nullptr) [[unlikely]]
      return take_odd_line(begin);
    if (static_cast<std::size_t>(end - begin) > kMaxLineBytes + 2) [[unlikely]] {
      return refuse_line("a line longer than " + format_count(kMaxLineBytes) + " bytes");
    }
    auto const thread = threads_.index_of(record.thread_id);
    if (!thread) [[unlikely]]
      return refuse_line("expected at most " + format_count(kMaxThreads) + " different threads");
    if (record.is_time_of_day) record.time_us = days_.unwrap(record.time_us);
    events_.push_back({.action = record.action,
                       .thread = *thread,
                       .time_us = record.time_us,
                       .pointer = record.pointer,
                       .bytes = record.bytes,
                       .stream = record.stream,
                       .line = line_++});
    lines_.consume_to(end);
    return true;
  }

  /// An empty line, which carries nothing and is skipped, or a bad one.
  [[nodiscard]] bool take_odd_line(char const* begin) {
    auto const* const end = line_end_of(begin);
    auto const line = without_return(begin, end);
    if (!line.empty()) return refuse_line(trace::describe_bad_record(line, lines_.is_unfinished(end)));
    ++line_;
    lines_.consume_to(end + 1);
    return true;
  }

  /// Always false, for `return refuse_line(…)`.
  [[nodiscard]] bool refuse_line(std::string const& why) {
    error_ = make_error(ErrorKind::parse, Layer::request, name_ + ':' + std::to_string(line_) + ": " + why);
    return false;
  }

  std::string name_;
  TraceCompression compression_;
  trace::LineBuffer lines_;
  trace::ThreadIndex threads_;
  trace::DayClock days_;
  std::vector<TraceEvent> events_;
  std::size_t next_ = 0;    // the first of events_ that was not delivered
  std::uint64_t line_ = 2;  // of the line at lines_.text(); 1 is the header
  std::optional<Error> error_;
  bool over_ = false;
};

TraceReader::TraceReader(std::unique_ptr<Impl> impl) noexcept : impl_{std::move(impl)} {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader> TraceReader::begin(std::unique_ptr<Impl> impl) {
  if (auto header = impl->read_header(); !header) return tl::unexpected{std::move(header.error())};
  return TraceReader{std::move(impl)};
}

Result<TraceReader> TraceReader::open(std::string path) {
  auto name = path == "-" ? std::string{"standard input"} : path;
  auto source = trace::open_byte_source(path, name);
  if (!source) return tl::unexpected{std::move(source.error())};
  return begin(std::make_unique<Impl>(std::move(name), std::move(*source)));
}

Result<TraceReader> TraceReader::resume(int descriptor, std::string_view first_bytes, std::string name) {
  auto source = trace::resume_byte_source(descriptor, first_bytes, name);
  if (!source) return tl::unexpected{std::move(source.error())};
  return begin(std::make_unique<Impl>(std::move(name), std::move(*source)));
}

Result<std::span<TraceEvent const>> TraceReader::next_batch() { return impl_->next_batch(); }
Result<bool> TraceReader::next(TraceEvent& event) { return impl_->next(event); }
std::string const& TraceReader::name() const noexcept { return impl_->name(); }
TraceCompression TraceReader::compression() const noexcept { return impl_->compression(); }
std::span<std::uint64_t const> TraceReader::thread_ids() const noexcept { return impl_->thread_ids(); }

}  // namespace headroom
