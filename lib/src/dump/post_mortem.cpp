// Post-mortems on call: of this process, and of any flight file.
#include <headroom/post_mortem.hpp>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <vector>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dump/dump_file.hpp"
#include "dump/shortened.hpp"
#include "dump/workspace.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

dump::WriteRequest request_for(flight::FlightView const& view, std::string_view reason, PostMortemOptions options) {
  return {.mapped = flight::ViewAccess::mapped(view),
          .liveness = view.liveness(),
          .kind = dump::ReasonKind::requested,
          .reason = dump::shortened(reason),
          .failure = nullptr,
          .options = options,
          .events_left_out = {},
          .sequence = 0,
          .counts = {}};
}

tl::unexpected<Error> io_error(std::string const& path, int error) {
  return fail(ErrorKind::io, Layer::request, path + ": " + std::strerror(error));
}

struct Destination {
  std::string path;
  bool by_name = true;  ///< a regular file, or nothing yet: made beside it and renamed. Else written into
  int error = 0;
};

bool is_same(struct stat const& a, struct stat const& b) noexcept { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// Through the links that `path` ends in, as a shell's `>` goes: renaming over a link, a device or a pipe would replace it.
Destination destination_of(std::string const& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  Destination destination{.path = path};
  std::vector<char> target(PATH_MAX);
  for (int links = 0;; ++links) {
    const ssize_t length = readlink(destination.path.c_str(), target.data(), target.size());
    if (length <= 0) break;
    if (links == kMostLinks) return {.path = path, .error = ELOOP};
    const std::string_view text{target.data(), static_cast<std::size_t>(length)};
    const std::size_t slash = destination.path.rfind('/');
    if (text.front() == '/' || slash == std::string::npos) {
      destination.path = text;
    } else {
      destination.path.replace(slash + 1, std::string::npos, text);
    }
  }
  struct stat there{};
  if (stat(path.c_str(), &there) != 0) return destination;  // whoever makes the file says what is wrong
  if (S_ISDIR(there.st_mode)) return {.path = path, .error = EISDIR};
  // A link of /proc to an open file names it as it was: written into, too.
  struct stat resolved{};
  const bool is_found = stat(destination.path.c_str(), &resolved) == 0 && is_same(there, resolved);
  if (S_ISREG(there.st_mode) && is_found) return destination;
  return {.path = path, .by_name = false};
}

/// A name that a killed writer may have left is passed over: where pids come again, a counter alone would meet it for ever.
int write_by_name(std::string const& path, dump::WriteRequest const& request, dump::Workspace& workspace) {
  static constinit std::atomic<std::uint64_t> names{0};  // fetch_add relaxed: only that each caller gets another one
  constexpr int kTries = 64;
  int error = EEXIST;
  for (int i = 0; i < kTries && error == EEXIST; ++i) {
    std::uint64_t random = 0;
    static_cast<void>(getrandom(&random, sizeof random, GRND_NONBLOCK));  // without: the number alone
    const std::string temporary =
        path + '.' + std::to_string(random) + '.' + std::to_string(names.fetch_add(1, std::memory_order_relaxed)) + ".tmp";
    error = dump::write_file(AT_FDCWD, temporary.c_str(), path.c_str(), request, workspace).error;
  }
  return error;
}

}  // namespace

Result<void> write_post_mortem(std::string const& path, std::string_view reason, PostMortemOptions options) {
  if (flight::in_forked_child()) {
    return fail(ErrorKind::unsupported, Layer::request,
                "this process is a forked child: its books are a copy that stands still; ask for its parent's");
  }
  const auto view = flight::FlightView::of_this_process();
  if (!view)
    return fail(ErrorKind::invalid_argument, Layer::request, "no manager was made in this process: there is nothing to tell");
  return write_post_mortem(*view, path, reason, options);
}

Result<void> write_post_mortem(flight::FlightView const& view, std::string const& path, std::string_view reason,
                               PostMortemOptions options) {
  const auto request = request_for(view, reason, options);
  dump::Workspace workspace{dump::WorkspaceSizes::of(request.mapped)};
  if (!workspace.is_there()) return io_error(path, ENOMEM);
  try {
    const Destination destination = destination_of(path);
    const int error = destination.error != 0 ? destination.error
                      : destination.by_name  ? write_by_name(destination.path, request, workspace)
                                             : dump::write_into(destination.path.c_str(), request, workspace);
    if (error != 0) return io_error(path, error);
  } catch (std::bad_alloc const&) {
    return io_error(path, ENOMEM);
  }
  return success();
}

Result<void> write_post_mortem(flight::FlightView const& view, int descriptor, std::string_view reason,
                               PostMortemOptions options) {
  const auto request = request_for(view, reason, options);
  dump::Workspace workspace{dump::WorkspaceSizes::of(request.mapped)};
  if (!workspace.is_there()) return io_error("descriptor " + std::to_string(descriptor), ENOMEM);
  const QuietWriting quiet;
  dump::DescriptorSink sink{descriptor};
  dump::JsonStream json{sink, workspace.buffer};
  dump::Writer{request, workspace, json}.write();
  if (const int error = json.finish(); error != 0) return io_error("descriptor " + std::to_string(descriptor), error);
  return success();
}

}  // namespace headroom
