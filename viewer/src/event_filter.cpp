#include "event_filter.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <headroom/byte_size.hpp>

#include "event_words.hpp"

namespace headroom::viewer {
namespace {

char small(char letter) noexcept { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

/// At blanks outside of quotes. The quotes go, but of two within quotes one stays; a term of nothing but them is none.
std::vector<std::string> terms_of(std::string_view text) {
  std::vector<std::string> terms;
  std::string term;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const letter = text[i];
    if (letter == '"' && is_quoted && text.substr(i + 1).starts_with('"')) {
      term += text[++i];
    } else if (letter == '"') {
      is_quoted = !is_quoted;
    } else if (letter == ' ' && !is_quoted) {
      if (!term.empty()) terms.push_back(std::exchange(term, {}));
    } else {
      term += letter;
    }
  }
  if (!term.empty()) terms.push_back(std::move(term));
  return terms;
}

std::string quoted_if_needed(std::string_view term) {
  if (term.find_first_of(" \"") == std::string_view::npos) return std::string{term};
  std::string quoted = "\"";
  for (auto const letter : term) quoted.append(letter == '"' ? 2 : 1, letter);
  return quoted + '"';
}

bool is_kind(std::string_view word) noexcept {
  for (unsigned kind = 0; kind < 64; ++kind) {
    if (word == word_of(static_cast<flight::EventKind>(kind))) return true;
  }
  return false;
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string result{text};
  std::ranges::transform(result, result.begin(), small);
  return result;
}

bool contains_in_any_case(std::string_view text, std::string_view part) {
  return !std::ranges::search(text, part, {}, small).empty() || part.empty();
}

std::string with_term(std::string_view text, std::string_view name, std::string_view value) {
  std::string result;
  for (auto const& term : terms_of(text)) {
    if (!term.starts_with(name)) result += quoted_if_needed(term) + ' ';
  }
  return result + quoted_if_needed(std::string{name} + std::string{value});
}

EventFilter::EventFilter(Filter const& filter) : kinds_{filter.kinds} {
  for (auto const& term : terms_of(filter.text)) add(term);
}

void EventFilter::add(std::string_view term) {
  constexpr std::pair<std::string_view, Where> kNames[] = {
      {"tag:", Where::tag}, {"site:", Where::site}, {"device:", Where::device}, {"kind:", Where::kind}};
  for (auto const& [name, where] : kNames) {
    if (term.starts_with(name)) {
      auto text = in_small_letters(term.substr(name.size()));
      auto const is_whole = where == Where::kind && is_kind(text);
      terms_.push_back({.where = where, .text = std::move(text), .is_whole = is_whole});
      return;
    }
  }
  if (constexpr std::string_view kThread = "thread:"; term.starts_with(kThread)) {
    auto const number = term.substr(kThread.size());
    std::uint64_t thread = 0;
    auto const read = std::from_chars(number.data(), number.data() + number.size(), thread);
    if (read.ec == std::errc{} && read.ptr == number.data() + number.size()) {
      thread_ = thread;
    } else {
      complaint_ = std::string{term} + ": expected the number of a thread";
    }
    return;
  }
  if (term.starts_with("size>") || term.starts_with("size<")) return add_size(term);
  terms_.push_back({.where = Where::anywhere, .text = in_small_letters(term)});
}

void EventFilter::add_size(std::string_view term) {
  auto const is_least = term[4] == '>';
  auto const has_equal = term.size() > 5 && term[5] == '=';
  auto const size = parse_byte_size(term.substr(has_equal ? 6 : 5));
  if (!size) {
    complaint_ = std::string{term} + ": expected a size, as in size>=64MiB";
    return;
  }
  if (is_least) {
    least_ = has_equal ? *size : *size + 1;
  } else {
    most_ = has_equal ? *size : *size - std::min<std::uint64_t>(*size, 1);
  }
}

bool EventFilter::Term::is_in(std::string_view name) {
  if (name.empty()) return false;
  auto const [found, is_new] = known.try_emplace(name.data(), false);
  if (is_new) found->second = contains_in_any_case(name, text);
  return found->second;
}

bool EventFilter::shows(EventRow const& row) {
  if (row.what == EventRow::What::gap) return true;  // what is missing may be anything
  if (((kinds_ >> (static_cast<unsigned>(row.kind) & 63U)) & 1U) == 0) return false;
  if (thread_ && row.thread != *thread_) return false;
  if ((least_ != 0 || most_ != ~std::uint64_t{0}) && (row.bytes < least_ || row.bytes > most_)) return false;
  return std::ranges::all_of(terms_, [&row](Term& term) {
    switch (term.where) {
      case Where::tag: return term.is_in(row.tag.empty() ? kUntagged : row.tag);
      case Where::site: return term.is_in(row.site);
      case Where::device: return term.is_in(row.device);
      case Where::kind:
        return term.is_whole ? word_of(row.kind) == term.text : contains_in_any_case(word_of(row.kind), term.text);
      case Where::anywhere: break;
    }
    return term.is_in(row.tag.empty() ? kUntagged : row.tag) || term.is_in(row.site) ||
           contains_in_any_case(word_of(row.kind), term.text) ||
           (!row.text.empty() && contains_in_any_case(row.text, term.text)) ||
           (term.text.starts_with("0x") && row.address != 0 && address_in_words(row.address).starts_with(term.text));
  });
}

}  // namespace headroom::viewer
