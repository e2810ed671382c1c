#include "trace/snapshot_names.hpp"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "base/utf8.hpp"

namespace headroom::trace {
namespace {

constexpr std::size_t kBytesBesideText = 112;  // about what the containers keep with each: string, node, view
constexpr std::size_t kBytesBesideName = 48;

/// Valid UTF-8, with its end where it is too long: of a path that is the file, and of a site the function.
[[nodiscard]] std::string printable_end(std::string_view whole) {
  constexpr std::string_view kEllipsis = "…";
  constexpr auto kMost = SnapshotNames::kMostTextBytes;
  auto const is_long = whole.size() > kMost;
  if (is_long) {
    whole.remove_prefix(whole.size() - (kMost - kEllipsis.size()));
    // Not from within a character.
    while (!whole.empty() && (static_cast<unsigned char>(whole.front()) & 0xC0U) == 0x80U) whole.remove_prefix(1);
  }
  // Replacing invalid bytes makes a text longer: they are three bytes then.
  return (is_long ? std::string{kEllipsis} : std::string{}) + valid_utf8(whole, kMost);
}

/// Of a text of up to 1 MiB as much as printable_end() looks at, and knows to be too long: the rest need not be copied or compared.
[[nodiscard]] std::string_view end_of(std::string_view text) noexcept {
  constexpr auto kMost = SnapshotNames::kMostTextBytes * 2;
  return text.size() > kMost ? text.substr(text.size() - kMost) : text;
}

[[nodiscard]] std::uint64_t hash_of(std::span<std::uint32_t const> frames) noexcept {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325U;
  for (auto const frame : frames) hash = (hash ^ frame) * 0x9E37'79B9'7F4A'7C15U ^ hash >> 29U;
  return hash;
}

}  // namespace

std::uint32_t SnapshotNames::number_of(std::string_view whole) {
  if (whole.empty()) return 0;
  whole = end_of(whole);
  auto const found = numbers_.find(whole);
  if (found != numbers_.end()) return found->second;
  auto kept = printable_end(whole);
  if (auto const same = numbers_.find(kept); same != numbers_.end()) return same->second;
  auto const more = kept.size() + kBytesBesideText;
  if (kept.empty() || texts_.size() > most_names_ || more > most_bytes_ - std::min(bytes_, most_bytes_)) {
    ++left_out_;
    return 0;
  }
  bytes_ += more;
  texts_.push_back(std::move(kept));
  auto const number = static_cast<std::uint32_t>(texts_.size() - 1);
  numbers_.emplace(texts_.back(), number);
  return number;
}

std::uint32_t SnapshotNames::add(Name name) {
  auto const more = kBytesBesideName + name.frames * sizeof(std::uint32_t);
  if (names_.size() > most_names_ || more > most_bytes_ - std::min(bytes_, most_bytes_)) {
    ++left_out_;
    return 0;
  }
  bytes_ += more;
  names_.push_back(name);
  return static_cast<std::uint32_t>(names_.size() - 1);
}

std::uint32_t SnapshotNames::frame(std::string_view file, std::uint64_t line, std::string_view function) {
  file = end_of(file);
  function = end_of(function);
  std::string whole;
  whole.reserve(file.size() + function.size() + 24);
  whole = file;
  if (line != 0) whole += (whole.empty() ? "line " : ":") + std::to_string(line);
  if (!whole.empty() && !function.empty()) whole += ' ';
  whole += function;
  return number_of(whole);
}

std::uint32_t SnapshotNames::tag(std::string_view text) {
  auto const number = number_of(text);
  if (number == 0) return 0;
  if (auto const found = tags_.find(number); found != tags_.end()) return found->second;
  auto const id = add({.text = number});
  if (id != 0) tags_.emplace(number, id);
  return id;
}

std::uint32_t SnapshotNames::stack(std::span<std::uint32_t const> frames) {
  frames = frames.first(std::min(frames.size(), kMostFrames));
  if (frames.empty() || std::ranges::all_of(frames, [](std::uint32_t frame) { return frame == 0; })) return 0;
  auto const hash = hash_of(frames);
  auto const [begin, end] = stacks_.equal_range(hash);
  auto const same =
      std::find_if(begin, end, [&](auto const& entry) { return std::ranges::equal(frames_of(names_[entry.second]), frames); });
  if (same != end) return same->second;
  auto const id = add({.text = frames.front(),
                       .first_frame = static_cast<std::uint32_t>(frames_.size()),
                       .frames = static_cast<std::uint32_t>(frames.size())});
  if (id == 0) return 0;
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  stacks_.emplace(hash, id);
  return id;
}

std::string_view SnapshotNames::name_of(std::uint32_t id) const noexcept {
  return id < names_.size() ? std::string_view{texts_[names_[id].text]} : std::string_view{};
}

std::string SnapshotNames::stack_of(std::uint32_t id) const {
  if (id >= names_.size()) return {};
  std::string whole;
  auto const frames = frames_of(names_[id]);
  for (auto const frame : std::views::reverse(frames)) {
    auto const& name = texts_[frame];
    if (!whole.empty()) whole += ';';
    if (name.empty()) whole += '?';
    std::ranges::replace_copy(name, std::back_inserter(whole), ';', ':');
  }
  return whole;
}

}  // namespace headroom::trace
