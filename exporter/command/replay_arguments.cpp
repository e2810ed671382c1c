#include "command/replay_arguments.hpp"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/flight_format.hpp>

#include "command/arguments.hpp"
#include "command/output.hpp"
#include "command/source.hpp"

namespace headroom::command {
namespace {

/// The largest device there is: only the budget refuses, whatever the history.
constexpr std::uint64_t kLargestDevice = std::uint64_t{16} << 40U;

/// `result`, with the option's name in front of its message.
template <class T>
[[nodiscard]] Result<T> named(std::string_view option, Result<T> result) {
  if (!result) result.error().message = std::string{option} + ' ' + result.error().message;
  return result;
}

template <class Value, std::size_t N>
[[nodiscard]] Result<Value> one_of(std::string_view option, std::string_view text,
                                   std::array<std::pair<std::string_view, Value>, N> const& choices) {
  std::string expected;
  for (auto const& [word, value] : choices) {
    if (text == word) return value;
    expected += (expected.empty() ? "" : " or ") + std::string{word};
  }
  return fail(ErrorKind::invalid_argument, Layer::request,
              std::string{option} + " '" + printable(text) + "'; expected " + expected);
}

/// Absent: the host.
[[nodiscard]] Result<std::optional<std::int32_t>> read_device(std::string_view text) {
  if (text == "host") return std::optional<std::int32_t>{};
  auto const ordinal = text.starts_with("cuda:") ? text.substr(5) : std::string_view{};
  std::int32_t value = 0;
  auto const [end, problem] = std::from_chars(ordinal.data(), ordinal.data() + ordinal.size(), value);
  // from_chars takes a sign; an ordinal has none.
  if (ordinal.empty() || ordinal.front() == '-' || problem != std::errc{} || end != ordinal.data() + ordinal.size()) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                "--device '" + printable(text) + "'; expected host or cuda:N, such as cuda:0");
  }
  return std::optional{value};
}

/// An option that only one kind of device has.
[[nodiscard]] Result<void> refuse_unless(bool fits, std::string_view option, std::optional<std::string> const& text,
                                         std::string_view devices) {
  if (fits || !text) return {};
  return fail(ErrorKind::invalid_argument, Layer::request,
              std::string{option} + " '" + printable(*text) + "'; expected only with " + std::string{devices});
}

[[nodiscard]] Result<MemoryBudget> read_budget(std::string_view text, std::optional<std::uint64_t> device_total) {
  auto const budget = named("--budget", parse_budget(text, device_total));
  if (!budget) return tl::unexpected{budget.error()};
  if (budget->unlimited) return MemoryBudget::unlimited();
  if (budget->bytes > flight::kBytesMask) {
    return fail(ErrorKind::overflow, Layer::request,
                "--budget '" + printable(text) + "'; expected at most 16 TiB - 1, the largest figure of a ledger, or unlimited");
  }
  return MemoryBudget::with_limit(budget->bytes);
}

/// Reads an option into `target` unless it was left out.
template <class Target, class Parser>
[[nodiscard]] Result<void> read_into(Target& target, std::string_view option, std::optional<std::string> const& text,
                                     Parser const& parse) {
  if (!text) return {};
  auto value = named(option, parse(*text));
  if (!value) return tl::unexpected{std::move(value.error())};
  target = *value;
  return {};
}

}  // namespace

void add_replay_options(CLI::App& app, ReplayArguments& arguments) {
  app.add_option("trace", arguments.trace, kTraceHelp)->required()->type_name("TRACE");
  app.add_option("--budget", arguments.budget, "What the job may hold at once, such as 2GiB; unlimited (default) refuses nothing")
      ->type_name("SIZE");
  app.add_option("--device", arguments.device,
                 "host (default): a stand-in that gives out addresses without memory; cuda:N: the GPU that CUDA shows as N")
      ->type_name("DEVICE");
  app.add_option("--allocator", arguments.allocator,
                 "Of a GPU: async (default), stream-ordered from a pool; direct, cudaMalloc and cudaFree")
      ->type_name("HOW");
  app.add_option("--device-total", arguments.device_total, "Memory of the host device (default 16 TiB: only the budget refuses)")
      ->type_name("SIZE");
  app.add_option("--speed", arguments.speed, "max (default), or a factor: 1x as recorded, 0.1x ten times slower")
      ->type_name("FACTOR");
  app.add_option("--stretch", arguments.stretch, "Make one loop last this long, such as 30s; wins over --speed")
      ->type_name("TIME");
  app.add_option("--loop", arguments.loop, "How often (default 1), or forever; what a loop leaves live is freed before the next")
      ->type_name("N");
  app.add_option("--order", arguments.order,
                 "file (default): exactly as recorded, with a thread for each recorded one; free: each thread at its own pace")
      ->type_name("ORDER");
  app.add_option(
         "--tag", arguments.tag,
         "Tag allocations by: recorded (default where a snapshot has tags), size (default otherwise), thread, stream or none")
      ->type_name("BY");
  app.add_option("--trace-device", arguments.trace_device, kTraceDeviceHelp)->type_name("N");
  app.add_option("--stop-after", arguments.stop_after, "Stop after N records; what is live then stays live")->type_name("N");
  app.add_option("--hold", arguments.hold, "Hold what is live for so long after the replay, to be looked at")->type_name("TIME");
  app.add_option("--seconds", arguments.seconds, "Stop the whole after this time")->type_name("TIME");
  app.add_option("--listen", arguments.listen, "Serve /metrics meanwhile: HOST:PORT, :PORT or PORT; port 0 is any free one")
      ->type_name("ADDR");
  app.add_option("--bind", arguments.bind, "When that port is taken: warn (default) and go on, fail, or next free one")
      ->type_name("POLICY");
  app.add_option(
         "--hook", arguments.hooks,
         "A hook that holds SIZE and frees it when a request does not fit: NAME:SIZE:PRIORITY[:OVERHEAD]; any number of them")
      ->type_name("HOOK")
      ->allow_extra_args(false);
  app.add_option("--policy", arguments.policy, "What follows the hooks: fail (default), retry, wait:MS or checkpoint")
      ->type_name("POLICY");
  app.add_flag("--keep", arguments.keep, "Keep the flight file, for `headroom summary`");
  app.add_flag("--json", arguments.json, "Print the figures as one JSON object");
}

