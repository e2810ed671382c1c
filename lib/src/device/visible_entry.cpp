#include "device/visible_entry.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <utility>

#include "base/pci_address.hpp"
#include "base/quoted.hpp"

namespace headroom::device {
namespace {

constexpr std::string_view kGpuPrefix = "GPU-", kMigPrefix = "MIG-";

VisibleEntry invalid(VisibleForm form) { return {.form = form, .outcome = VisibleOutcome::invalid}; }
VisibleEntry unknown(VisibleForm form, std::string why) {
  return {.form = form, .outcome = VisibleOutcome::unknown, .why = std::move(why)};
}
VisibleEntry resolved(VisibleForm form, GpuMatch match) {
  return {.form = form, .outcome = VisibleOutcome::resolved, .match = match};
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  auto const first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_digit(char character) noexcept { return character >= '0' && character <= '9'; }

char lower(char character) noexcept {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

bool starts_like(std::string_view text, std::string_view beginning) noexcept {
  return text.size() >= beginning.size() && std::ranges::equal(text.substr(0, beginning.size()), beginning, {}, &lower, &lower);
}

bool is_whole(GpuDevice const& gpu) noexcept { return gpu.mig == MigMode::disabled || gpu.mig == MigMode::unsupported; }

/// What naming a whole GPU shows: itself, or of a partitioned one an instance.
VisibleEntry whole_gpu(VisibleForm form, std::span<GpuDevice const> gpus, std::size_t position) {
  auto const& gpu = gpus[position];
  if (is_whole(gpu)) return resolved(form, {.gpu = position, .mig_instance = {}});
  if (gpu.mig == MigMode::unknown)
    return unknown(form, "whether GPU " + std::to_string(gpu.index) + " is partitioned is unknown");
  if (gpu.mig_instances.size() == 1 && gpu.mig_instances_complete) return resolved(form, {.gpu = position, .mig_instance = 0});
  return unknown(form, "GPU " + std::to_string(gpu.index) + " is partitioned, and CUDA shows one of its instances");
}

bool all_uuids_known(std::span<GpuDevice const> gpus) {
  return std::ranges::none_of(gpus, [](GpuDevice const& gpu) { return gpu.uuid.empty(); });
}

/// `GPU-…`: a UUID or its beginning.
VisibleEntry read_gpu(std::string_view text, std::span<GpuDevice const> gpus) {
  constexpr auto kForm = VisibleForm::gpu;
  if (text == kGpuPrefix) return unknown(kForm, "'GPU-' has no digit of a UUID");
  std::vector<std::size_t> found;
  bool is_like_one = false;
  for (std::size_t position = 0; position < gpus.size(); ++position) {
    auto const& uuid = gpus[position].uuid;
    if (uuid == text) return whole_gpu(kForm, gpus, position);
    if (uuid.starts_with(text)) found.push_back(position);
    is_like_one = is_like_one || starts_like(uuid, trimmed(text));
  }
  if (found.size() > 1) return invalid(kForm);
  if (!all_uuids_known(gpus)) return unknown(kForm, "the UUID of a GPU is unknown, and " + in_quotes(text) + " may be its");
  if (found.size() == 1) return whole_gpu(kForm, gpus, found.front());
  if (is_like_one) return unknown(kForm, "whether blanks and capitals matter in " + in_quotes(text) + " is documented nowhere");
  return invalid(kForm);
}

std::optional<std::uint32_t> number_in(std::string_view text) noexcept {
  std::uint32_t value = 0;
  auto const* const end = text.data() + text.size();
  auto const [stopped, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc{} && stopped == end ? std::optional{value} : std::nullopt;
}

/// `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`; `text` is what follows `MIG-`.
VisibleEntry read_old_mig(std::string_view text, std::span<GpuDevice const> gpus) {
  constexpr auto kForm = VisibleForm::mig;
  auto const first = text.find('/');
  auto const second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos) return invalid(kForm);
  auto const uuid = text.substr(0, first);
  auto const gpu_instance = number_in(text.substr(first + 1, second - first - 1));
  auto const compute_instance = number_in(text.substr(second + 1));
  if (!gpu_instance || !compute_instance) return invalid(kForm);
  auto const gpu = std::ranges::find(gpus, uuid, &GpuDevice::uuid);
  if (gpu == gpus.end()) {
    bool const may_be_one =
        !all_uuids_known(gpus) || std::ranges::any_of(gpus, [uuid](auto const& other) { return starts_like(other.uuid, uuid); });
    return may_be_one ? unknown(kForm, "which GPU " + in_quotes(text) + " means is unknown") : invalid(kForm);
  }
  auto const position = static_cast<std::size_t>(gpu - gpus.begin());
  bool has_unknown_ids = !gpu->mig_instances_complete || gpu->mig == MigMode::unknown;
  for (std::size_t place = 0; place < gpu->mig_instances.size(); ++place) {
    auto const& instance = gpu->mig_instances[place];
    if (instance.gpu_instance == gpu_instance && instance.compute_instance == compute_instance) {
      return resolved(kForm, {.gpu = position, .mig_instance = place});
    }
    has_unknown_ids = has_unknown_ids || !instance.gpu_instance || !instance.compute_instance;
  }
  return has_unknown_ids ? unknown(kForm, "which instance " + in_quotes(text) + " means is unknown") : invalid(kForm);
}

/// `MIG-…`
VisibleEntry read_mig(std::string_view text, std::span<GpuDevice const> gpus) {
  constexpr auto kForm = VisibleForm::mig;
  auto const rest = text.substr(kMigPrefix.size());
  if (rest.starts_with(kGpuPrefix)) return read_old_mig(rest, gpus);
  bool is_like_one = false, is_complete = true;
  for (std::size_t position = 0; position < gpus.size(); ++position) {
    auto const& gpu = gpus[position];
    is_complete = is_complete && gpu.mig_instances_complete && gpu.mig != MigMode::unknown;
    for (std::size_t place = 0; place < gpu.mig_instances.size(); ++place) {
      auto const& uuid = gpu.mig_instances[place].uuid;
      if (uuid == text) return resolved(kForm, {.gpu = position, .mig_instance = place});
      is_like_one = is_like_one || starts_like(uuid, trimmed(text));
    }
  }
  // The guide abbreviates UUIDs of GPUs only.
  if (is_like_one)
    return unknown(kForm, "whether " + in_quotes(text) + " is taken for the instance it begins like is documented nowhere");
  return is_complete ? invalid(kForm)
                     : unknown(kForm, "not all instances are known, and " + in_quotes(text) + " may be one of them");
}

VisibleEntry read_index(std::string_view entry, IndexOrder const& order) {
  auto const text = trimmed(entry);
  bool const is_negative = text.starts_with('-');
  auto const digits = text.substr(is_negative ? 1 : 0);
  auto const begins_as_number = !text.empty() && (is_digit(text.front()) || text.front() == '+' || is_negative);
  if (!begins_as_number || digits.empty()) return invalid(VisibleForm::index);
  auto const number = number_in(digits);
  bool const is_plain = number && *number <= std::uint32_t{std::numeric_limits<std::int32_t>::max()} &&
                        (digits.size() == 1 || digits.front() != '0');
  if (!is_plain) {
    if (is_negative && !is_digit(digits.front())) return invalid(VisibleForm::index);
    return unknown(VisibleForm::index, "how the driver reads the number " + in_quotes(text) + " is documented nowhere");
  }
  if (is_negative && *number != 0) return invalid(VisibleForm::index);
  if (is_negative) return unknown(VisibleForm::index, "whether the driver takes '-0' for 0 is documented nowhere");
  return order.entry_of(*number);
}

bool are_equal_cards(std::span<GpuDevice const> gpus) {
  auto const& first = gpus.front();
  return std::ranges::all_of(gpus, [&first](GpuDevice const& gpu) {
    return !gpu.name.empty() && gpu.name == first.name && gpu.memory.physical_total &&
           gpu.memory.physical_total == first.memory.physical_total;
  });
}

}  // namespace

IndexOrder::IndexOrder(std::span<GpuDevice const> gpus, std::optional<std::string> const& device_order) : gpus_(gpus) {
  // A GPU that NVML cannot read may be one that CUDA does not show, and then all behind it have other indices.
  if (!all_uuids_known(gpus)) {
    why_ = "a GPU cannot be read, so that the order of the others is unknown";
    return;
  }
  std::vector<PciAddress> addresses;
  for (auto const& gpu : gpus) {
    if (auto const address = parse_pci_address(gpu.pci_address)) addresses.push_back(*address);
  }
  bool const by_bus = device_order == "PCI_BUS_ID";
  if (gpus.size() > 1 && addresses.size() != gpus.size()) {
    why_ = "the PCI address of a GPU is unknown";
  } else if (gpus.size() > 1 && !by_bus && !are_equal_cards(gpus)) {
    why_ = "the GPUs differ, and without CUDA_DEVICE_ORDER=PCI_BUS_ID the driver numbers them by a heuristic";
  } else {
    order_.resize(gpus.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (gpus.size() > 1) std::ranges::sort(order_, {}, [&addresses](std::size_t position) { return addresses[position]; });
    auto const partitioned = std::ranges::find_if(order_, [gpus](std::size_t position) { return !is_whole(gpus[position]); });
    whole_ = static_cast<std::size_t>(partitioned - order_.begin());
  }
}

VisibleEntry IndexOrder::entry_of(std::uint32_t index) const {
  if (index >= gpus_.size()) {
    // One that cannot be read is in the list all the same, so that CUDA cannot have more.
    return invalid(VisibleForm::index);
  }
  VisibleEntry entry;
  if (order_.empty()) {
    entry = unknown(VisibleForm::index, why_);
  } else if (index < whole_ || gpus_.size() == 1) {
    entry = whole_gpu(VisibleForm::index, gpus_, order_[index]);
  } else {
    // Whether CUDA counts a partitioned GPU that has no instance is documented nowhere, and an instance hides every GPU.
    entry = unknown(VisibleForm::index, "a GPU before index " + std::to_string(index) + ", or at it, is partitioned");
  }
  entry.index = index;
  return entry;
}

VisibleEntry read_visible_entry(std::string_view text, std::span<GpuDevice const> gpus, IndexOrder const& order) {
  if (text.starts_with(kGpuPrefix)) return read_gpu(text, gpus);
  if (text.starts_with(kMigPrefix)) return read_mig(text, gpus);
  // A form behind blanks or in other letters: only what could never be meant is certainly invalid.
  auto const bare = trimmed(text);
  if (starts_like(bare, kGpuPrefix) || starts_like(bare, kMigPrefix)) {
    std::string usual{bare};
    std::ranges::transform(usual.substr(0, kGpuPrefix.size()), usual.begin(), [](char character) {
      return character >= 'a' && character <= 'z' ? static_cast<char>(character - 'a' + 'A') : character;
    });
    auto entry = read_visible_entry(usual, gpus, order);
    if (entry.outcome != VisibleOutcome::invalid) {
      entry = unknown(entry.form, "whether blanks and capitals matter in " + in_quotes(text) + " is documented nowhere");
    }
    return entry;
  }
  return read_index(text, order);
}

}  // namespace headroom::device
