// headroom: how a replay names what it allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headroom/replay.hpp>
#include <headroom/tag.hpp>
#include <headroom/trace.hpp>

#include "trace/replay_steps.hpp"

namespace headroom::trace {

/// The names of a history's tags, by tag_index. `none` has one name, the empty one: the default tag.
[[nodiscard]] std::vector<std::string> tag_names(TraceHistory::Data const& data, ReplayTags tags);
[[nodiscard]] std::vector<AllocTag> make_tags(TraceHistory::Data const& data, ReplayTags tags);

/// Of an allocation, one of data's steps. Its free may stand on another thread or stream.
[[nodiscard]] inline std::size_t tag_index(TraceHistory::Data const& data, Step const& step, ReplayTags tags) noexcept {
  switch (tags) {
    case ReplayTags::size: return size_class(step.bytes);
    case ReplayTags::thread: return step.thread;
    case ReplayTags::stream: return step.stream;
    case ReplayTags::recorded: {
      auto const place = static_cast<std::size_t>(&step - data.steps.data());
      return place < data.recorded_tags.size() ? data.recorded_tags[place] : 0;
    }
    case ReplayTags::none: break;
  }
  return 0;
}

}  // namespace headroom::trace
