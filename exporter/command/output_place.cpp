#include "command/output_place.hpp"

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <linux/magic.h>
#include <sys/vfs.h>

namespace headroom::command {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel; with more, a name stands for nothing

[[nodiscard]] std::optional<int> number_of(std::string_view text) noexcept {
  int number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number >= 0 ? std::optional{number} : std::nullopt;
}

[[nodiscard]] bool is_own_descriptors(fs::path const& folder) {
  for (auto const* const own : {"/proc/self/fd", "/proc/thread-self/fd"}) {
    std::error_code unknown;
    auto const there = fs::canonical(own, unknown);
    if (!unknown && there == folder) return true;
  }
  return false;
}

[[nodiscard]] bool is_of_proc(fs::path const& folder) noexcept {
  struct statfs about{};
  return ::statfs(folder.c_str(), &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

// A link of /proc/PID/fd reads as the name of its file, but it is that file as it is open, with a place to write at: following what it
// reads as would be another thing, and for a pipe nothing at all.
OutputPlace output_place(std::string const& name) {
  fs::path path{name};
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code unknown;
    auto const folder = fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path{"."}, unknown);
    if (unknown) break;
    if (is_of_proc(folder)) {
      auto const number = number_of(path.filename().native());
      if (number && is_own_descriptors(folder)) return {.path = path.string(), .descriptor = number};
      // /proc/self itself is an ordinary link, but it stands for no file to be written.
      return {.path = path.string(), .is_of_proc = true};
    }
    if (!fs::is_symlink(fs::symlink_status(path, unknown))) break;
    auto target = fs::read_symlink(path, unknown);
    if (unknown) break;
    path = target.is_absolute() ? std::move(target) : path.parent_path() / target;
  }
  return {.path = path.string()};
}

}  // namespace headroom::command
