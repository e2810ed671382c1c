#include "travel.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>

#include "event_rows.hpp"

namespace headroom::viewer {

void go_to_failure(ViewState& state, bool forward) {
  if (state.model == nullptr) return;
  auto failures = state.model->failures();
  // While the display stands still, what came later has not happened yet.
  std::erase_if(failures, [end = state.whole().end](follow::FailureStory const& failure) { return failure.ticks >= end; });
  if (failures.empty()) return;
  // From the one that is inspected, if the moment shown is its own; else from that moment.
  auto const chosen = std::ranges::find_if(failures, [&](follow::FailureStory const& failure) {
    return state.failure == failure.number && state.cursor == failure.ticks;
  });
  auto target = failures.end();
  if (chosen != failures.end()) {
    if (forward ? std::next(chosen) == failures.end() : chosen == failures.begin()) return;
    target = forward ? std::next(chosen) : std::prev(chosen);
  } else if (!state.cursor) {
    target = forward ? failures.begin() : std::prev(failures.end());
  } else if (forward) {
    target = std::ranges::find_if(failures, [&](auto const& failure) { return failure.ticks > *state.cursor; });
  } else {
    auto backwards = failures | std::views::reverse;
    auto const last = std::ranges::find_if(backwards, [&](auto const& failure) { return failure.ticks < *state.cursor; });
    if (last != backwards.end()) target = std::prev(last.base());
  }
  if (target == failures.end()) return;
  state.failure = target->number;
  state.choose_ledger(target->ledger);
  state.travel_to(target->ticks);
}

void go_to_event(ViewState& state, bool forward) {
  if (state.model == nullptr) return;
  auto const& model = *state.model;
  auto const at = state.instant();
  auto const all = state.whole();
  std::optional<std::uint64_t> found;
  // What the journal tells, too: of this ledger, or of none.
  auto const each_of_journal = [&](std::uint64_t begin, std::uint64_t end, auto const& visit) {
    if (begin > end) return;
    model.for_each_journal_event(begin, end, [&](flight::Event const& event) {
      if ((event.flags() & flight::kFlagContinues) != 0) return;
      if (ledger_of(event).value_or(state.ledger) == state.ledger) visit(event.ticks);
    });
  };
  if (forward) {
    model.for_each_operation(state.ledger, at + 1, all.end - 1, [&](follow::Operation const& operation) {
      found = operation.ticks;
      return false;
    });
    each_of_journal(at + 1, found.value_or(all.end - 1),
                    [&](std::uint64_t ticks) { found = std::min(found.value_or(ticks), ticks); });
  } else {
    // Ever longer stretches before it, until one has any.
    for (std::uint64_t length = std::max<std::uint64_t>(all.length() / 4'096, 1); at > all.begin && !found; length *= 4) {
      auto const begin = std::max(all.begin, at - std::min(length, at));
      model.for_each_operation(state.ledger, begin, at - 1, [&](follow::Operation const& operation) {
        found = operation.ticks;
        return true;
      });
      if (begin == all.begin) break;
    }
    if (at > all.begin) {
      each_of_journal(found.value_or(all.begin), at - 1,
                      [&](std::uint64_t ticks) { found = std::max(found.value_or(ticks), ticks); });
    }
  }
  if (found) state.travel_to(*found);
}

}  // namespace headroom::viewer
