// headroom replay: does this job fit this budget, and what would be refused?
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/cuda_resource.hpp>
#include <headroom/exporter.hpp>
#include <headroom/flight_publish.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/replay.hpp>

#include "command/figures.hpp"
#include "command/history_file.hpp"
#include "command/output.hpp"
#include "command/replay_arguments.hpp"
#include "command/replay_guard.hpp"
#include "command/replay_watch.hpp"
#include "command/source.hpp"
#include "command/stop_signals.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom replay";
using Clock = std::chrono::steady_clock;

/// What a history is replayed on. The device is made here and nowhere else in the command: nothing else makes a CUDA context.
struct ReplayDevice {
  Device device;
  MemoryBudget budget;
  std::vector<StreamId> streams;  // of the device, for each stream of the history
};

/// Addresses without memory, so that a history of any size runs on a laptop; or a GPU.
[[nodiscard]] Result<Device> make_device(ReplayPlan const& plan) {
  if (plan.cuda_ordinal) return cuda_device(*plan.cuda_ordinal, {.allocator = plan.cuda_allocator});
  HostOptions options;
  options.total_bytes = plan.device_total_bytes;
  options.touch_memory = false;
  return host_device(options);
}

[[nodiscard]] Result<std::vector<StreamId>> make_streams(TraceHistory const& history, Device const& device) {
  std::vector<StreamId> streams;
  for (auto const recorded : history.stream_ids()) {
    if (recorded == 0) {
      streams.push_back(StreamId{});
      continue;
    }
    auto const stream = device.resource().create_stream();
    if (!stream) return tl::unexpected{stream.error()};
    streams.push_back(*stream);
  }
  return streams;
}

[[nodiscard]] Result<ReplayDevice> set_up(TraceHistory const& history, ReplayPlan const& plan, ReplayArguments const& arguments) {
  auto device = make_device(plan);
  if (!device) return tl::unexpected{std::move(device.error())};
  // Of the stand-in only a total that was asked for counts: "50%" of what nobody named means nothing.
  auto const has_total = plan.cuda_ordinal || arguments.device_total;
  auto const budget = plan_budget(arguments, has_total ? device->memory_info().total : std::nullopt);
  if (!budget) return tl::unexpected{budget.error()};
  auto streams = make_streams(history, *device);
  if (!streams) return tl::unexpected{std::move(streams.error())};
  return ReplayDevice{.device = *std::move(device), .budget = *budget, .streams = *std::move(streams)};
}

[[nodiscard]] Figures to_figures(ReplayFigures const& replayed, std::optional<EventCounts> const& events) {
  Figures figures{.allocations = replayed.allocations,
                  .frees = replayed.frees,
                  .trace_failures = replayed.trace_failures,
                  .refused = replayed.refused,
                  .unmatched_frees = replayed.unmatched_frees,
                  .peak_bytes = replayed.peak_bytes,
                  .live_bytes = replayed.live_bytes,
                  .live_allocations = replayed.live_allocations,
                  .budget_bytes = replayed.budget_bytes,
                  .claimed_bytes = replayed.claimed_bytes,
                  .elapsed_seconds = replayed.elapsed_seconds,
                  .events_recorded = {},
                  .events_read = {},
                  .events_lost = {},
                  .loop_frees = replayed.loop_frees};
  if (events) {
    figures.events_recorded = events->recorded;
    figures.events_read = events->read;
    figures.events_lost = events->lost;
  }
  return figures;
}

