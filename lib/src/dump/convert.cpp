// Conversions: a timeline, played to the writer of a format.
#include <headroom/convert.hpp>

#include <array>
#include <string>
#include <system_error>
#include <utility>

#include "base/quoted.hpp"
#include "dump/format_writer.hpp"
#include "dump/torch_writer.hpp"

namespace headroom {
namespace dump {

Error write_error(int code) {
  auto failure = fail(ErrorKind::io, Layer::request, "the output cannot be written: " + std::generic_category().message(code));
  return std::move(failure.value());
}

namespace {

/// What a caller's function says is kept; a writer sees only that it failed.
class FunctionSink final : public ByteSink {
public:
  explicit FunctionSink(ConvertSink const& sink) noexcept : sink_{sink} {}
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    try {
      auto taken = sink_({bytes.data(), bytes.size()});
      if (taken) return 0;
      error_ = std::move(taken.error());
    } catch (...) {
      return ECANCELED;  // whoever throws here gets an error like everybody else: that of a write
    }
    return EIO;
  }
  [[nodiscard]] std::optional<Error> const& error() const noexcept { return error_; }

private:
  ConvertSink const& sink_;
  std::optional<Error> error_;
};

/// Counts what passes through, for whoever draws progress.
class CountingVisitor final : public TimelineVisitor {
public:
  CountingVisitor(TimelineVisitor& to, std::atomic<std::uint64_t>& count) noexcept : to_{to}, count_{count} {}
  void begin(TimelineProcess const& process) override { to_.begin(process); }
  void ledger(TimelineLedger const& ledger) override { to_.ledger(ledger); }
  void before(TimelineBlock const& block) override { to_.before(block); }
  void operation(TimelineOperation const& operation) override {
    count();
    to_.operation(operation);
  }
  void gap(TimelineGap const& gap) override { to_.gap(gap); }
  void note(TimelineNote const& note) override {
    count();
    to_.note(note);
  }
  void end(TimelineEnd const& end) override { to_.end(end); }
  [[nodiscard]] bool stopped() const noexcept override { return to_.stopped(); }

private:
  void count() noexcept { count_.store(++counted_, std::memory_order_relaxed); }

  TimelineVisitor& to_;
  std::atomic<std::uint64_t>& count_;  // see ConvertOptions::progress
  std::uint64_t counted_ = 0;
};

[[nodiscard]] Result<std::unique_ptr<FormatWriter>> make_writer(ConvertFormat format, ByteSink& sink,
                                                                ConvertOptions const& options) {
  switch (format) {
    case ConvertFormat::chrome: return make_chrome_writer(sink, options);
    case ConvertFormat::csv: return make_csv_writer(sink, options);
    case ConvertFormat::folded: return make_folded_writer(sink, options);
    case ConvertFormat::json: return make_history_json_writer(sink, options);
    case ConvertFormat::torch: return make_torch_writer(sink, options);
  }
  return fail(ErrorKind::invalid_argument, Layer::request,
              "found the format " + std::to_string(static_cast<unsigned>(format)) + "; expected one of the ConvertFormats");
}

[[nodiscard]] Result<ConvertReport> convert_to(std::unique_ptr<follow::Source> source, ConvertFormat format, ByteSink& sink,
                                               ConvertOptions const& options) {
  if (format == ConvertFormat::json && source->kind() != follow::SourceKind::history) {
    return fail(ErrorKind::unsupported, Layer::request,
                source->title() + ": is no recorded history; expected write_post_mortem() to be asked for the JSON of a process");
  }
  auto writer = make_writer(format, sink, options);
  if (!writer) return tl::unexpected{std::move(writer.error())};
  Timeline timeline{std::move(source), {.manager = options.manager, .device = options.device}};
  auto played = [&] {
    if (options.progress == nullptr) return timeline.play(**writer);
    CountingVisitor counting{**writer, *options.progress};
    return timeline.play(counting);
  }();
  if (!played) return tl::unexpected{std::move(played.error())};
  if (auto finished = (*writer)->finish(); !finished) return tl::unexpected{std::move(finished.error())};
  auto const& totals = timeline.totals();
  return ConvertReport{.events = totals.events,
                       .written = (*writer)->written(),
                       .blocks_before = totals.before,
                       .events_lost = totals.events_lost,
                       .gaps = totals.gaps,
                       .operations_missing = totals.operations_missing,
                       .operations_assumed = totals.assumed,
                       .unknown_frees = totals.unknown_frees,
                       .unattributed_bytes = totals.unattributed_bytes};
}

constexpr std::array<std::string_view, kConvertFormatCount> kFormatNames{"chrome", "torch", "csv", "folded", "json"};

}  // namespace
}  // namespace dump

std::string_view to_string(ConvertFormat format) noexcept {
  auto const place = static_cast<std::size_t>(format);
  return place < dump::kFormatNames.size() ? dump::kFormatNames[place] : "unknown";
}

Result<ConvertFormat> parse_convert_format(std::string_view text) {
  for (std::size_t i = 0; i < dump::kFormatNames.size(); ++i) {
    if (dump::kFormatNames[i] == text) return static_cast<ConvertFormat>(i);
  }
  return fail(ErrorKind::invalid_argument, Layer::request,
              "found the format " + in_quotes(text) + "; expected chrome, torch, csv, folded or json");
}

Result<ConvertReport> convert(std::unique_ptr<follow::Source> source, ConvertFormat format, ConvertSink const& sink,
                              ConvertOptions const& options) {
  dump::FunctionSink to{sink};
  auto report = dump::convert_to(std::move(source), format, to, options);
  if (!report && to.error()) return tl::unexpected{*to.error()};
  return report;
}

Result<ConvertReport> convert(std::unique_ptr<follow::Source> source, ConvertFormat format, int descriptor,
                              ConvertOptions const& options) {
  dump::DescriptorSink to{descriptor};
  return dump::convert_to(std::move(source), format, to, options);
}

}  // namespace headroom
