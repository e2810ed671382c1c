// headroom: the words that a snapshot is made of, known at a glance.
//
// A pickle writes a text once and refers to it afterwards. So a text that was compared once carries the number of its word as its note,
// and an entry's keys and action cost no comparison. Only texts that are keys, actions or states are asked about here, and nobody else
// puts notes on texts. Thread safety: that of values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "trace/pickle/value.hpp"

namespace headroom::trace {

enum class Word : std::uint8_t {
  other,  // keep first
  // keys
  action,
  addr,
  address,
  blocks,
  category,
  device,
  filename,
  frames,
  history,
  is_expandable,
  line,
  name,
  real_size,
  requested_size,
  segment_type,
  size,
  stage,
  state,
  stream,
  time_us,
  total_size,
  user_metadata,
  // actions
  alloc,
  free_completed,
  free_requested,
  oom,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
};

inline constexpr std::array<std::string_view, 32> kWords{"",
                                                         "action",
                                                         "addr",
                                                         "address",
                                                         "blocks",
                                                         "category",
                                                         "device",
                                                         "filename",
                                                         "frames",
                                                         "history",
                                                         "is_expandable",
                                                         "line",
                                                         "name",
                                                         "real_size",
                                                         "requested_size",
                                                         "segment_type",
                                                         "size",
                                                         "stage",
                                                         "state",
                                                         "stream",
                                                         "time_us",
                                                         "total_size",
                                                         "user_metadata",
                                                         "alloc",
                                                         "free_completed",
                                                         "free_requested",
                                                         "oom",
                                                         "segment_alloc",
                                                         "segment_free",
                                                         "segment_map",
                                                         "segment_unmap",
                                                         "snapshot"};
static_assert(kWords.size() == static_cast<std::size_t>(Word::snapshot) + 1);

[[nodiscard]] inline Word word_of(pickle::Value const& text) noexcept {
  if (!text.is(pickle::Type::text)) return Word::other;
  if (auto const known = text.note(); known != 0) [[likely]]
    return static_cast<Word>(known - 1);
  auto const* const found = std::find(kWords.begin() + 1, kWords.end(), text.text());
  auto const number = found == kWords.end() ? 0 : found - kWords.begin();
  text.set_note(static_cast<std::uint32_t>(number) + 1);
  return static_cast<Word>(number);
}

}  // namespace headroom::trace
