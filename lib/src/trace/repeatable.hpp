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

  /// The decompressed bytes from the first one on. Sources of one file share its position: one at a time. Errors: io.
  [[nodiscard]] Result<std::unique_ptr<ByteSource>> read_again() const;

private:
  Repeatable(std::shared_ptr<OpenFile const> file, std::uint64_t begin, TraceCompression compression, std::string name);

  std::shared_ptr<OpenFile const> file_;
  std::uint64_t begin_;
  TraceCompression compression_;
  std::string name_;
};

}  // namespace headroom::trace
