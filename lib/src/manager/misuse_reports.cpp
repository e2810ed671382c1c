#include "manager/misuse_reports.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "flight/recorder.hpp"

namespace headroom {
namespace {

// Counted by every misuse, read by anyone; relaxed, the reports have a mutex of their own.
constinit std::atomic<std::uint64_t> misuses{0};

struct Reports {
  std::mutex mutex;  // held over the list only
  std::vector<MisuseReport> list;
};

// Never destroyed: destructors of static objects may free, and misuse, to the very end.
Reports& reports() {
  static Reports& instance = *new Reports;
  return instance;
}

bool quiet() noexcept {
  const char* const text = std::getenv("HEADROOM_QUIET");
  return text != nullptr && *text != '\0' && std::string_view{text} != "0";
}

}  // namespace

namespace manager {

bool count_misuse() noexcept { return misuses.fetch_add(1, std::memory_order_relaxed) < kMisusesReported; }

void keep_report(MisuseReport report) {
  const std::string line = "headroom: " + std::string{to_string(report.kind)} + ": " + report.sentence + "\n";
  {
    Reports& all = reports();
    const std::scoped_lock lock{all.mutex};
    all.list.push_back(std::move(report));
  }
  // In one piece, so that lines of several threads do not mix. A closed stderr is nobody's loss.
  if (!quiet()) static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

}  // namespace manager

std::vector<MisuseReport> misuse_reports() {
  // The mutex may have been held, at the fork, by a thread that the child does not have.
  if (flight::in_forked_child()) return {};
  Reports& all = reports();
  const std::scoped_lock lock{all.mutex};
  return all.list;
}

std::uint64_t misuse_count() noexcept { return misuses.load(std::memory_order_relaxed); }

}  // namespace headroom