void print_for_people(TraceHistory const& history, ReplayPlan const& plan, ReplayResult const& result,
                      std::optional<EventCounts> const& events) {
  auto const& figures = result.figures();
  auto const requests = figures.allocations + figures.refused;
  auto const is_of_many = figures.loops > 1;
  std::cout << printable(history.name()) << ": "
            << (is_of_many ? "in the last of " + format_count(figures.loops) + " loops " : "")
            << (figures.refused == 0
                    ? painted("all " + format_count(requests) + " allocations granted", Colour::green)
                    : painted(format_count(figures.refused) + " of " + format_count(requests) + " allocations refused",
                              Colour::red))
            << (figures.budget_bytes ? " under a budget of " + format_bytes_exact(*figures.budget_bytes) : " without a budget")
            << (is_of_many ? "; in all loops " + format_count(figures.refused_in_all_loops) + " refused" : "") << '\n';
  Table table{{{"", Table::Align::left}, {"", Table::Align::left}}, "  "};
  table.add({"allocations", format_count(figures.allocations)});
  table.add({"frees", format_count(figures.frees)});
  table.add({"peak", format_bytes_exact(figures.peak_bytes)});
  table.add({"live at the end", counted(figures.live_allocations, "allocation") + ", " + format_bytes_exact(figures.live_bytes)});
  if (figures.trace_failures != 0) table.add({"failed when recorded", format_count(figures.trace_failures)});
  if (figures.unmatched_frees != 0) table.add({"frees without allocation", format_count(figures.unmatched_frees)});
  if (figures.failed_frees != 0) table.add({"failed frees", {format_count(figures.failed_frees), Colour::red}});
  if (figures.loops > 1) {
    table.add({"loops",
               format_count(figures.loops) + ", with " + format_count(figures.loop_frees) + " allocations freed between them"});
  }
  table.add({"time", format_seconds(figures.elapsed_seconds) + ", " + std::string{to_string(plan.options.order)} + " order"});
  if (events) {
    table.add({"events", format_count(events->recorded) + " recorded, " + format_count(events->read) + " read, " +
                             format_count(events->lost) + " lost to this reader"});
  }
  table.print(std::cout);
  if (auto const& refusal = result.first_refusal()) {
    auto const is_from_before = history.format() == TraceFormat::torch_snapshot && refusal->line == 0;
    std::cout << "first refused, "
              << (is_from_before ? std::string{"live before the first entry"}
                                 : std::string{record_word(history.format())} + ' ' + format_count(refusal->line))
              << ": " << printable(refusal->error.to_string()) << '\n';
  }
  std::cout.flush();
}

// What hooks and policy did, over all loops.
void print_help(GuardStats const& stats) {
  std::cout << "short of memory: " << counted(stats.refusals, "request") << ", " << format_count(stats.recoveries)
            << " of them granted after all; " << counted(stats.hooks_run, "hook run") << " freed "
            << format_bytes(stats.bytes_freed_by_hooks) << ", " << counted(stats.waits, "wait") << ", "
            << counted(stats.checkpoints, "checkpoint") << '\n';
  std::cout.flush();
}

void hold(ReplayFigures const& figures, std::chrono::nanoseconds time, std::optional<Clock::time_point> deadline) {
  auto end = Clock::now() + time;
  if (deadline && *deadline < end) end = *deadline;
  complain(kWho, "holding " + format_bytes(figures.live_bytes) + " in " + format_count(figures.live_allocations) +
                     " allocations for " + format_seconds(std::chrono::duration<double>{time}.count()) +
                     "; Ctrl-C ends it (pid " + std::to_string(::getpid()) + ')');
  while (!stop_flag().load(std::memory_order_relaxed) && Clock::now() < end) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(std::chrono::milliseconds{50}, end - Clock::now()));
  }
}

/// Says at once where to scrape. Nothing when it cannot be served and the replay goes on all the same: the exporter has said why.
[[nodiscard]] Result<std::optional<Exporter>> serve(std::optional<std::string> const& listen, BindPolicy policy) {
  if (!listen) return std::optional<Exporter>{};
  ExporterOptions options;
  options.listen = *listen;
  options.policy = policy;
  auto exporter = Exporter::start(options);
  if (!exporter) return tl::unexpected{std::move(exporter.error())};
  if (exporter->port() != 0) complain(kWho, "serving " + exporter->url() + "/metrics");
  return std::optional<Exporter>{std::move(*exporter)};
}

/// With --keep: managers that close take their figures with them, so these two stay until the process ends, and the file shows
/// what was live when the replay was over.
struct Kept {
  GpuMemoryManager manager;
  ReplayResult result;
};

void keep_for_ever(GpuMemoryManager const& manager, ReplayResult result) {
  // Deliberately never destroyed; the static keeps leak checkers content.
  static Kept* const kept = std::make_unique<Kept>(Kept{.manager = manager, .result = std::move(result)}).release();
  static_cast<void>(kept);
}

