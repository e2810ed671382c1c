// headroom: the post-mortem: one JSON file that says who held what when memory ran out.
// Layer: dump
//
// A program that links headroom writes one by itself when a guard's request fails for good, after hooks and policy, or when the device
// is out of memory: at most one a minute, from memory that was set aside at the start, on the thread that failed (of whose stack it
// needs 16 KiB), with no lock held. It
// goes to `<program>.<pid>.<run>.<sequence>.post-mortem.json` in HEADROOM_DUMP_DIR, else $XDG_STATE_HOME/headroom, else
// ~/.local/state/headroom; HEADROOM_DUMP=off turns that off. The folder keeps the newest 32 files and 512 MiB. What goes wrong on the
// way (no space, no permission) costs the events, or the file, and is counted; the request's own error stays what it was.
//
// Call write_post_mortem() for one of your own, or with a FlightView for another process, living or dead. post_mortem_reader.hpp loads
// them. The format is lib/schema/post_mortem.schema.json (JSON Schema 2020-12): keys come in one order, so that two dumps can be
// compared line by line; whole numbers above 2^53 are strings of digits, addresses strings of hexadecimal digits, and bytes that are
// no UTF-8 are written as \xHH.
//
// Thread safety: all of it from any thread. Cost: some 25 ms for a full flight file, 10 ms without events; what is set aside is 0.9 MiB.
// A forked child of the process that made the managers writes none: its books are a copy that stands still.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom {

namespace flight {
class FlightView;
}

/// Such files carry these words at their beginning.
inline constexpr std::string_view kPostMortemSchema = "headroom-post-mortem";
inline constexpr std::uint64_t kPostMortemVersion = 1;

struct PostMortemOptions {
  bool events = true;                           ///< false: the state alone, a few hundred KiB at most
  std::uint64_t most_live = ~std::uint64_t{0};  ///< list the largest so many live allocations; the rest is summed up
};

/// Of this process, to a temporary file beside `path` that is then renamed; links are followed, and what is no regular file, such as a
/// pipe or a device, is written into. The reason is what you like, at most 4,096 bytes of it.
/// Errors: invalid_argument (no manager was made yet), unsupported (a forked child), io (with the system's reason).
[[nodiscard]] Result<void> write_post_mortem(std::string const& path, std::string_view reason, PostMortemOptions options = {});

/// Of the process behind a flight file. Errors: io.
[[nodiscard]] Result<void> write_post_mortem(flight::FlightView const& view, std::string const& path, std::string_view reason,
                                             PostMortemOptions options = {});
/// The same to an open descriptor, such as standard output; it stays open. What was written before an error stays written.
[[nodiscard]] Result<void> write_post_mortem(flight::FlightView const& view, int descriptor, std::string_view reason,
                                             PostMortemOptions options = {});

/// Whether such a file of this run lies in that folder (empty: as below), written by whomever.
[[nodiscard]] bool has_filed_post_mortem(flight::FlightView const& view, std::string_view folder);

/// Of the process behind a flight file, as a file in `folder`, which is made if it is missing and then kept to its caps; empty: the
/// folder that programs use. It is named as that process names its own, under the next free number. Returns its path.
/// Errors: io (the system's reason; nowhere to put it). Whoever calls it for one process should be alone in that.
[[nodiscard]] Result<std::string> file_post_mortem(flight::FlightView const& view, std::string_view folder,
                                                   std::string_view reason, PostMortemOptions options = {});

/// What became of the failures for which this process might have written a post-mortem by itself. One that fails inside a hook, a
/// listener, a checkpoint or another operation belongs to what that stands in, and is skipped.
struct PostMortemCounts {
  std::uint64_t written = 0;  ///< files, the reduced ones too
  std::uint64_t reduced = 0;  ///< … without events, since there was no room for more
  std::uint64_t skipped =
      0;  ///< less than a minute after the last one, while another thread wrote, or inside a callback or an operation
  std::uint64_t failed = 0;  ///< no file: see last_error; the next failure after 5 s tries again
  int last_error = 0;        ///< errno of the last failure, 0 = none
};
[[nodiscard]] PostMortemCounts post_mortem_counts() noexcept;

/// Where the newest one of those lies; empty when there is none.
[[nodiscard]] std::string last_post_mortem();

}  // namespace headroom
