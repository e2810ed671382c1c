// headroom: a file that an export writes: whole under its name, or not there. Nothing that is there already is ever replaced.
//
// It is written under a temporary name beside its own, which nobody else has, and gets its name when it is whole.
// Ownership: owns its descriptor; without finish() the temporary file goes when this does. Thread safety: none; two are independent.
#pragma once

#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom::viewer {

class NewFile {
public:
  /// Errors: io: something has that name already; the folder is not there or may not be written to, with the system's reason.
  [[nodiscard]] static Result<NewFile> open(std::string path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  /// Errors: io, with the system's reason.
  [[nodiscard]] Result<void> write(std::string_view bytes);
  /// Gives the file its name. Once. Errors: io: somebody else has made it meanwhile, there was no room.
  [[nodiscard]] Result<void> finish();

private:
  NewFile(int descriptor, std::string path, std::string unfinished) noexcept;
  int descriptor_;
  std::string path_, unfinished_;  // "" once it is gone
};

/// `stem` + `extension`, else `stem`-2 + `extension`, …: the first at which nothing is.
[[nodiscard]] std::string free_name(std::string const& stem, std::string_view extension);

}  // namespace headroom::viewer