ExitCode run_replay(ReplayArguments const& arguments) {
  auto const started = Clock::now();
  auto plan = plan_replay(arguments);
  if (!plan) return complain_about(kWho, plan.error(), ExitCode::usage);
  auto source = Source::open(arguments.trace);
  if (!source) return complain_about(kWho, source.error(), ExitCode::broken_input);
  auto const history = load_history(*source, plan->trace_device);
  if (!history) return complain_about(kWho, history.error(), exit_code_for(history.error()));
  plan->options.tags = plan->tags.value_or(history->default_tags());
  auto const device = set_up(*history, *plan, arguments);
  if (!device) return complain_about(kWho, device.error(), ExitCode::usage);

  auto manager = GpuMemoryManager::create(device->device, device->budget, "replay");
  if (!manager) return complain_about(kWho, manager.error(), ExitCode::usage);
  std::unique_ptr<ReplayGuard> guarded;
  if (!plan->hooks.empty() || plan->policy) {
    auto made = ReplayGuard::make(*manager, plan->hooks, plan->policy.value_or(OomPolicy::fail()));
    if (!made) {
      made.error().message = "--hook: " + made.error().to_string();
      return complain_about(kWho, made.error(), ExitCode::usage);
    }
    guarded = std::move(*made);
    plan->options.guard = guarded->guard();
  }
  if (arguments.keep) flight::keep_file(true);
  catch_stop_signals();  // before it says that it serves: whoever waits for that may signal at once
  auto const exporter = serve(arguments.listen, plan->bind);
  if (!exporter) return complain_about(kWho, exporter.error(), ExitCode::usage);

  auto const deadline = plan->seconds ? std::optional{started + *plan->seconds} : std::nullopt;
  ReplayWatch watch{
      flight::FlightView::of_this_process(),
      {.deadline = deadline, .draws = draws_on_stderr(), .events = history->events(), .loops = plan->options.loops}};
  plan->options.streams = device->streams;
  plan->options.stop = &stop_flag();
  plan->options.progress = watch.progress();
  auto result = replay(*history, *manager, plan->options);
  auto const events = watch.finish();
  if (!result) return complain_about(kWho, result.error(), ExitCode::usage);

  auto const figures = result->figures();
  if (stop_flag().load(std::memory_order_relaxed)) {
    complain(kWho, stop_signal() != 0 ? "stopped by a signal; the figures are those of the loop it stopped in"
                                      : "stopped when its time was over; the figures are those of the loop it stopped in");
  }
  if (arguments.json) {
    print_json_line(to_json(to_figures(figures, events)));
  } else {
    print_for_people(*history, *plan, *result, events);
    if (guarded) print_help(guarded->guard().stats());
  }
  if (arguments.keep && !flight::own_file().empty()) complain(kWho, "the flight file stays: " + flight::own_file());
  if (plan->hold.count() > 0 && !stop_flag().load(std::memory_order_relaxed)) hold(figures, plan->hold, deadline);
  if (arguments.keep) keep_for_ever(*manager, std::move(*result));
  return figures.refused_in_all_loops + figures.failed_frees == 0 ? ExitCode::good : ExitCode::finding;
}

}  // namespace

Subcommand add_replay(CLI::App& app) {
  auto const arguments = std::make_shared<ReplayArguments>();
  auto* const replay = app.add_subcommand("replay", "Drive a recorded history through a manager: does it fit a budget?");
  add_replay_options(*replay, *arguments);
  replay->footer(
      "A refused allocation's free is skipped. Figures are those of one loop, the last; loop_frees alone counts over all loops.\n"
      "\n"
      "Examples:\n"
      "  headroom replay resnet.csv.xz --budget 2GiB\n"
      "  headroom replay resnet.csv.xz --budget 3GiB --loop forever --stretch 30s --listen 127.0.0.1:9478\n"
      "  headroom replay resnet.csv.xz --stop-after 4000 --hold 30s --json\n"
      "  headroom replay gpt2.csv.xz --device cuda:0 --budget 80%\n"
      "  headroom replay resnet.csv.xz --budget 3GiB --hook cache:512MiB:1 --hook spill:1GiB:2:64MiB --policy wait:50\n"
      "\n"
      "Exit status: 0 everything was granted, 1 something was refused, 2 wrong usage or no such device, 3 the history cannot be "
      "read.\n");
  return {.app = replay, .run = [arguments] { return run_replay(*arguments); }};
}

}  // namespace headroom::command
