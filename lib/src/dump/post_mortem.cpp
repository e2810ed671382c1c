// Post-mortems on call: of this process, and of any flight file.
#include <headroom/post_mortem.hpp>

#include <atomic>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "dump/dump_file.hpp"
#include "dump/dump_folder.hpp"
#include "dump/workspace.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

constexpr std::size_t kMostOfReason = 4096;

/// At a character's boundary where there is one.
std::string_view shortened(std::string_view reason) noexcept {
  if (reason.size() <= kMostOfReason) return reason;
  std::size_t end = kMostOfReason;
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(reason[at]) & 0xC0U) == 0x80U; };
  while (end > kMostOfReason - 3 && continues(end)) --end;
  return reason.substr(0, continues(end) ? kMostOfReason : end);
}

dump::WriteRequest request_for(flight::FlightView const& view, std::string_view reason, PostMortemOptions options) {
  return {.mapped = flight::ViewAccess::mapped(view),
          .liveness = view.liveness(),
          .kind = dump::ReasonKind::requested,
          .reason = shortened(reason),
          .failure = nullptr,
          .options = options,
          .events_left_out = {},
          .sequence = 0,
          .counts = {}};
}

tl::unexpected<Error> io_error(std::string const& path, int error) {
  return fail(ErrorKind::io, Layer::request, path + ": " + std::strerror(error));
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
  static constinit std::atomic<std::uint64_t> names{0};  // fetch_add relaxed: only that each caller gets another one
  const auto request = request_for(view, reason, options);
  dump::Workspace workspace{dump::WorkspaceSizes::of(request.mapped)};
  if (!workspace.is_there()) return io_error(path, ENOMEM);
  const std::string temporary =
      path + '.' + std::to_string(getpid()) + '.' + std::to_string(names.fetch_add(1, std::memory_order_relaxed)) + ".tmp";
  const auto outcome = dump::write_file(AT_FDCWD, temporary.c_str(), path.c_str(), request, workspace);
  if (outcome.error != 0) return io_error(path, outcome.error);
  return success();
}

Result<void> write_post_mortem(flight::FlightView const& view, int descriptor, std::string_view reason,
                               PostMortemOptions options) {
  const auto request = request_for(view, reason, options);
  dump::Workspace workspace{dump::WorkspaceSizes::of(request.mapped)};
  if (!workspace.is_there()) return io_error("descriptor " + std::to_string(descriptor), ENOMEM);
  const dump::QuietWriting quiet;
  dump::DescriptorSink sink{descriptor};
  dump::JsonStream json{sink, workspace.buffer};
  dump::Writer{request, workspace, json}.write();
  if (const int error = json.finish(); error != 0) return io_error("descriptor " + std::to_string(descriptor), error);
  return success();
}

}  // namespace headroom
