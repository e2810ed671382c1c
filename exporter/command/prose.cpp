#include "command/prose.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ostream>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"

namespace headroom::command {

void Prose::say(std::string sentence) {
  if (sentence.empty()) return;
  if (sentence.back() != '.' && sentence.back() != ':' && sentence.back() != '?') sentence += '.';
  auto& paragraph = paragraphs_.back();
  if (!paragraph.empty()) paragraph += ' ';
  paragraph += sentence;
  ++sentences_;
}

void Prose::new_paragraph() {
  if (!paragraphs_.back().empty()) paragraphs_.emplace_back();
}

void Prose::print(std::ostream& out, std::size_t width) const {
  bool is_first = true;
  for (std::string_view rest : paragraphs_) {
    if (rest.empty()) continue;
    if (!std::exchange(is_first, false)) out << '\n';
    std::string line;
    while (!rest.empty()) {
      auto const word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      if (!line.empty() && width_of(line) + 1 + width_of(word) > width) {
        out << line << '\n';
        line.clear();
      }
      if (!line.empty()) line += ' ';
      line += word;
    }
    out << line << '\n';
  }
}

std::string listed(std::vector<std::string> const& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string number_in_words(std::uint64_t number) {
  constexpr std::array<std::string_view, 7> kWords{"no", "one", "two", "three", "four", "five", "six"};
  return number < kWords.size() ? std::string{kWords[number]} : format_count(number);
}

std::string counted_in_words(std::uint64_t count, std::string_view what) {
  return number_in_words(count) + ' ' + std::string{what} + (count == 1 ? "" : "s");
}

std::string capitalised(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string tag_in_prose(std::string_view tag) {
  if (tag.empty() || tag == "untagged") return "untagged memory";
  return '\'' + printable(tag) + '\'';
}

std::size_t prose_width() noexcept {
  struct winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<std::size_t>(size.ws_col, 60, 110);
}

}  // namespace headroom::command
