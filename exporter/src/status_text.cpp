#include "status_text.hpp"

#include <algorithm>
#include <string_view>

#include <headroom/byte_size.hpp>

#include "labels.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kNameColumn = 24;
constexpr std::size_t kFigureColumn = 12;

/// Columns as a terminal counts them, roughly: one for each character, whatever its bytes.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

std::string padded(std::string text, std::size_t width) {
  text.append(std::max(width, columns(text) + 1) - columns(text), ' ');
  return text;
}

std::string one_line(std::string_view name) {
  std::string text = safe_label_value(name);
  std::ranges::replace_if(text, [](char character) { return character == '\n' || character == '\t'; }, ' ');
  return text.empty() ? "(no name)" : text;
}

std::string ledger_line(flight::LedgerSnapshot const& ledger) {
  const auto device = ledger.device_ordinal >= 0 ? std::to_string(ledger.device_ordinal) : one_line(ledger.device_name);
  std::string line = padded(one_line(ledger.name), kNameColumn) + padded(device, kFigureColumn);
  line += padded(format_bytes(ledger.allocated), kFigureColumn);
  line += padded(ledger.limit ? format_bytes(*ledger.limit) : "unlimited", kFigureColumn);
  line += padded(format_bytes(std::max(ledger.peak, ledger.allocated)), kFigureColumn);
  line += padded(std::string{to_string(ledger.pressure)}, kFigureColumn);
  line += format_count(ledger.live_allocations);
  if (ledger.limit && !ledger.enforcing) line += "  (the budget is only observed)";
  return line + "\n";
}

}  // namespace

std::string status_text(flight::ProcessInfo const* process, std::span<flight::LedgerSnapshot const> ledgers,
                        std::uint64_t errors) {
  std::string text = "headroom " HEADROOM_VERSION ": GPU memory of ";
  text += process == nullptr ? "this process"
                             : one_line(process->program) + " (pid " + std::to_string(process->pid) + ", run " +
                                   flight::short_run(process->run) + ")";
  text +=
      "\n\n"
      "  /metrics     for Prometheus\n"
      "  /-/healthy   200 while the exporter serves\n\n";

  const bool has_manager = std::ranges::any_of(ledgers, [](auto const& ledger) { return !ledger.is_device_account; });
  if (!has_manager) {
    text += "No manager yet.\n";
  } else {
    text += padded("manager", kNameColumn);
    for (const char* title : {"device", "used", "budget", "peak", "pressure"}) text += padded(title, kFigureColumn);
    text += "live\n";
    for (auto const& ledger : ledgers) {
      if (!ledger.is_device_account) text += ledger_line(ledger);
    }
  }
  if (errors != 0) text += "\nThe exporter met " + format_count(errors) + " errors; see headroom_exporter_errors_total.\n";
  return text;
}

}  // namespace headroom::exporter
