// headroom: what `headroom explain` says, paragraph by paragraph. Each part looks at one model and adds sentences; what is not known
// is left out, or said to be unknown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow.hpp>

#include "command/process_figures.hpp"
#include "command/prose.hpp"

namespace headroom::command {

/// One look at a file, and what of it the explanation is about.
struct Scene {
  follow::Model const& model;
  std::string path;
  std::optional<ProcessFigures> process;           ///< absent: a recorded history
  flight::LedgerSnapshot const* ledger = nullptr;  ///< the manager that it is about; null: there is none
  std::vector<follow::FailureStory> stories;       ///< of all managers, oldest first, without those that only observed
  std::optional<follow::FailureStory> story;       ///< the failure that it is about

  [[nodiscard]] bool living() const { return process && process->living(); }
  /// It is about a post-mortem: everything is as it was when that was written.
  [[nodiscard]] bool is_record() const { return process && process->is_record; }
  /// "now", "when this was written", or "at the end".
  [[nodiscard]] std::string when() const { return living() ? "now" : is_record() ? "when this was written" : "at the end"; }
  /// "is", or of what has ended "was".
  [[nodiscard]] std::string is() const { return living() ? "is" : "was"; }
};

/// Picks the manager and the failure that matter most.
[[nodiscard]] Scene make_scene(follow::Model const& model, std::string path, std::optional<ProcessFigures> process);

/// "03:12:45 UTC"; of a history how far into it.
[[nodiscard]] std::string time_in_prose(Scene const& scene, std::uint64_t ticks);
/// "'kv-cache' held 5.1 GiB in 120 allocations, 'weights' 1 GiB in 3, and four other tags 300 MiB".
[[nodiscard]] std::string holders_in_prose(std::vector<follow::TagFigures> const& tags, std::uint64_t unattributed);

void explain_who(Scene const& scene, Prose& prose);
void explain_operations(Scene const& scene, Prose& prose);  ///< what is under way, or was when it died
void explain_failure(Scene const& scene, Prose& prose);
void explain_attempts(Scene const& scene, Prose& prose);      ///< hooks, policy, what came of it
void explain_surroundings(Scene const& scene, Prose& prose);  ///< other failures, peak, leaks, what was under way, losses
void explain_remedies(Scene const& scene, Prose& prose);

}  // namespace headroom::command
