#include "flight/liveness.hpp"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "base/utf8.hpp"
#include "flight/alive_lock.hpp"
#include "flight/mapping.hpp"

namespace headroom::flight {
namespace {

/// Nothing when the file cannot be opened.
std::optional<std::string> read_text(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Liveness by_pid_and_boot(FileHeader const& header) {
  auto const boot_id = read_text("/proc/sys/kernel/random/boot_id");
  if (!boot_id) return Liveness::unknown;  // without /proc nothing is known
  if (*boot_id != valid_utf8({header.boot_id, sizeof header.boot_id})) return Liveness::dead;
  auto const stat_line = read_text("/proc/" + std::to_string(header.pid) + "/stat");
  if (!stat_line) return Liveness::dead;
  auto const start_ticks = start_ticks_in(*stat_line);
  if (start_ticks == 0 || header.process_start_ticks == 0) return Liveness::unknown;
  return start_ticks == header.process_start_ticks ? Liveness::living : Liveness::dead;
}

}  // namespace

std::uint64_t start_ticks_in(std::string_view stat_line) noexcept {
  auto at = stat_line.rfind(')');
  for (int field = 2; field < 22 && at != std::string_view::npos; ++field) at = stat_line.find(' ', at + 1);
  if (at == std::string_view::npos) return 0;
  std::uint64_t ticks = 0;
  auto const* const end = stat_line.data() + stat_line.size();
  return std::from_chars(stat_line.data() + at + 1, end, ticks).ec == std::errc{} ? ticks : 0;
}

Liveness liveness_of(MappedFlight const& mapped) {
  if (mapped.origin() == MappedFlight::Origin::this_process) return Liveness::living;
  auto const& header = mapped.header();
  if (static_cast<AliveBy>(header.alive_by) == AliveBy::pid_and_boot) return by_pid_and_boot(header);
  if (static_cast<AliveBy>(header.alive_by) != AliveBy::ofd_lock || mapped.descriptor() < 0) return Liveness::unknown;
  auto const locked = is_locked_by_other(mapped.descriptor());
  if (!locked) return Liveness::unknown;
  return *locked ? Liveness::living : Liveness::dead;
}

}  // namespace headroom::flight