Result<ReplayPlan> plan_replay(ReplayArguments const& arguments) {
  ReplayPlan plan;
  std::optional<std::uint64_t> device_total;
  std::optional<std::chrono::nanoseconds> hold;
  auto const size = [](std::string_view text) { return parse_byte_size(text); };
  auto const count = [](std::string_view text) { return parse_count(text, 0); };
  auto const loops = [](std::string_view text) -> Result<std::uint64_t> {
    if (text == "forever") return kReplayForever;
    auto parsed = parse_count(text, 1);
    if (!parsed) parsed.error().message += ", or forever";
    return parsed;
  };
  auto const device = read_device(arguments.device);
  if (!device) return tl::unexpected{device.error()};
  plan.cuda_ordinal = *device;
  auto const good =
      refuse_unless(!plan.cuda_ordinal, "--device-total", arguments.device_total, "--device host")
          .and_then(
              [&] { return refuse_unless(plan.cuda_ordinal.has_value(), "--allocator", arguments.allocator, "--device cuda:N"); })
          .and_then([&] { return read_into(device_total, "--device-total", arguments.device_total, size); })
          .and_then([&] { return read_into(plan.options.speed, "--speed", std::optional{arguments.speed}, parse_speed); })
          .and_then([&] { return read_into(plan.options.stretch, "--stretch", arguments.stretch, parse_duration); })
          .and_then([&] { return read_into(plan.options.loops, "--loop", std::optional{arguments.loop}, loops); })
          .and_then([&] { return read_into(plan.options.stop_after, "--stop-after", arguments.stop_after, count); })
          .and_then([&] { return read_into(hold, "--hold", arguments.hold, parse_duration); })
          .and_then([&] { return read_into(plan.policy, "--policy", arguments.policy, parse_policy); })
          .and_then([&] { return read_into(plan.seconds, "--seconds", arguments.seconds, parse_duration); });
  if (!good) return tl::unexpected{good.error()};

  // A GPU is asked for its total when it is needed: a percentage of it is taken then.
  auto const budget = read_budget(arguments.budget, plan.cuda_ordinal ? std::optional{kLargestDevice} : device_total);
  if (!budget) return tl::unexpected{budget.error()};
  auto const allocator = one_of<CudaAllocator, 2>("--allocator", arguments.allocator.value_or("async"),
                                                  {{{"async", CudaAllocator::async}, {"direct", CudaAllocator::direct}}});
  if (!allocator) return tl::unexpected{allocator.error()};
  auto const order =
      one_of<ReplayOrder, 2>("--order", arguments.order, {{{"file", ReplayOrder::file}, {"free", ReplayOrder::free}}});
  if (!order) return tl::unexpected{order.error()};
  if (arguments.tag) {
    auto const tags = parse_tags(*arguments.tag);
    if (!tags) return tl::unexpected{tags.error()};
    plan.tags = *tags;
  }
  auto const trace_device = parse_trace_device(arguments.trace_device);
  if (!trace_device) return tl::unexpected{trace_device.error()};
  plan.trace_device = *trace_device;
  auto const bind = one_of<BindPolicy, 3>("--bind", arguments.bind,
                                          {{{"warn", BindPolicy::warn}, {"fail", BindPolicy::fail}, {"next", BindPolicy::next}}});
  if (!bind) return tl::unexpected{bind.error()};

  plan.cuda_allocator = *allocator;
  for (auto const& text : arguments.hooks) {
    auto hook = named("--hook", parse_hook(text));
    if (!hook) return tl::unexpected{std::move(hook.error())};
    plan.hooks.push_back(std::move(*hook));
  }

  plan.device_total_bytes = device_total.value_or(kLargestDevice);
  plan.options.order = *order;
  plan.hold = hold.value_or(std::chrono::nanoseconds{0});
  plan.bind = *bind;
  return plan;
}

Result<MemoryBudget> plan_budget(ReplayArguments const& arguments, std::optional<std::uint64_t> device_total) {
  return read_budget(arguments.budget, device_total);
}

}  // namespace headroom::command
