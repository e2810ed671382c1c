#include "command/find_process.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

[[nodiscard]] std::optional<std::uint64_t> as_number(std::string_view text) noexcept {
  std::uint64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

[[nodiscard]] std::string joined(std::vector<std::string> const& texts) {
  std::string all;
  for (auto const& text : texts) all += (all.empty() ? "" : ", ") + printable(text);
  return all;
}

/// A number that was used again names its last owner, in whichever folder that is.
[[nodiscard]] std::optional<std::string> newest_of(std::uint64_t pid, std::vector<std::string> const& folders) {
  std::optional<std::string> newest;
  std::filesystem::file_time_type written;
  for (auto const& folder : folders) {
    auto const found = flight::find_flights(folder);
    if (!found) continue;
    auto const file = std::ranges::find(*found, pid, &flight::FoundFlight::pid);  // the newest of the folder comes first
    if (file == found->end()) continue;
    std::error_code error;
    auto const when = std::filesystem::last_write_time(file->path, error);
    if (newest && (error || when <= written)) continue;
    newest = file->path;
    written = when;
  }
  return newest;
}

}  // namespace

std::vector<std::string> folders_or_default(std::optional<std::string> const& folder) {
  return folder ? std::vector{*folder} : flight::flight_folders();
}

Result<void> check_named_folder(std::optional<std::string> const& folder) {
  std::error_code error;
  if (!folder || std::filesystem::is_directory(*folder, error)) return {};
  return fail(
      ErrorKind::io, Layer::request,
      "--dir '" + printable(*folder) + "': " + (error ? error.message() : "no folder") + "; expected a folder of flight files");
}

Result<std::string> file_of(std::string_view text, std::vector<std::string> const& folders) {
  std::string path{text};
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  auto const pid = as_number(text);
  if (!pid) {
    return fail(ErrorKind::io, Layer::request,
                "'" + printable(path) + "' is no file; expected a file or a process number (headroom ps lists them)");
  }
  if (auto newest = newest_of(*pid, folders)) return std::move(*newest);
  return fail(ErrorKind::io, Layer::request,
              "process " + path + " has left no flight file in " + joined(folders) + "; expected one that headroom ps lists");
}

}  // namespace headroom::command
