// headroom convert: what was recorded, in the formats of others.
#include <array>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/convert.hpp>
#include <headroom/post_mortem.hpp>

#include "command/arguments.hpp"
#include "command/history_file.hpp"
#include "command/output.hpp"
#include "command/output_file.hpp"
#include "command/progress.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom convert";

struct ConvertArguments {
  std::string input;
  std::string to;
  std::optional<std::string> output;
  std::optional<std::string> manager;
  std::string at = "end";
  std::optional<std::string> trace_device;
};

struct Wanted {
  ConvertFormat format = ConvertFormat::chrome;
  ConvertOptions options;
  std::optional<std::uint32_t> trace_device;
};

[[nodiscard]] tl::unexpected<Error> wrong_usage(std::string message) {
  return fail(ErrorKind::invalid_argument, Layer::request, std::move(message));
}

[[nodiscard]] Result<Wanted> read_arguments(ConvertArguments const& arguments) {
  Wanted wanted;
  auto const format = parse_convert_format(arguments.to);
  if (!format) return wrong_usage("--to '" + printable(arguments.to) + "'; expected chrome, torch, csv, folded or json");
  wanted.format = *format;
  wanted.options.manager = arguments.manager;
  if (arguments.at != "end" && arguments.at != "peak") {
    return wrong_usage("--at '" + printable(arguments.at) + "'; expected end or peak");
  }
  wanted.options.at_peak = arguments.at == "peak";
  if (wanted.options.at_peak && wanted.format != ConvertFormat::folded) {
    return wrong_usage("--at peak; expected only with --to folded");
  }
  auto const trace_device = parse_trace_device(arguments.trace_device);
  if (!trace_device) return tl::unexpected{trace_device.error()};
  wanted.trace_device = *trace_device;
  return wanted;
}

/// In the working directory: the input's name with the format's ending, NAME.2, NAME.3 ….
[[nodiscard]] std::string default_name(std::string const& input, ConvertFormat format, std::uint64_t number) {
  constexpr std::array<std::string_view, kConvertFormatCount> kEndings{".trace.json", ".pickle", ".csv", ".folded", ".json"};
  auto name = std::filesystem::path{input}.filename().string();
  for (std::string_view const known : {".xz", ".gz", ".post-mortem.json", ".csv", ".flight", ".pickle", ".json"}) {
    if (name.size() > known.size() && name.ends_with(known)) name.resize(name.size() - known.size());
  }
  if (number > 1) name.append(1, '.').append(std::to_string(number));
  return name.append(kEndings[static_cast<std::size_t>(format)]);
}

/// A post-mortem or flight file as the post-mortem that it is or makes. Errors: of the input.
[[nodiscard]] Result<void> write_as_post_mortem(Source& source, OutputFile& file, bool& output_failed) {
  if (source.kind() == SourceKind::dump) {
    auto const text = source.post_mortem_text();
    if (!text) return tl::unexpected{text.error()};
    auto written = file.write(*text);
    output_failed = !written;
    return written;
  }
  auto const view = source.flight();
  if (!view) return tl::unexpected{view.error()};
  auto written = write_post_mortem(*view, file.descriptor(), "converted with headroom convert", {});
  output_failed = !written;
  if (!written) written.error().message = printable(file.name()) + ": cannot be written: " + written.error().message;
  return written;
}

/// What a timeline is made of. Errors: invalid_argument (a device must be chosen), and those of the input.
[[nodiscard]] Result<std::unique_ptr<follow::Source>> open_records(Source& source, Wanted const& wanted) {
  if (source.kind() != SourceKind::history) {
    if (wanted.trace_device) {
      return wrong_usage("--trace-device " + std::to_string(*wanted.trace_device) + "; expected only with a recorded history");
    }
    return source.records();
  }
  // Device comes after device, and these two are by time.
  auto const is_by_time = wanted.format == ConvertFormat::chrome || wanted.format == ConvertFormat::csv;
  auto reader = open_history(source, wanted.trace_device, is_by_time ? "whose records mix in time" : "");
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return follow::history_source(std::move(*reader));
}

void tell_what_is_missing(ConvertReport const& report) {
  if (report.events_lost != 0) {
    complain(kWho, format_count(report.events_lost) + " records were overwritten before they could be read");
  }
  if (report.gaps != 0) {
    complain(kWho, (report.operations_missing == 0 ? std::string{"operations"}
                                                   : format_count(report.operations_missing) + " operations") +
                       " are missing in " + counted(report.gaps, "gap") + "; what is live after each is told all the same");
  }
  if (report.unattributed_bytes != 0) {
    complain(kWho, format_bytes_exact(report.unattributed_bytes) + " are live in blocks that no record tells of");
  }
}

