#include "travel.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>

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
  if (forward) {
    model.for_each_operation(state.ledger, at + 1, all.end - 1, [&](follow::Operation const& operation) {
      found = operation.ticks;
      return false;
    });
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
  }
  if (found) state.travel_to(*found);
}

}  // namespace headroom::viewer
