// headroom: a text that is written to a file, or to standard output, as often as it changes.
#pragma once

#include <string>

#include <headroom/error.hpp>

namespace headroom::viewer {

/// Whoever reads the file meanwhile sees the text before or the text after, whole: it is replaced, not written over.
/// Thread safety: none.
class TextOutput {
public:
  /// "" = nowhere, "-" = standard output.
  explicit TextOutput(std::string path) : path_{std::move(path)} {}
  [[nodiscard]] bool is_file() const noexcept { return !path_.empty() && path_ != "-"; }
  /// Does nothing if it is what was written last. Error: io.
  [[nodiscard]] Result<void> write(std::string text);

private:
  std::string path_;
  std::string last_;
  bool has_written_ = false;
};

}  // namespace headroom::viewer
