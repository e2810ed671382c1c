#include "node_post_mortems.hpp"

#include <cerrno>
#include <exception>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include <headroom/post_mortem.hpp>

namespace headroom::exporter {
namespace {

bool is_ours(NodeBooks::Corpse const& corpse) {
  struct stat info{};
  return ::lstat(corpse.path.c_str(), &info) == 0 && FileId{info.st_dev, info.st_ino} == corpse.id && info.st_uid == ::geteuid();
}

/// Removes the file if it is ours to remove; an errno that is worth a line, or 0.
int remove_if_ours(NodeBooks::Corpse const& corpse) {
  return is_ours(corpse) && ::unlink(corpse.path.c_str()) != 0 && errno != ENOENT ? errno : 0;
}

}  // namespace

void NodePostMortems::take(NodeBooks::Corpse const& corpse) {
  if (!options_.on) return;
  const auto failed = [&](std::string const& why) {
    failed_.fetch_add(1, std::memory_order_relaxed);
    say("no post-mortem of " + corpse.path + ": " + why + "; the file stays");
  };
  try {
    // The file of another user stays where it is: an exporter that is started again and again must not fill the folder with it.
    if (corpse.was_found && !is_ours(corpse) && has_filed_post_mortem(*corpse.view, options_.folder)) return;
    const auto written = file_post_mortem(*corpse.view, options_.folder,
                                          "the process was killed; written by the node exporter from its flight file");
    if (!written) return failed(written.error().message);
    if (options_.is_whole && !options_.is_whole(*corpse.view))
      return failed("it was truncated meanwhile: " + *written + " lacks what is missing");
    written_.fetch_add(1, std::memory_order_relaxed);
    say("post-mortem " + *written);
    if (const int error = remove_if_ours(corpse); error != 0) {
      say(corpse.path + ": cannot be removed: " + std::generic_category().message(error));
    }
  } catch (std::exception const& error) {
    failed(error.what());
  }
}

}  // namespace headroom::exporter
