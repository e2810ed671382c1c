// Pickles as literals, and what the reader makes of them, written as Python would.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/pickle/machine.hpp"

namespace headroom::test {

using namespace std::string_literals;
using namespace std::string_view_literals;
namespace pickle = trace::pickle;

/// Delivers a text in pieces of at most `piece` bytes; after it an error, where there is one.
class PieceSource final : public trace::ByteSource {
public:
  explicit PieceSource(std::string_view content, std::size_t piece = std::string_view::npos, std::optional<Error> error = {})
      : rest_{content}, piece_{piece}, error_{std::move(error)} {}
  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    auto const count = std::min({buffer.size(), rest_.size(), piece_});
    if (count == 0 && error_) return tl::unexpected{*error_};
    std::copy_n(rest_.data(), count, buffer.data());
    rest_.remove_prefix(count);
    return count;
  }

private:
  std::string_view rest_;
  std::size_t piece_;
  std::optional<Error> error_;
};

/// As Python writes it; a list whose items were taken as `<3 taken>`.
inline std::string python(pickle::Value const& value) {
  auto const joined = [](auto const& parts, auto const& write) {
    std::string text;
    for (auto const& part : parts) text += (text.empty() ? "" : ", ") + write(part);
    return text;
  };
  switch (value.type()) {
    case pickle::Type::none: return "None";
    case pickle::Type::boolean: return value.boolean() ? "True" : "False";
    case pickle::Type::integer:
      return value.is_unsigned() ? std::to_string(*value.unsigned_value()) : std::to_string(*value.signed_value());
    case pickle::Type::real: {
      char text[40];
      static_cast<void>(std::snprintf(text, sizeof text, "%g", value.real()));
      return text;
    }
    case pickle::Type::text: return "'" + std::string{value.text()} + "'";
    case pickle::Type::bytes: return "b'" + std::string{value.text()} + "'";
    case pickle::Type::list:
      if (value.taken_items() != 0) return "<" + std::to_string(value.taken_items()) + " taken>";
      return "[" + joined(value.items(), python) + "]";
    case pickle::Type::tuple: return "(" + joined(value.items(), python) + (value.items().size() == 1 ? ",)" : ")");
    case pickle::Type::dict: break;
  }
  return "{" + joined(value.entries(), [](pickle::Entry const& e) { return python(e.key) + ": " + python(e.value); }) + "}";
}

/// "/device_traces/0"; the root is "".
inline std::string path_text(pickle::Path const& path) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    text += '/';
    auto const* const key = path.key(i);
    text += key == nullptr ? std::to_string(*path.index(i)) : std::string{key->text()};
  }
  return text;
}

/// Takes the lists at the given paths, and writes down what it is asked and given.
class Taker final : public pickle::Visitor {
public:
  explicit Taker(std::vector<std::string> wanted = {}) : wanted_{std::move(wanted)} {}
  [[nodiscard]] bool takes_items_of(pickle::Path const& list) override {
    asked.push_back(path_text(list));
    return std::ranges::find(wanted_, asked.back()) != wanted_.end();
  }
  [[nodiscard]] Result<void> item(pickle::Path const& item, pickle::Value const& value) override {
    items.push_back(path_text(item) + " = " + python(value));
    if (on_item) return on_item(value);
    return success();
  }

  std::vector<std::string> asked{};
  std::vector<std::string> items{};
  std::function<Result<void>(pickle::Value const&)> on_item{};

private:
  std::vector<std::string> wanted_;
};

struct Unpickled {
  std::string value;  ///< as Python writes it
  std::string error;  ///< its message; "" = none
  bool by_scan = false;
  std::vector<std::string> asked;
  std::vector<std::string> items;
};

/// Both passes; the second only where the first found nothing wrong.
inline Unpickled unpickle(std::string_view content, std::vector<std::string> wanted = {},
                          std::size_t piece = std::string_view::npos) {
  Unpickled result;
  PieceSource first{content, piece};
  auto const reuse = pickle::scan(first, "x.pickle");
  if (!reuse) {
    result.error = reuse.error().message;
    result.by_scan = true;
    return result;
  }
  PieceSource second{content, piece};
  Taker taker{std::move(wanted)};
  pickle::Machine machine{second, "x.pickle", *reuse, taker};
  auto more = machine.advance();
  while (more && *more) more = machine.advance();
  if (more) {
    result.value = python(machine.root());
  } else {
    result.error = more.error().message;
  }
  result.asked = std::move(taker.asked);
  result.items = std::move(taker.items);
  return result;
}

}  // namespace headroom::test
