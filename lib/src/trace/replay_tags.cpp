#include "trace/replay_tags.hpp"

#include <array>
#include <charconv>

namespace headroom {

std::string_view to_string(ReplayTags tags) noexcept {
  switch (tags) {
    case ReplayTags::size: return "size";
    case ReplayTags::thread: return "thread";
    case ReplayTags::stream: return "stream";
    case ReplayTags::none: return "none";
    case ReplayTags::recorded: return "recorded";
  }
  return "unknown";
}

std::string_view to_string(ReplayOrder order) noexcept { return order == ReplayOrder::file ? "file" : "free"; }

namespace trace {
namespace {

/// Small numbers are counters and read best in decimal; large ones are handles, which every other tool shows in hexadecimal.
std::string number_text(std::uint64_t number) {
  constexpr std::uint64_t kLargestCounter = 0xFFFF'FFFF;
  std::array<char, 24> digits{};
  auto const base = number > kLargestCounter ? 16 : 10;
  auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  return (base == 16 ? "0x" : "") + std::string{digits.data(), end};
}

}  // namespace

std::vector<std::string> tag_names(TraceHistory::Data const& data, ReplayTags tags) {
  std::vector<std::string> names;
  switch (tags) {
    case ReplayTags::size: return {kSizeClasses.begin(), kSizeClasses.end()};
    case ReplayTags::thread:
      for (auto const id : data.thread_ids) names.push_back("thread " + number_text(id));
      return names;
    case ReplayTags::stream:
      for (auto const id : data.stream_ids) names.push_back("stream " + number_text(id));
      return names;
    case ReplayTags::recorded: return data.recorded_names;
    case ReplayTags::none: break;
  }
  return {""};
}

std::vector<AllocTag> make_tags(TraceHistory::Data const& data, ReplayTags tags) {
  std::vector<AllocTag> made;
  for (auto const& name : tag_names(data, tags)) made.push_back(name.empty() ? AllocTag{} : AllocTag{name});
  return made;
}

}  // namespace trace
}  // namespace headroom
