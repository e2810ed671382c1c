// headroom: a file that a command writes: complete under its name, or not there.
//
// It is written under a temporary name beside its own and renamed by commit(); without it the temporary file goes when this does. `-` is
// standard output, links are followed, and what is there already and no regular file, such as a pipe or a device, is written into.
//
// Ownership: owns its descriptor, but for standard output. Thread safety: none.
#pragma once

#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom::command {

class OutputFile {
public:
  /// Errors: io (cannot be made or opened; with the system's reason).
  [[nodiscard]] static Result<OutputFile> open(std::string const& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }  ///< as given, or "standard output"

  /// All of it, through interruptions, and waiting where there is no room yet. Errors: io.
  [[nodiscard]] Result<void> write(std::string_view bytes);
  /// Gives the file its name. Once. Errors: io: nothing is there then, or what was there before.
  [[nodiscard]] Result<void> commit();

private:
  OutputFile(int descriptor, std::string name) noexcept;
  [[nodiscard]] tl::unexpected<Error> io_error(std::string_view what, int code) const;
  [[nodiscard]] int close() noexcept;

  int descriptor_;
  std::string name_;
  std::string temporary_;  ///< empty: it is written into what is there
  std::string path_;       ///< to be renamed to
};

}  // namespace headroom::command
