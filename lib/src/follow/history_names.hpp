// headroom: the names of a history as ids of a directory.
//
// Events carry ids of one directory, and of a tag only 16 bits of it. So tags come first, in the order in which they turn up; sites and
// marks follow in ranges of their own. Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/torch_snapshot.hpp>
#include <headroom/trace.hpp>

namespace headroom::follow {

class HistoryNames {
public:
  explicit HistoryNames(TraceReader const& reader) : reader_{reader} {}

  /// Of a tag of the reader. 0: none, or more than 65,535 others came before it.
  [[nodiscard]] std::uint32_t tag_id(std::uint32_t tag) {
    if (tag == 0) return 0;
    auto const [place, is_new] = ids_.try_emplace(tag, 0);
    if (is_new && tags_.size() < kMostTags) {
      tags_.push_back(tag);
      place->second = static_cast<std::uint32_t>(tags_.size());
    }
    return place->second;
  }
  [[nodiscard]] static std::uint32_t site_id(std::uint32_t site) noexcept { return site == 0 ? 0 : kFirstSite + site; }
  /// Of one of the snapshot's annotations, by its place.
  [[nodiscard]] static std::uint32_t mark_id(std::uint32_t place) noexcept { return kFirstMark + place; }

  [[nodiscard]] std::string tag(std::uint32_t id) const {
    return id == 0 || id > tags_.size() ? std::string{} : std::string{reader_.name_of(tags_[id - 1])};
  }

  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const {
    flight::DirectoryName name;
    if (id >= kFirstMark) {
      auto const* const snapshot = reader_.snapshot();
      if (snapshot == nullptr || id - kFirstMark >= snapshot->annotations.size()) return std::nullopt;
      name.kind = flight::EntryKind::mark;
      name.label = snapshot->annotations[id - kFirstMark].name;
    } else if (id > kFirstSite) {
      name.kind = flight::EntryKind::site;
      name.label = reader_.name_of(id - kFirstSite);
    } else {
      name.kind = flight::EntryKind::tag;
      name.label = tag(id);
    }
    return name.label.empty() ? std::nullopt : std::optional{std::move(name)};
  }

  [[nodiscard]] std::string stack_of(std::uint32_t site) const {
    return site > kFirstSite && site < kFirstMark ? reader_.stack_of(site - kFirstSite) : std::string{};
  }

private:
  static constexpr std::size_t kMostTags = 0xFFFF;
  static constexpr std::uint32_t kFirstSite = std::uint32_t{1} << 20U;
  static constexpr std::uint32_t kFirstMark = std::uint32_t{1} << 24U;

  TraceReader const& reader_;
  std::vector<std::uint32_t> tags_;  // ids of the reader, by id − 1
  std::unordered_map<std::uint32_t, std::uint32_t> ids_;
};

}  // namespace headroom::follow
