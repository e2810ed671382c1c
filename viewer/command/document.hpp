// headroom: what is open in the viewer: a flight file, a post-mortem or a history, and the model of it.
//
// Files are opened as the `headroom` command opens them (command/source.hpp), with its guard: a flight file that somebody truncates while
// it is mapped becomes an error of read(). Thread safety: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <headroom/error.hpp>
#include <headroom/follow.hpp>

#include "command/source.hpp"
#include "state.hpp"

namespace headroom::viewer {

class Document {
public:
  /// Opens a file, and reads nothing of it yet. `memory_bytes` bounds the past that is kept. Errors: io, parse, unsupported; with the
  /// file's name and what was expected.
  [[nodiscard]] static Result<std::unique_ptr<Document>> open(std::string path, std::size_t memory_bytes);

  [[nodiscard]] follow::Model& model() noexcept { return model_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  /// What is to be known of the file before its figures are trusted; "" = nothing.
  [[nodiscard]] std::string const& warning() const noexcept { return file_->warning(); }

  enum class Progress : std::uint8_t {
    nothing,  ///< nothing was new
    some,     ///< something was new; what there was is read
    more,     ///< the time was up before all was read
  };
  /// Reads for about so long at most. After an error nothing more is read; what was stays good, unless the file was truncated.
  [[nodiscard]] Result<Progress> read(std::chrono::milliseconds most);
  /// Everything there is, however long it takes.
  [[nodiscard]] Result<void> read_all();
  /// How far a file that is read once was read, 0 … 1; absent for what grows.
  [[nodiscard]] std::optional<double> share_read() const noexcept;
  /// The same file once more, with a guard of its own; good after this has gone. Errors: as open(); io where it is another file by now.
  [[nodiscard]] Result<ReadAgain> open_again() const;
  /// Nothing more will come.
  [[nodiscard]] bool is_over() const noexcept { return failed_ || model_.ended(); }

private:
  Document(std::string path, std::unique_ptr<command::Source> file, std::unique_ptr<follow::Source> records,
           std::size_t memory_bytes);

  std::string path_;
  std::unique_ptr<command::Source> file_;  // guards the mapping that the model reads: goes after it
  follow::Model model_;
  bool failed_ = false;
};

/// The flight file of the process that started last, living ones first; "" when there is none. Errors: io.
[[nodiscard]] Result<std::string> newest_flight(std::optional<std::string> const& folder);

}  // namespace headroom::viewer
