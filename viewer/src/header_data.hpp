// headroom: what the strip above all panels says about a process and one of its ledgers. No ImGui.
//
// Figures are those of the moment that panels are about: the present by the books, an instant of the past by the model. What a moment
// of the past does not tell is absent. Thread safety: none. Cost: that of Model::state_at.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <headroom/follow.hpp>

#include "state.hpp"

namespace headroom::viewer {

enum class Life : std::uint8_t { living, exited, killed, recorded, post_mortem, unknown };
[[nodiscard]] std::string_view to_string(Life life) noexcept;

struct HeaderFigures {
  std::string program;  ///< with its process number; of a history the file's name
  std::string place;    ///< host and version, or the path
  Life life = Life::unknown;
  bool is_past = false;  ///< of an instant of the past, not of the books
  follow::Known known = follow::Known::no_ledger;
  std::uint64_t allocated = 0;
  std::uint64_t live_allocations = 0;
  std::optional<std::uint64_t> claimed{}, limit{}, peak{}, remaining{};
  bool is_unlimited = false;  ///< there is no limit, for certain; else an absent one is not known
  bool is_enforcing = true;
  PressureLevel pressure = PressureLevel::none;
  std::uint64_t unattributed_bytes = 0;
  // Of the present alone.
  std::optional<std::uint64_t> unspent{}, sentinel{}, device_free{}, device_total{};
  std::optional<std::uint64_t> failures{};  ///< absent: not known of the past
  std::uint64_t lost = 0, refused = 0;
  std::optional<std::uint64_t> idle_ns{};  ///< since the newest event; absent for histories
};

/// Of `state.ledger` at state.instant(). Nothing is drawn without a model.
[[nodiscard]] HeaderFigures header_figures(ViewState const& state);

/// Events a second, over the last two seconds of the display's clock.
class EventRate {
public:
  void note(std::uint64_t nanoseconds, std::uint64_t events);
  /// Absent until half a second was seen.
  [[nodiscard]] std::optional<double> per_second() const noexcept;
  void forget() { samples_.clear(); }

private:
  struct Sample {
    std::uint64_t nanoseconds = 0, events = 0;
  };
  std::deque<Sample> samples_;
};

}  // namespace headroom::viewer
