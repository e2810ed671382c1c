// RMM's CSV log as records.
#include <array>
#include <cstring>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/trace.hpp>

#include "base/quoted.hpp"
#include "trace/csv_record.hpp"
#include "trace/day_clock.hpp"
#include "trace/line_buffer.hpp"
#include "trace/record_reader.hpp"
#include "trace/thread_index.hpp"

namespace headroom::trace {
namespace {

/// What Python's pickle wrote by default until 3.0 and is not read: a dict, a list or a class's call, in its own words. No CSV begins so.
[[nodiscard]] bool is_old_pickle(std::string_view text) noexcept {
  constexpr std::array<std::string_view, 8> kBeginnings{"(dp", "(lp", "(d.", "(l.", "}q", "]q", "}r", "]r"};
  for (auto const beginning : kBeginnings) {
    if (text.starts_with(beginning)) return true;
  }
  // A global: module and name on two lines of identifiers.
  if (!text.starts_with('c')) return false;
  auto const is_identifier = [](std::string_view word) {
    return !word.empty() &&
           word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == std::string_view::npos;
  };
  auto const first_end = text.find('\n');
  if (first_end == std::string_view::npos || !is_identifier(text.substr(1, first_end - 1))) return false;
  auto const second = text.substr(first_end + 1);
  auto const second_end = second.find('\n');
  return second_end != std::string_view::npos && is_identifier(second.substr(0, second_end)) && second_end + 1 < second.size() &&
         (second[second_end + 1] == 'p' || second[second_end + 1] == 'q' || second[second_end + 1] == '(');
}

class CsvReader final : public RecordReader {
public:
  CsvReader(std::string name, TraceCompression compression, std::unique_ptr<ByteSource> bytes)
      : RecordReader{std::move(name), compression}, lines_{std::move(bytes)} {}

  [[nodiscard]] Result<void> read_header() {
    auto const state = lines_.refill();
    if (!state) return tl::unexpected{state.error()};
    if (*state == State::end) {
      return fail(ErrorKind::parse, Layer::request, name() + ": the history is empty; " + std::string{kKnownFormats});
    }
    if (is_old_pickle(lines_.seen())) {
      return fail(ErrorKind::parse, Layer::request,
                  name() + ": byte 0: looks like a pickle of protocol 0 or 1: it begins with " +
                      in_quotes(lines_.seen().substr(0, 4)) + "; " + std::string{kKnownFormats});
    }
    if (*state == State::line_too_long) {
      // The window may end within the slack that describe_bad_header reads, which is there all the same.
      return fail(ErrorKind::parse, Layer::request, name() + ": " + describe_bad_header(lines_.seen()));
    }
    auto const* const end = line_end_of(lines_.text());
    auto line = without_return(lines_.text(), end);
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    if (line != kCsvHeader) {
      auto const what = describe_bad_header(line);
      return fail(ErrorKind::parse, Layer::request, name() + (what.starts_with(kUnknownKind) ? ": byte 0: " : ":1: ") + what);
    }
    lines_.consume_to(end + 1);
    return {};
  }

  [[nodiscard]] TraceFormat format() const noexcept override { return TraceFormat::rmm_csv; }
  [[nodiscard]] std::span<std::uint64_t const> thread_ids() const noexcept override { return threads_.ids(); }
  [[nodiscard]] std::span<std::uint32_t const> devices() const noexcept override { return kDevices; }
  void only_device(std::uint32_t /*device*/) override {}
  [[nodiscard]] std::string_view name_of(std::uint32_t /*id*/) const noexcept override { return {}; }
  [[nodiscard]] std::string stack_of(std::uint32_t /*site*/) const override { return {}; }
  [[nodiscard]] TorchSnapshot const* snapshot() const noexcept override { return nullptr; }

private:
  using State = LineBuffer::State;

  static constexpr std::array<std::uint32_t, 1> kDevices{0};

  /// The '\n' of the whole line at `text`.
  [[nodiscard]] char const* line_end_of(char const* text) const noexcept {
    return static_cast<char const*>(std::memchr(text, '\n', static_cast<std::size_t>(lines_.complete_end() - text)));
  }

  [[nodiscard]] static std::string_view without_return(char const* begin, char const* end) noexcept {
    if (end != begin && end[-1] == '\r') --end;
    return {begin, static_cast<std::size_t>(end - begin)};
  }

  /// As far as one window goes.
  void fill_batch() override {
    auto& batch = events();
    while (batch.empty() && !stopped() && !over_) {
      if (lines_.text() == lines_.complete_end() && !refill()) return;
      while (lines_.text() != lines_.complete_end() && batch.size() < kBatchEvents) {
        if (!take_line(batch)) return;
      }
    }
  }

  [[nodiscard]] bool refill() {
    auto const state = lines_.refill();
    if (!state) {
      stop(state.error());
      return false;
    }
    if (*state == State::line_too_long)
      return refuse_line("a line longer than " + format_count(TraceReader::kMaxLineBytes) + " bytes");
    over_ = *state == State::end;
    return !over_;
  }

  [[nodiscard]] bool take_line(std::vector<TraceEvent>& batch) {
    auto const* const begin = lines_.text();
    CsvRecord record;
    auto const* const end = parse_record(begin, record);
    if (end == nullptr) [[unlikely]]
      return take_odd_line(begin);
    if (static_cast<std::size_t>(end - begin) > TraceReader::kMaxLineBytes + 2) [[unlikely]] {
      return refuse_line("a line longer than " + format_count(TraceReader::kMaxLineBytes) + " bytes");
    }
    auto const thread = threads_.index_of(record.thread_id);
    if (!thread) [[unlikely]]
      return refuse_line("expected at most " + format_count(TraceReader::kMaxThreads) + " different threads");
    if (record.is_time_of_day) record.time_us = days_.unwrap(record.time_us);
    batch.push_back({.action = record.action,
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
    if (!line.empty()) return refuse_line(describe_bad_record(line, lines_.is_unfinished(end)));
    ++line_;
    lines_.consume_to(end + 1);
    return true;
  }

  /// Always false, for `return refuse_line(…)`.
  [[nodiscard]] bool refuse_line(std::string const& why) {
    stop(make_error(ErrorKind::parse, Layer::request, name() + ':' + std::to_string(line_) + ": " + why));
    return false;
  }

  LineBuffer lines_;
  ThreadIndex threads_;
  DayClock days_;
  std::uint64_t line_ = 2;  // of the line at lines_.text(); 1 is the header
  bool over_ = false;
};

}  // namespace

Result<std::unique_ptr<RecordReader>> make_csv_reader(std::string name, TraceCompression compression,
                                                      std::unique_ptr<ByteSource> bytes) {
  auto reader = std::make_unique<CsvReader>(std::move(name), compression, std::move(bytes));
  if (auto header = reader->read_header(); !header) return tl::unexpected{std::move(header.error())};
  return reader;
}

}  // namespace headroom::trace
