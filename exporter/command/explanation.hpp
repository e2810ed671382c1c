// headroom: what `headroom explain` says, paragraph by paragraph. Each part looks at one model and adds sentences; what is not known
// is left out, or said to be unknown. About ten sentences; never more than kMostSentences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow.hpp>

#include "command/process_figures.hpp"
#include "command/prose.hpp"

namespace headroom::command {

/// Whoever is woken at three in the morning reads no more. Every part but the advice says at most one thing of each kind, which
/// together are fewer; of the advice as much is said as fits.
inline constexpr std::size_t kMostSentences = 14;

/// One look at a file, and what of it the explanation is about.
struct Scene {
  follow::Model const& model;
  std::string path;
  std::optional<ProcessFigures> process;           ///< absent: a recorded history
  flight::LedgerSnapshot const* ledger = nullptr;  ///< the manager that it is about; null: there is none
  std::vector<follow::FailureStory> stories;       ///< of all managers, oldest first, without those that only observed
  std::optional<follow::FailureStory> story;       ///< the failure that it is about
  std::uint64_t start_ticks = 0;                   ///< of a history, when it begins; 0: with its clock

  [[nodiscard]] bool living() const { return process && process->living(); }
  /// It is about a post-mortem: everything is as it was when that was written.
  [[nodiscard]] bool is_record() const { return process && process->is_record; }
  /// It is a post-mortem that was written while the program lived.
  [[nodiscard]] bool is_record_of_living() const { return is_record() && process->state == "living"; }
  /// "now", "when this was written", or "at the end".
  [[nodiscard]] std::string when() const {
    return living() ? "now" : is_record_of_living() ? "when this was written" : "at the end";
  }
};

/// Picks the manager and the failure that matter most.
[[nodiscard]] Scene make_scene(follow::Model const& model, std::string path, std::optional<ProcessFigures> process,
                               std::uint64_t start_ticks);

// ── what is known ──

/// Now of a living process; else the last sign of life that anything in the file shows.
[[nodiscard]] std::uint64_t last_sign_ns(Scene const& scene);
/// From its start to then, in nanoseconds.
[[nodiscard]] std::uint64_t lifetime_ns(Scene const& scene);
/// Requests that failed, by the books of all managers.
[[nodiscard]] std::uint64_t refusals(Scene const& scene);
/// Who held what when the request failed; absent: there is none, or that is not known any more.
[[nodiscard]] std::optional<follow::HeldThen> held_at_failure(Scene const& scene);
/// What its manager held then, by the figures that were written down with the failure.
[[nodiscard]] std::uint64_t allocated_at_failure(follow::FailureStory const& story);
/// The other managers of the same device.
[[nodiscard]] std::vector<flight::LedgerSnapshot const*> neighbours(Scene const& scene, flight::LedgerSnapshot const& ledger);

// ── words ──

/// "03:12:45 UTC", with the day where it is another than that of the last sign of life; of a history how far into it.
[[nodiscard]] std::string time_in_prose(Scene const& scene, std::uint64_t ticks);
/// "at 03:12:45 UTC"; "304 ms into the history".
[[nodiscard]] std::string moment_in_prose(Scene const& scene, std::uint64_t ticks);
/// "'kv-cache' held 5.1 GiB in 120 allocations, 'weights' 1 GiB in three, and four other tags 300 MiB".
[[nodiscard]] std::string holders_in_prose(std::vector<follow::TagFigures> const& tags, std::uint64_t unattributed);
/// "manager 'train'", or "manager" without a name.
[[nodiscard]] std::string manager_in_prose(std::string_view name);
/// Less is not told: it would say nothing to whoever reads it.
inline constexpr std::uint64_t kWorthTellingNs = 1'000'000;
/// " (2.0 s)", " (31 s, longer than its limit)"; empty for what took no time worth telling.
[[nodiscard]] std::string time_taken(std::uint64_t ns, bool overran = false);

// ── sentences ──

void explain_who(Scene const& scene, Prose& prose);
void explain_operations(Scene const& scene, Prose& prose);  ///< what is under way, or was when it died
void explain_failure(Scene const& scene, Prose& prose);
void explain_attempts(Scene const& scene, Prose& prose);      ///< hooks, policy, what came of it
void explain_surroundings(Scene const& scene, Prose& prose);  ///< other failures, peak, leaks, losses
void explain_remedies(Scene const& scene, Prose& prose);      ///< the last: it fills up what is left of kMostSentences

}  // namespace headroom::command