[[nodiscard]] Result<void> convert_into(Source& source, Wanted const& wanted, OutputFile& file, bool& output_failed,
                                        std::uint64_t& written) {
  if (wanted.format == ConvertFormat::json && source.kind() != SourceKind::history) {
    if (wanted.options.manager || wanted.trace_device) {
      return wrong_usage(
          "--manager and --trace-device; expected with --to json only of a recorded history: a post-mortem is whole");
    }
    return write_as_post_mortem(source, file, output_failed);
  }
  auto records = open_records(source, wanted);
  if (!records) return tl::unexpected{std::move(records.error())};
  std::atomic<std::uint64_t> events{0};  // written by convert(), read by the progress line; relaxed: only a figure
  auto options = wanted.options;
  options.progress = &events;
  auto const report = [&] {
    Progress const progress{[&] {
      auto const line = reading_line(source);
      return (line.empty() ? line : line + ", ") + format_count(events.load(std::memory_order_relaxed)) + " events";
    }};
    auto const write = [&](std::string_view bytes) {
      auto taken = file.write(bytes);
      if (!taken) output_failed = true;
      return taken;
    };
    return convert(std::move(*records), wanted.format, write, options);
  }();
  if (!report) return tl::unexpected{report.error()};
  tell_what_is_missing(*report);
  written = report->written;
  return {};
}

ExitCode run_convert(ConvertArguments const& arguments) {
  auto const wanted = read_arguments(arguments);
  if (!wanted) return complain_about(kWho, wanted.error(), ExitCode::usage);
  if (!arguments.output && arguments.input == "-") {
    complain(kWho, "-o is missing; expected a file, or - for standard output, since standard input has no name to go by");
    return ExitCode::usage;
  }
  auto source = Source::open(arguments.input);
  if (!source) return complain_about(kWho, source.error(), ExitCode::broken_input);
  std::error_code unknown;
  if (arguments.output && *arguments.output != "-" && source->is_file() &&
      std::filesystem::equivalent(arguments.input, *arguments.output, unknown)) {
    complain(kWho, "-o " + printable(*arguments.output) + " is the input itself; expected another file");
    return ExitCode::usage;
  }
  auto const numbered = [&](std::uint64_t number) { return default_name(arguments.input, wanted->format, number); };
  auto file = arguments.output ? OutputFile::open(*arguments.output) : OutputFile::open_new(numbered);
  if (!file) return complain_about(kWho, file.error(), ExitCode::usage);
  auto output_failed = false;
  std::uint64_t written = 0;
  if (auto const converted = convert_into(*source, *wanted, *file, output_failed, written); !converted) {
    auto const is_usage = output_failed || converted.error().kind == ErrorKind::invalid_argument ||
                          converted.error().kind == ErrorKind::unsupported;
    return complain_about(kWho, converted.error(), is_usage ? ExitCode::usage : ExitCode::broken_input);
  }
  if (auto const whole = source->was_whole(); !whole) return complain_about(kWho, whole.error(), ExitCode::broken_input);
  if (auto const done = file->commit(); !done) return complain_about(kWho, done.error(), ExitCode::usage);
  // Standard output may be what was written into, by whatever name.
  if (!file->is_made()) return ExitCode::good;
  auto const size = std::filesystem::file_size(file->name(), unknown);
  std::cout << "wrote " << printable(file->name()) << (unknown ? std::string{} : " (" + format_bytes(size) + ")") << '\n';
  return ExitCode::good;
}

}  // namespace

Subcommand add_convert(CLI::App& app) {
  auto const arguments = std::make_shared<ConvertArguments>();
  auto* const convert = app.add_subcommand("convert", "Write what a file recorded in the formats of other tools");
  convert
      ->add_option("file", arguments->input,
                   "A flight file of a living or dead process, a post-mortem, or a recorded history (- is standard input)")
      ->required()
      ->type_name("FILE");
  convert
      ->add_option("--to", arguments->to,
                   "chrome: a trace for Perfetto, chrome://tracing and Tracy; torch: a snapshot for PyTorch's memory_viz; csv: "
                   "RMM's log; folded: stacks for flame graphs; json: a history's events, or a post-mortem")
      ->required()
      ->type_name("FORMAT");
  convert
      ->add_option("-o,--output", arguments->output,
                   "Write to this file (- is standard output; default: the input's name with the format's ending, here)")
      ->type_name("FILE");
  convert->add_option("--manager", arguments->manager, "Only the managers of this name")->type_name("NAME");
  convert->add_option("--at", arguments->at, "Of folded: end (default): what is live, or was at the end; peak: at the peak")
      ->type_name("WHEN");
  convert->add_option("--trace-device", arguments->trace_device, kTraceDeviceHelp)->type_name("N");
  convert->footer(
      "What a file is, is told by its content, never by its name. A file is complete under its name, or not there. What no "
      "record\n"
      "tells (rings hold the newest ones) is said on stderr; what is live at the end is right all the same.\n"
      "\n"
      "Examples:\n"
      "  headroom convert /dev/shm/headroom-1000/train.4711.0123456789abcdef.flight --to chrome -o train.json\n"
      "  headroom convert resnet.csv.xz --to folded --at peak -o - | flamegraph.pl > peak.svg\n"
      "  headroom convert before.post-mortem.json --to csv --manager main\n"
      "\n"
      "Exit status: 0 good, 2 wrong usage, or it cannot be written, 3 the file cannot be read.\n");
  return {.app = convert, .run = [arguments] { return run_convert(*arguments); }};
}

}  // namespace headroom::command
