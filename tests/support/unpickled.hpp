// A pickle as JSON, for tests: of the opcodes that the library writes, and no other. A pair is a list of two.
//
// Strict: every mark is used, nothing is left over, texts are in the memo before they are fetched from it.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace headroom::test {

class Unpickler {
public:
  explicit Unpickler(std::string_view bytes) : bytes_{bytes} {}

  nlohmann::json run() {
    if (take(2) != "\x80\x04") throw std::runtime_error{"no protocol 4"};
    while (true) {
      auto const opcode = static_cast<unsigned char>(take(1).front());
      if (opcode == '.') break;
      step(opcode);
    }
    if (!bytes_.empty()) throw std::runtime_error{std::to_string(bytes_.size()) + " bytes after the end"};
    if (stack_.size() != 1 || !marks_.empty()) throw std::runtime_error{"expected one value and no mark at the end"};
    return std::move(stack_.front());
  }

private:
  using json = nlohmann::json;

  void step(unsigned char opcode) {
    switch (opcode) {
      case '}': stack_.push_back(json::object()); return;
      case ']': stack_.push_back(json::array()); return;
      case '(': marks_.push_back(stack_.size()); return;
      case 'e': append(); return;
      case 'u': set_items(); return;
      case 0x86: {
        json pair = json::array({pop_second(), stack_.back()});
        stack_.back() = std::move(pair);
        return;
      }
      case 0x8c: text(number(1)); return;
      case 'X': text(number(4)); return;
      case 0x94: memo_.push_back(stack_.back()); return;
      case 'h': stack_.push_back(memo_.at(number(1))); return;
      case 'j': stack_.push_back(memo_.at(number(4))); return;
      case 'K': stack_.emplace_back(number(1)); return;
      case 'M': stack_.emplace_back(number(2)); return;
      case 'J': stack_.emplace_back(static_cast<std::int32_t>(number(4))); return;
      case 0x8a: whole_number(); return;
      case 'G': real(); return;
      case 'N': stack_.emplace_back(nullptr); return;
      case 0x88: stack_.emplace_back(true); return;
      case 0x89: stack_.emplace_back(false); return;
      default: throw std::runtime_error{"opcode " + std::to_string(opcode)};
    }
  }

  // The first of a pair lies below the second.
  json pop_second() {
    json second = std::move(stack_.back());
    stack_.pop_back();
    json first = std::move(stack_.back());
    stack_.back() = std::move(second);
    return first;
  }

  std::size_t pop_mark() {
    std::size_t const mark = marks_.at(marks_.size() - 1);
    marks_.pop_back();
    if (mark == 0 || mark >= stack_.size()) throw std::runtime_error{"a container is filled with nothing"};
    return mark;
  }

  void append() {
    std::size_t const mark = pop_mark();
    for (std::size_t i = mark; i < stack_.size(); ++i) stack_[mark - 1].push_back(std::move(stack_[i]));
    stack_.resize(mark);
  }

  void set_items() {
    std::size_t const mark = pop_mark();
    json& dict = stack_[mark - 1];
    for (std::size_t i = mark; i + 1 < stack_.size(); i += 2) {
      auto const& key = stack_[i].get_ref<std::string const&>();
      if (dict.contains(key)) throw std::runtime_error{"twice in a dict: " + key};
      dict[key] = std::move(stack_[i + 1]);
    }
    if ((stack_.size() - mark) % 2 != 0) throw std::runtime_error{"a key without a value"};
    stack_.resize(mark);
  }

  void text(std::uint64_t bytes) {
    json value = std::string{take(bytes)};
    static_cast<void>(value.dump());  // throws where it is no UTF-8
    stack_.push_back(std::move(value));
  }

  void whole_number() {
    std::string_view const digits = take(number(1));
    bool const negative = (static_cast<unsigned char>(digits.back()) & 0x80U) != 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < digits.size() && i < 8; ++i) {
      value &= ~(std::uint64_t{0xFF} << (8 * i));
      value |= std::uint64_t{static_cast<unsigned char>(digits[i])} << (8 * i);
    }
    if (digits.size() > 9 || (digits.size() == 9 && digits.back() != 0)) throw std::runtime_error{"a number above 64 bits"};
    negative ? stack_.emplace_back(static_cast<std::int64_t>(value)) : stack_.emplace_back(value);
  }

  void real() {
    std::uint64_t bits = 0;
    for (char const byte : take(8)) bits = (bits << 8U) | static_cast<unsigned char>(byte);
    stack_.emplace_back(std::bit_cast<double>(bits));
  }

  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    std::string_view const digits = take(bytes);
    for (std::size_t i = bytes; i-- != 0;) value = (value << 8U) | static_cast<unsigned char>(digits[i]);
    return value;
  }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) throw std::runtime_error{"the pickle ends early"};
    std::string_view const taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  std::vector<json> stack_{};
  std::vector<std::size_t> marks_{};
  std::vector<json> memo_{};
};

inline nlohmann::json unpickled(std::string_view bytes) { return Unpickler{bytes}.run(); }

}  // namespace headroom::test
