// headroom: from a process number, or a path, to a flight file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>

namespace headroom::command {

/// Where flight files are looked for: one folder, or the usual ones.
[[nodiscard]] std::vector<std::string> folders_or_default(std::optional<std::string> const& folder);

/// A folder that somebody named must be there. Errors: io (no such folder, or something else).
[[nodiscard]] Result<void> check_named_folder(std::optional<std::string> const& folder);

/// `text` is a path of a file that exists, or a process number: then the file of its newest run in `folders`.
/// Errors: io, which names what was found instead (no such file, no such process here).
[[nodiscard]] Result<std::string> file_of(std::string_view text, std::vector<std::string> const& folders);

}  // namespace headroom::command
