#include "status_text.hpp"

#include <algorithm>
#include <string_view>

#include <headroom/byte_size.hpp>
#include <headroom/pressure.hpp>

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

std::string named(flight::ProcessInfo const& process) {
  return one_line(process.program) + " (pid " + std::to_string(process.pid) + ", run " + flight::short_run(process.run) + ")";
}

/// A line about errors of the exporter, if there were any.
std::string errors_line(std::uint64_t errors) {
  if (errors == 0) return {};
  return "\nThe exporter met " + format_count(errors) + " errors; see headroom_exporter_errors_total.\n";
}

std::string process_line(Look const& look, std::size_t name_column) {
  const bool is_limited =
      std::ranges::all_of(look.ledgers, [](auto const& ledger) { return ledger.is_device_account || ledger.limit; });
  std::uint64_t allocated = 0, budget = 0, peak = 0, failures = 0;
  auto pressure = PressureLevel::none;
  bool has_manager = false;
  for (auto const& ledger : look.ledgers) {
    if (ledger.is_device_account) continue;
    has_manager = true;
    allocated += ledger.allocated;
    budget += ledger.limit.value_or(0);
    peak += std::max(ledger.peak, ledger.allocated);
    failures += ledger.failures();
    pressure = std::max(pressure, ledger.pressure);
  }
  std::string line = padded(named(look.process), name_column) + padded(format_bytes(allocated), kFigureColumn);
  line += padded(!has_manager ? "–" : is_limited ? format_bytes(budget) : "unlimited", kFigureColumn);
  line += padded(format_bytes(peak), kFigureColumn) + padded(std::string{to_string(pressure)}, kFigureColumn);
  line += format_count(failures);
  if (look.liveness == flight::Liveness::unknown) line += "  (nobody can tell whether it lives)";
  return line + "\n";
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
  text += process == nullptr ? "this process" : named(*process);
  text +=
      "\n\n"
      "  /                this, and a live page for browsers\n"
      "  /metrics         for Prometheus\n"
      "  /api/state.json  what the page shows\n"
      "  /snapshot.json   the post-mortem of this moment; ?events=0 without its events\n"
      "  /-/healthy       200 while the exporter serves\n\n";

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
  return text + errors_line(errors);
}

std::string status_text(MachineStatus const& status) {
  std::string text = "headroom " HEADROOM_VERSION
                     ": GPU memory of the processes on this machine\n\n"
                     "  /                this, and a live page for browsers\n"
                     "  /metrics         for Prometheus\n"
                     "  /api/state.json  what the page shows\n"
                     "  /snapshot.json   the post-mortem of this moment of ?process=PID; &events=0 without its events\n"
                     "  /-/healthy       200 while the exporter serves\n\n";
  const auto counted = [](std::size_t count) { return format_count(count) + (count == 1 ? " process" : " processes"); };
  text += counted(status.all) + ", and " + format_count(status.ended) + " that ended a moment ago.\n";
  if (status.looks.empty()) return text + errors_line(status.errors);
  const auto shown = status.looks.first(std::min(status.looks.size(), MachineStatus::kMostLines));
  std::size_t name_column = kNameColumn;
  for (auto const& look : shown) name_column = std::max(name_column, columns(named(look.process)) + 2);
  text += "\n" + padded("process", name_column);
  for (const char* title : {"used", "budget", "peak", "pressure"}) text += padded(title, kFigureColumn);
  text += "failed\n";
  for (auto const& look : shown) text += process_line(look, name_column);
  if (status.all > shown.size()) text += "… and " + counted(status.all - shown.size()) + " more\n";
  return text + errors_line(status.errors);
}

}  // namespace headroom::exporter
