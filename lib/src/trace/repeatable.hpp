// headroom: a history that is read more than once.
//
// A regular file is read again from where it began. Anything else, such as a pipe, is first copied, decompressed, into a temporary file
// that has no name, in TMPDIR, /var/tmp or /tmp (in this order: the last is often memory). Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "trace/byte_source.hpp"

namespace headroom::trace {

class Repeatable {
public:
  /// Takes what open_byte_source() gave, of which nothing was delivered yet. Errors: io (the copy cannot be made; with the folder and the
  /// system's reason), and those of reading where a copy is made.
  [[nodiscard]] static Result<Repeatable> from(OpenedSource source, std::string name);

  /// The decompressed bytes from the first one on. Sources of one file share its position: one at a time. Errors: io, and as unchanged().
  [[nodiscard]] Result<std::unique_ptr<ByteSource>> read_again() const;
  /// What one reading found would not go with what the next finds. Errors: io (the file was written to since from()).
  [[nodiscard]] Result<void> unchanged() const;

private:
  /// What tells that a file was written to. (When its inode changed does not: a file may lose its name meanwhile.)
  struct Version {
    std::int64_t size = 0, modified_ns = 0;
    friend bool operator==(Version const&, Version const&) = default;
  };
  Repeatable(std::shared_ptr<OpenFile const> file, std::uint64_t begin, TraceCompression compression, std::string name);
  [[nodiscard]] Version version() const noexcept;

  std::shared_ptr<OpenFile const> file_;
  std::uint64_t begin_;
  TraceCompression compression_;
  std::string name_;
  Version version_;
};

}  // namespace headroom::trace
