// Which flight files lie in a folder. Only names are judged here: what a file holds is FlightView's business, but for the start of its
// process, by which they are sorted.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

#include <headroom/flight_reader.hpp>

#include "flight/file_head.hpp"
#include "flight/flight_name.hpp"
#include "flight/open_file.hpp"
#include "flight/safe_folder.hpp"

namespace headroom::flight {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

struct Dated {
  std::int64_t seconds, nanoseconds;
  FoundFlight flight;
};

/// When the process started, as its file says. The file's own time is no answer: it is moved when the process is first seen dead.
std::optional<std::uint64_t> start_realtime_ns(std::string const& path) {
  Descriptor const fd{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  auto const head = fd.get() < 0 ? std::nullopt : read_head(fd.get());
  return head && head->start.realtime_ns != 0 ? std::optional{head->start.realtime_ns} : std::nullopt;
}

Dated dated_flight(FoundFlight flight, struct stat const& status) {
  if (auto const start = start_realtime_ns(flight.path)) {
    return {static_cast<std::int64_t>(*start / kNsPerSecond), static_cast<std::int64_t>(*start % kNsPerSecond),
            std::move(flight)};
  }
  return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec, std::move(flight)};
}

}  // namespace

std::vector<std::string> flight_folders() { return folder_candidates(); }

Result<std::vector<FoundFlight>> find_flights(std::string const& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<Dated> dated;
  for (fs::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error)) {
    auto flight = parse_flight_name(entry->path().filename().native());
    if (!flight) continue;
    flight->path = entry->path().native();
    struct stat status{};
    // Not followed: a link is no flight file. Gone meanwhile: its process ended.
    if (::lstat(flight->path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    dated.push_back(dated_flight(std::move(*flight), status));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(ErrorKind::io, Layer::request, folder + ": cannot list: " + error.message());
  }
  std::ranges::sort(dated, [](Dated const& a, Dated const& b) {
    if (a.seconds != b.seconds) return a.seconds > b.seconds;
    if (a.nanoseconds != b.nanoseconds) return a.nanoseconds > b.nanoseconds;
    return a.flight.path < b.flight.path;
  });
  std::vector<FoundFlight> flights;
  flights.reserve(dated.size());
  for (auto& one : dated) flights.push_back(std::move(one.flight));
  return flights;
}

}  // namespace headroom::flight
