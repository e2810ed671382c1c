// headroom: a file that a command writes: complete under its name, or not there.
//
// It is written under a temporary name beside its own and renamed by commit(); without it the temporary file goes when this does, and
// when a signal ends the process. Links are followed, to what is not there yet as well. A file that is there is replaced by one of the
// same mode, owner and group, as far as this user may give them.
//
// What is no regular file, such as a pipe or a device, is written into. So is an open descriptor of this process: `-` is standard
// output, and /dev/stdout, /dev/fd/N and their like go where that descriptor stands, be it a file. None of those is made by this.
//
// Ownership: owns its descriptor, but for standard output. Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

#include "command/temporary_name.hpp"

namespace headroom::command {

class OutputFile {
public:
  /// A name for each number, from 1 on.
  using Names = std::function<std::string(std::uint64_t number)>;

  /// Errors: io (cannot be made or opened; with the system's reason).
  [[nodiscard]] static Result<OutputFile> open(std::string const& path);
  /// Under the first of those names at which nothing is when it is committed: nothing is ever replaced. Errors: io.
  [[nodiscard]] static Result<OutputFile> open_new(Names names);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// As given, or "standard output"; after open_new() the one that is likely, and after commit() the one that it has.
  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  /// True: a file of its own, there once it is committed. False: it is written into what is there.
  [[nodiscard]] bool is_made() const noexcept { return is_made_; }

  /// All of it, through interruptions, and waiting where there is no room yet. Errors: io.
  [[nodiscard]] Result<void> write(std::string_view bytes);
  /// Gives the file its name. Once. Errors: io: nothing is there then, or what was there before.
  [[nodiscard]] Result<void> commit();

private:
  OutputFile(int descriptor, std::string name) noexcept;
  [[nodiscard]] tl::unexpected<Error> io_error(std::string_view what, int code) const;
  [[nodiscard]] Result<void> make(std::string path, unsigned mode);
  [[nodiscard]] Result<void> name_as_new();
  [[nodiscard]] int close() noexcept;

  int descriptor_;
  std::string name_;
  bool is_made_ = false;
  TemporaryName temporary_;
  std::string path_;  ///< to be renamed to
  Names names_;       ///< of open_new()
};

}  // namespace headroom::command
