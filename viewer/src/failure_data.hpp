// headroom: one failure, ready to be shown: the request, what stood in its way, what was done about it, who held the memory.
//
// No ImGui. Thread safety: none. Cost: a copy of all stories when the model read something, one look at the past for each failure that is
// shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <headroom/follow.hpp>
#include <headroom/follow_words.hpp>

#include "state.hpp"

namespace headroom::viewer {

/// A hook's turn, or a step of the policy.
struct FailureAct {
  std::uint64_t after_ns = 0;  ///< since the refusal
  std::string name{};          ///< of the hook; of a step, its sentence
  std::string result{};        ///< "ran", "passed over", …; empty of a step
  bool is_hook = false;
  bool is_bad = false;  ///< threw, overran, freed less than it said
  std::optional<std::uint64_t> estimate{}, reported{}, freed{};
  std::optional<std::int64_t> ledger_fell{};
  std::uint64_t duration_ns = 0;
  std::uint64_t limit_ns = 0;  ///< 0: not known, or none
};

struct FailureDetails {
  follow::FailureStory story{};
  follow::FailureWords words{};
  std::vector<FailureAct> acts{};          ///< in the order of time
  std::optional<std::uint64_t> missing{};  ///< how much more the budget or the device would have needed
  std::optional<follow::HeldThen> held{};  ///< absent: not known any more
  std::uint64_t took_ns = 0;               ///< from the refusal to the end
  std::uint64_t thread = 0;                ///< that asked, as the program or history numbers it
};

[[nodiscard]] FailureDetails failure_details(follow::Model const& model, follow::FailureStory const& story);

/// Place among `stories` (oldest first) of the one that is inspected: the chosen one, as long as its moment is looked at; with time
/// travel or a pause the last one at or before the moment shown; else the newest. Nothing where there is none.
[[nodiscard]] std::optional<std::size_t> inspected(std::span<follow::FailureStory const> stories, ViewState const& state);

}  // namespace headroom::viewer
