// The post-mortem of another process, put where programs put their own.
#include <headroom/post_mortem.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headroom/flight_reader.hpp>

#include "dump/dump_folder.hpp"
#include "flight/open_file.hpp"

namespace headroom {
namespace {

constexpr std::uint64_t kMostNumbers = 1'000;

tl::unexpected<Error> io_error(std::string const& path, int error) {
  return fail(ErrorKind::io, Layer::request, path + ": " + std::strerror(error));
}

/// <program>.<pid>.<run>. as the process names its own (automatic.cpp).
std::string stem_of(flight::ProcessInfo const& process) {
  constexpr std::size_t kMostOfProgram = 64;
  std::string program = process.program.substr(0, kMostOfProgram);
  for (char& c : program) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '+';
    if (!plain) c = '_';
  }
  if (program.empty()) program = "program";
  return program + '.' + std::to_string(process.pid) + '.' + flight::short_run(process.run) + '.';
}

}  // namespace

bool has_filed_post_mortem(flight::FlightView const& view, std::string_view folder) {
  const auto place = std::make_unique<dump::FixedPath>();
  if (!(folder.empty() ? dump::find_dump_folder(*place) : place->add(folder))) return false;
  const std::unique_ptr<DIR, decltype([](DIR* list) { closedir(list); })> list{opendir(std::string{place->view()}.c_str())};
  const std::string stem = stem_of(view.process());
  while (dirent const* entry = list ? readdir(list.get()) : nullptr) {
    const std::string_view name{entry->d_name};
    if (name.starts_with(stem) && name.ends_with(dump::kSuffix)) return true;
  }
  return false;
}

Result<std::string> file_post_mortem(flight::FlightView const& view, std::string_view folder, std::string_view reason,
                                     PostMortemOptions options) {
  const auto place = std::make_unique<dump::FixedPath>();
  const bool has_place = folder.empty() ? dump::find_dump_folder(*place) : place->add(folder);
  if (!has_place) {
    return folder.empty() ? fail(ErrorKind::io, Layer::request,
                                 "no folder for post-mortems: none of HEADROOM_DUMP_DIR, XDG_STATE_HOME and HOME leads to one")
                          : io_error(std::string{folder}, ENAMETOOLONG);
  }
  const std::string where{place->view()};
  const flight::Descriptor opened{dump::open_dump_folder(*place)};
  if (opened.get() < 0) return io_error(where, errno);
  const std::string stem = stem_of(view.process());
  for (std::uint64_t number = 1; number <= kMostNumbers; ++number) {
    const std::string name = stem + std::to_string(number) + std::string{dump::kSuffix};
    struct stat there{};
    if (fstatat(opened.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) continue;
    std::string path = where;
    path.append("/").append(name);
    if (auto written = write_post_mortem(view, path, reason, options); !written)
      return tl::unexpected(std::move(written.error()));
    std::array<char, 8192> scratch{};
    dump::keep_to_caps(opened.get(), name, {}, scratch);
    return path;
  }
  return io_error(where + '/' + stem + '*', EEXIST);
}

}  // namespace headroom
