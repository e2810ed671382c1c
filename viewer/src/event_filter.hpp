// headroom: what a person types to see some events only.
//
//   tag:cache site:loader device:cuda:1 thread:7 kind:free size>=64MiB size<1GiB evict
//
// Terms are separated by blanks, and all of them must hold; "…" keeps blanks together, and "" within it is a quote. `tag:`, `site:`,
// `device:` and `kind:` look for a part of the text, in any case, but a whole kind means that one alone; a term without a name looks in
// tags, sites and kinds, in what an event says, and in its address. What cannot be read is told, and stands for nothing.
// No ImGui. Thread safety: none. Cost: tags, sites and devices are compared once for each name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "event_rows.hpp"
#include "state.hpp"

namespace headroom::viewer {

class EventFilter {
public:
  EventFilter() = default;
  explicit EventFilter(Filter const& filter);

  [[nodiscard]] bool shows(EventRow const& row);
  /// Why a term was not understood: "size>lots: …". Empty: all were.
  [[nodiscard]] std::string const& complaint() const noexcept { return complaint_; }
  [[nodiscard]] bool shows_everything() const noexcept { return terms_.empty() && kinds_ == ~std::uint64_t{0}; }

private:
  enum class Where : std::uint8_t { anywhere, tag, site, device, kind };
  struct Term {
    Where where = Where::anywhere;
    std::string text;                               // in small letters
    bool is_whole = false;                          // a kind's whole name: no other one that contains it
    std::unordered_map<void const*, bool> known{};  // by the name's place: a model keeps each name once
    [[nodiscard]] bool is_in(std::string_view name);
  };
  void add(std::string_view term);
  void add_size(std::string_view term);

  std::vector<Term> terms_;
  std::uint64_t kinds_ = ~std::uint64_t{0};
  std::uint64_t least_ = 0, most_ = ~std::uint64_t{0};
  std::optional<std::uint64_t> thread_;
  std::string complaint_;
};

/// Whether `part`, in small letters, stands in `text`; letters of ASCII in any case.
[[nodiscard]] bool contains_in_any_case(std::string_view text, std::string_view part);
[[nodiscard]] std::string in_small_letters(std::string_view text);
/// `text` with `term` in place of any of the same name: "tag:a size>1k" and "tag:b" → "size>1k tag:b".
[[nodiscard]] std::string with_term(std::string_view text, std::string_view name, std::string_view value);

}  // namespace headroom::viewer
