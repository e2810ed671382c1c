// headroom: text for people: sentences and paragraphs, broken at words.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::command {

/// Paragraphs of sentences. A sentence gets its full stop here.
class Prose {
public:
  void say(std::string sentence);
  void new_paragraph();
  void print(std::ostream& out, std::size_t width) const;
  [[nodiscard]] std::size_t sentences() const noexcept { return sentences_; }

private:
  std::vector<std::string> paragraphs_{""};
  std::size_t sentences_ = 0;
};

/// "a", "a and b", "a, b and c".
[[nodiscard]] std::string listed(std::vector<std::string> const& items);
/// "one", "two", "1,234"; nothing is "no".
[[nodiscard]] std::string number_in_words(std::uint64_t number);
/// "one hook", "two hooks", "1,234 hooks".
[[nodiscard]] std::string counted_in_words(std::uint64_t count, std::string_view what);
/// What begins a sentence. Not for names: those of programs and files stay as they are.
[[nodiscard]] std::string capitalised(std::string text);
/// A tag as it stands in a sentence: 'kv-cache', or "untagged memory".
[[nodiscard]] std::string tag_in_prose(std::string_view tag);
/// The width of the terminal on stdout, between 60 and 110; 100 where there is none.
[[nodiscard]] std::size_t prose_width() noexcept;

}  // namespace headroom::command
