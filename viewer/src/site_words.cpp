#include "site_words.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include <headroom/flight_format.hpp>

namespace headroom::viewer {
namespace {

constexpr std::string_view kOperator = "operator";
/// As compilers write what has no name; brackets in them are part of the name.
constexpr std::array<std::string_view, 3> kNameless{"(anonymous namespace)", "(anonymous class)", "(lambda at "};

bool is_in_name(char one) noexcept {
  return one == '_' || (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z');
}

/// Where the name of a function stands in its signature, in bytes; and whether the signature goes on after it.
struct NameOf {
  std::size_t last = 0;                      // where its last part begins: the function itself
  std::optional<std::size_t> before_last{};  // … and the one before: its class or namespace
  std::size_t end = 0;
  bool is_whole = false;
};

/// Reads a signature from left to right, down to the list of parameters.
NameOf name_in(std::string_view text) {
  NameOf name;
  std::size_t depth = 0;  // of template arguments
  auto const begin_at = [&](std::size_t at) { name = {.last = at}; };
  auto const part_at = [&](std::size_t at) { name = {.last = at, .before_last = name.last}; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const rest = text.substr(at);
    auto nameless = std::size_t{0};
    for (auto const& word : kNameless) {
      if (rest.starts_with(word)) nameless = rest.find(')') + 1;  // 0: it was cut
    }
    if (nameless != 0) {
      at += nameless - 1;
    } else if (depth == 0 && rest.starts_with(kOperator) && (at == 0 || !is_in_name(text[at - 1])) &&
               (rest.size() <= kOperator.size() || !is_in_name(rest[kOperator.size()]))) {
      // "operator()", "operator<", "operator bool": whatever comes up to the next bracket is its name.
      auto const from = at + kOperator.size() + (rest.substr(kOperator.size()).starts_with("()") ? 2 : 0);
      auto const list = text.find('(', from);
      name.end = std::min(list, text.size());
      name.is_whole = list != std::string_view::npos;
      return name;
    } else if (text[at] == '<') {
      ++depth;
    } else if (text[at] == '>') {
      depth -= depth > 0 ? 1 : 0;
    } else if (depth == 0 && rest.starts_with("::")) {
      part_at(at + 2);
    } else if (depth == 0 && (text[at] == ' ' || text[at] == '*' || text[at] == '&')) {
      begin_at(at + 1);
    } else if (depth == 0 && text[at] == '(') {
      name.end = at;
      name.is_whole = true;
      return name;
    }
  }
  name.end = text.size();
  return name;
}

}  // namespace

std::string site_in_words(std::string_view site) {
  auto const blank = site.find(' ');
  auto const was_cut = site.size() + 1 >= flight::kLabelBytes;
  if (blank == std::string_view::npos) return std::string{site};
  auto const signature = site.substr(blank + 1);
  auto const name = name_in(signature);
  if (!name.is_whole && !was_cut) return std::string{site};
  auto const begin = name.before_last.value_or(name.last);
  auto words = std::string{site.substr(0, blank + 1)}.append(signature.substr(begin, name.end - begin));
  return name.is_whole ? words : words.append("\u2026");
}

}  // namespace headroom::viewer
