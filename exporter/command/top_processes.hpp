// headroom: the processes that `headroom top` shows, and the one that it looks at closely.
//
// Files are mapped once; only what is on the screen is read again. Thread safety: none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow.hpp>

#include "command/guarded_flight.hpp"
#include "command/process_figures.hpp"

namespace headroom::command {

class TopProcesses {
public:
  struct Row {
    std::string path;
    std::uint64_t pid = 0;
    bool is_selected = false;
    ProcessFigures figures;
  };

  /// All flight files of `folders`, or only `file`.
  TopProcesses(std::vector<std::string> folders, std::optional<std::string> file);

  /// Looks what is there; a file that somebody truncated is not looked at any more. Errors: the one file, or every folder, cannot be
  /// read.
  [[nodiscard]] Result<void> refresh();
  /// Moves the selection by that many processes, round and round.
  void select(int step);

  [[nodiscard]] std::size_t count() const noexcept { return files_.size(); }
  [[nodiscard]] std::size_t selected() const noexcept { return selected_; }
  /// At most `most`, with the selected one among them.
  [[nodiscard]] std::vector<Row> rows(std::size_t most) const;
  /// Of the selected process, read up to now; null where there is none.
  [[nodiscard]] follow::Model* model() noexcept { return model_ ? &*model_ : nullptr; }

private:
  struct File {
    std::string path;
    std::uint64_t pid = 0;
    std::shared_ptr<GuardedFlight const> flight;
    bool is_living = false;
  };
  [[nodiscard]] Result<void> find_files();
  [[nodiscard]] Result<void> follow_selected();

  std::vector<std::string> folders_;
  std::optional<std::string> only_;
  std::vector<File> files_;  // the living first, each group from the youngest on
  std::size_t selected_ = 0;
  std::string followed_;                                // path of the model
  std::shared_ptr<GuardedFlight const> followed_file_;  // guarded for as long as the model reads it: goes after it
  std::optional<follow::Model> model_;
};

}  // namespace headroom::command
