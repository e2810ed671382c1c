// headroom devices: the GPUs of this machine, how their memory is divided, and what stands in the way of knowing. Never uses CUDA.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/gpu_sampler.hpp>
#include <headroom/visible_devices.hpp>

#include "command/figures.hpp"
#include "command/output.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kWho = "headroom devices";
constexpr std::int32_t kDriverNotLoaded = 9, kNoLibrary = 12;  // NVML's codes for a machine without a driver

struct DevicesArguments {
  bool json = false;
  double timeout_seconds = 10;
};

template <class T>
[[nodiscard]] ordered_json value_or_null(std::optional<T> const& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

[[nodiscard]] ordered_json text_or_null(std::string const& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

[[nodiscard]] std::optional<bool> is_visible(VisibleDevices const& visible, GpuMatch const& match) {
  if (visible.ordinal_of(match)) return true;
  return visible.complete ? std::optional{false} : std::nullopt;
}

void add_place(ordered_json& json, VisibleDevices const& visible, GpuMatch const& match) {
  json["visible"] = value_or_null(is_visible(visible, match));
  json["cuda_ordinal"] = value_or_null(visible.ordinal_of(match));
}

void add_memory(ordered_json& json, GpuMemory const& memory) {
  json["physical_total_bytes"] = value_or_null(memory.physical_total);
  json["driver_reserved_bytes"] = value_or_null(memory.driver_reserved);
  json["usable_bytes"] = value_or_null(memory.usable);
  json["free_bytes"] = value_or_null(memory.free);
}

[[nodiscard]] ordered_json gpu_json(GpuDevice const& gpu, std::size_t position, VisibleDevices const& visible) {
  ordered_json json;
  json["index"] = gpu.index;
  json["uuid"] = text_or_null(gpu.uuid);
  json["pci_address"] = text_or_null(gpu.pci_address);
  json["name"] = text_or_null(gpu.name);
  add_place(json, visible, {.gpu = position, .mig_instance = {}});
  add_memory(json, gpu.memory);
  json["mig"] = std::string{to_string(gpu.mig)};
  auto instances = ordered_json::array();
  for (std::size_t place = 0; place < gpu.mig_instances.size(); ++place) {
    auto const& instance = gpu.mig_instances[place];
    ordered_json entry;
    entry["uuid"] = text_or_null(instance.uuid);
    entry["gpu_instance"] = value_or_null(instance.gpu_instance);
    entry["compute_instance"] = value_or_null(instance.compute_instance);
    add_place(entry, visible, {.gpu = position, .mig_instance = place});
    add_memory(entry, instance.memory);
    instances.push_back(std::move(entry));
  }
  json["mig_instances"] = std::move(instances);
  json["problem"] = text_or_null(gpu.problem);
  return json;
}

void print_json(std::vector<GpuDevice> const& gpus, VisibleDevices const& visible, std::optional<Error> const& error) {
  ordered_json json;
  json["devices"] = ordered_json::array();
  for (std::size_t position = 0; position < gpus.size(); ++position) {
    json["devices"].push_back(gpu_json(gpus[position], position, visible));
  }
  json["visible_note"] = text_or_null(visible.note);
  json["error"] = nullptr;
  if (error) json["error"] = {{"nvml_code", error->device_code}, {"message", error->message}};
  print_json_line(json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

[[nodiscard]] std::string bytes_or_unknown(std::optional<std::uint64_t> const& bytes) {
  return bytes ? format_bytes(*bytes) : "?";
}

/// CUDA's ordinal, "hidden", or "?".
[[nodiscard]] std::string cuda_cell(VisibleDevices const& visible, GpuMatch const& match) {
  if (auto const ordinal = visible.ordinal_of(match)) return std::to_string(*ordinal);
  return visible.complete ? "hidden" : "?";
}

void print_table(std::vector<GpuDevice> const& gpus, VisibleDevices const& visible) {
  using enum Table::Align;
  Table table{{{"GPU", right},
               {"CUDA", right},
               {"UUID", left},
               {"PCI", left},
               {"NAME", left},
               {"PHYSICAL", right},
               {"RESERVED", right},
               {"USABLE", right},
               {"FREE", right}}};
  auto const add = [&](GpuMatch const& match, std::string index, std::string const& name) {
    auto const& uuid = uuid_of(gpus, match);
    auto const& memory = memory_of(gpus, match);
    auto const& address = gpus[match.gpu].pci_address;
    table.add({std::move(index), cuda_cell(visible, match), uuid.empty() ? "?" : printable(uuid),
               address.empty() ? "?" : printable(address), name.empty() ? "?" : printable(name),
               bytes_or_unknown(memory.physical_total), bytes_or_unknown(memory.driver_reserved), bytes_or_unknown(memory.usable),
               bytes_or_unknown(memory.free)});
  };
  for (std::size_t position = 0; position < gpus.size(); ++position) {
    auto const& gpu = gpus[position];
    add({.gpu = position, .mig_instance = {}}, std::to_string(gpu.index), gpu.name);
    for (std::size_t place = 0; place < gpu.mig_instances.size(); ++place) {
      auto const& instance = gpu.mig_instances[place];
      auto const number = [](std::optional<std::uint32_t> const& id) { return id ? std::to_string(*id) : std::string{"?"}; };
      add({.gpu = position, .mig_instance = place}, "",
          "instance " + number(instance.gpu_instance) + "/" + number(instance.compute_instance));
    }
  }
  table.print(std::cout);
}

/// A machine without a driver is an answer; a driver, or a GPU, that does not answer is a finding.
[[nodiscard]] ExitCode exit_code_for(std::optional<Error> const& error, std::vector<GpuDevice> const& gpus) {
  auto const lacks_driver = error && (error->device_code == kNoLibrary || error->device_code == kDriverNotLoaded);
  auto const is_whole = std::ranges::all_of(gpus, &std::string::empty, &GpuDevice::problem);
  return is_whole && (!error || lacks_driver) ? ExitCode::good : ExitCode::finding;
}

ExitCode run_devices(DevicesArguments const& arguments) {
  auto const patience = std::chrono::milliseconds{static_cast<std::int64_t>(arguments.timeout_seconds * 1e3)};
  // Its age counts from the beginning of the reading, which is as old as we were patient.
  GpuSampler sampler{GpuSampler::nvml(), {.fresh = {}, .patience = patience, .max_age = patience + std::chrono::seconds{60}}};
  auto const sample = sampler.sample();
  std::vector<GpuDevice> const none;
  auto const& gpus = sample ? sample->devices : none;
  auto error = sample ? sample->error : std::nullopt;
  if (!sample) {
    error = make_error(ErrorKind::driver, Layer::driver,
                       "the driver did not answer within " + format_seconds(arguments.timeout_seconds) + "; see --timeout");
  }
  auto const visible = resolve_visible_devices(VisibilityEnvironment::of_this_process(), gpus);
  auto const code = exit_code_for(error, gpus);
  if (arguments.json) {
    print_json(gpus, visible, error);
  } else if (error) {
    if (code == ExitCode::good) std::cout << "no GPUs: " << printable(error->message) << '\n';
  } else if (gpus.empty()) {
    std::cout << "no GPUs: the NVIDIA driver is there and finds none\n";
  } else {
    print_table(gpus, visible);
    if (!visible.note.empty()) std::cout << "CUDA: " << printable(visible.note) << '\n';
  }
  std::cout << std::flush;
  if (error && code != ExitCode::good) complain(kWho, printable(error->message));
  for (auto const& gpu : gpus) {
    if (!gpu.problem.empty()) complain(kWho, "GPU " + std::to_string(gpu.index) + ": " + printable(gpu.problem));
  }
  // A thread that hangs in the driver would be waited for at the end, and its library taken down under it.
  if (!sample) std::_Exit(static_cast<int>(code));
  return code;
}

}  // namespace

Subcommand add_devices(CLI::App& app) {
  auto const arguments = std::make_shared<DevicesArguments>();
  auto* const devices = app.add_subcommand("devices", "GPUs of this machine: identity, and memory in four figures");
  devices->add_flag("--json", arguments->json, "Print a JSON object: devices, visible_note, error");
  devices->add_option("--timeout", arguments->timeout_seconds, "How long to wait for the driver (default: 10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0));
  devices->footer(
      "PHYSICAL is all memory, RESERVED what the driver keeps of it, USABLE the difference, FREE what nobody has allocated. GPU "
      "is\n"
      "the index of nvidia-smi, CUDA the ordinal under CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as they are set here; `?` is "
      "unknown.\n"
      "The driver's management library is opened, CUDA is not: this takes no memory of any GPU.\n"
      "\n"
      "Examples:\n"
      "  headroom devices\n"
      "  CUDA_VISIBLE_DEVICES=GPU-8932f937 headroom devices --json | jq '.devices[] | select(.visible) | .free_bytes'\n"
      "\n"
      "Exit status: 0 good, also without a driver or a GPU, 1 the driver does not answer as it should, 2 wrong usage.\n");
  return {.app = devices, .run = [arguments] { return run_devices(*arguments); }};
}

}  // namespace headroom::command
