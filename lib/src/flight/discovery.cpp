// Which flight files lie in a folder. Only names are judged here: what a file holds is FlightView's business.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>

#include <headroom/flight_reader.hpp>

#include "base/utf8.hpp"
#include "flight/safe_folder.hpp"

namespace headroom::flight {
namespace {

constexpr std::string_view kSuffix = ".flight";
constexpr std::size_t kRunDigits = 16;

/// The part behind the last dot, which is cut off together with the dot; nothing when there is no dot.
std::optional<std::string_view> cut_last_part(std::string_view& name) noexcept {
  auto const dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  auto const part = name.substr(dot + 1);
  name = name.substr(0, dot);
  return part;
}

template <class T>
bool is_number(std::string_view text, int base, T& value) noexcept {
  auto const* const end = text.data() + text.size();
  auto const [stop, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc{} && stop == end;
}

/// `<program>.<pid>.<run>.flight`, read from the right since a program's name may hold dots. A name that begins with a dot is a
/// file that its writer has not finished.
std::optional<FoundFlight> parse_name(std::string_view name) {
  if (name.starts_with('.') || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  auto const run = cut_last_part(name);
  auto const pid = cut_last_part(name);
  if (!run || !pid || name.empty()) return std::nullopt;
  FoundFlight found;
  std::uint64_t run_number = 0;
  if (run->size() != kRunDigits || !is_number(*run, 16, run_number) || !is_number(*pid, 10, found.pid)) return std::nullopt;
  found.program = valid_utf8(name);
  found.run = *run;
  return found;
}

struct Dated {
  std::int64_t seconds, nanoseconds;
  FoundFlight flight;
};

}  // namespace

std::vector<std::string> flight_folders() { return folder_candidates(); }

Result<std::vector<FoundFlight>> find_flights(std::string const& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<Dated> dated;
  for (fs::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error)) {
    auto flight = parse_name(entry->path().filename().native());
    if (!flight) continue;
    flight->path = entry->path().native();
    struct stat status{};
    // Not followed: a link is no flight file. Gone meanwhile: its process ended.
    if (::lstat(flight->path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    dated.push_back({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, std::move(*flight)});
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
