// headroom: the names in a snapshot: tags, and the stacks of who allocated.
//
// A stack is a list of frames, innermost first; its name is its innermost frame. Frames are shared by thousands of stacks, so that a
// stack is kept as numbers of frames, and its text made when somebody asks. Ids of tags and stacks are from one sequence, from 1; 0 is
// "none", and what those get that come after too many: each is counted.
// Thread safety: none. Memory: bounded by kMostNames and kMostBytes.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headroom::trace {

class SnapshotNames {
public:
  static constexpr std::size_t kMostNames = std::size_t{1} << 18U;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20U;
  static constexpr std::size_t kMostTextBytes = 256;  ///< of one tag or frame; what is longer keeps its end, behind "…"
  static constexpr std::size_t kMostFrames = 512;     ///< of one stack: the innermost ones

  explicit SnapshotNames(std::size_t most_names = kMostNames, std::size_t most_bytes = kMostBytes)
      : most_names_{most_names}, most_bytes_{most_bytes} {}

  /// The number of a frame, for stack(); 0 when it is empty or there are too many. `line` 0: unknown.
  [[nodiscard]] std::uint32_t frame(std::string_view file, std::uint64_t line, std::string_view function);
  /// The id of a stack of such numbers, innermost first. 0: it is empty, or there are too many.
  [[nodiscard]] std::uint32_t stack(std::span<std::uint32_t const> frames);
  /// The id of a tag. 0: it is empty, or there are too many.
  [[nodiscard]] std::uint32_t tag(std::string_view text);

  [[nodiscard]] std::string_view name_of(std::uint32_t id) const noexcept;
  /// Outermost first, with ';' between.
  [[nodiscard]] std::string stack_of(std::uint32_t id) const;
  /// Asked for while there was no room: how often.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }

private:
  /// A tag has no frames, and its text by itself.
  struct Name {
    std::uint32_t text = 0;
    std::uint32_t first_frame = 0;
    std::uint32_t frames = 0;
  };

  [[nodiscard]] std::uint32_t number_of(std::string_view whole);
  [[nodiscard]] std::uint32_t add(Name name);
  [[nodiscard]] std::span<std::uint32_t const> frames_of(Name const& name) const noexcept {
    return std::span{frames_}.subspan(name.first_frame, name.frames);
  }

  std::size_t most_names_, most_bytes_;
  std::size_t bytes_ = 0;
  std::deque<std::string> texts_{""};  // never moved: numbers_ has views of them
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
  std::vector<std::uint32_t> frames_;                             // of all stacks, one after the other
  std::vector<Name> names_{Name{}};                               // by id
  std::unordered_map<std::uint32_t, std::uint32_t> tags_;         // id by text
  std::unordered_multimap<std::uint64_t, std::uint32_t> stacks_;  // ids by hash
  std::uint64_t left_out_ = 0;
};

}  // namespace headroom::trace
