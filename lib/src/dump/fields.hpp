// Members of an object of a parsed dump. A member that is not there leaves what it would set as it is; one of another type than it must
// have is remembered as the problem, with its place, what was found and what was expected: the first one counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "dump/numbers.hpp"
#include "dump/words.hpp"

namespace headroom::dump {

class Problem {
public:
  void note(std::string const& place, nlohmann::json const& found, std::string_view expected) {
    if (!text_.empty()) return;
    constexpr std::size_t kMostShown = 60;
    std::string shown = found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (shown.size() > kMostShown) shown = shown.substr(0, kMostShown) + "...";
    text_ = place + ": found " + shown + ", expected " + std::string{expected};
  }
  [[nodiscard]] std::string const& text() const noexcept { return text_; }

private:
  std::string text_;
};

class Fields {
public:
  Fields(nlohmann::json const& object, std::string place, Problem& problem)
      : object_{object}, place_{std::move(place)}, problem_{problem} {
    if (!object_.is_object()) problem_.note(place_, object_, "an object");
  }

  void number(char const* name, std::uint64_t& into) const {
    if (auto const found = optional_number(name)) into = *found;
  }
  void number(char const* name, std::optional<std::uint64_t>& into) const { into = optional_number(name); }
  template <std::unsigned_integral T>
    requires(sizeof(T) < 8 && !std::same_as<T, bool>)
  void number(char const* name, T& into) const {
    auto const found = optional_number(name);
    if (!found) return;
    if (*found <= static_cast<T>(~T{0})) {
      into = static_cast<T>(*found);
    } else {
      problem_.note(path(name), *find(name), "a smaller number");
    }
  }
  void number(char const* name, std::int64_t& into) const {
    auto const* const value = find(name);
    if (value == nullptr) return;
    if (value->is_number_integer() && !value->is_number_unsigned()) {
      into = value->get<std::int64_t>();
    } else if (auto const whole = whole_number_of(*value); whole && *whole <= static_cast<std::uint64_t>(INT64_MAX)) {
      into = static_cast<std::int64_t>(*whole);
    } else if (auto const text = value->is_string() ? value->get<std::string>() : std::string{}; text.starts_with('-')) {
      auto const below = whole_number(std::string_view{text}.substr(1));
      if (below && *below <= static_cast<std::uint64_t>(INT64_MAX)) {
        into = -static_cast<std::int64_t>(*below);
      } else {
        problem_.note(path(name), *value, "a whole number");
      }
    } else {
      problem_.note(path(name), *value, "a whole number");
    }
  }
  void flag(char const* name, bool& into) const {
    auto const* const value = find(name);
    if (value == nullptr) return;
    if (value->is_boolean()) {
      into = value->get<bool>();
    } else {
      problem_.note(path(name), *value, "true or false");
    }
  }
  void text(char const* name, std::string& into) const {
    auto const* const value = find(name);
    if (value == nullptr) return;
    if (value->is_string()) {
      into = unescaped(value->get_ref<std::string const&>());
    } else {
      problem_.note(path(name), *value, "a text");
    }
  }
  /// A word of a later version leaves `into` as it is.
  template <class Enum, std::size_t N>
  void word(char const* name, std::array<std::string_view, N> const& words, Enum& into) const {
    std::string found;
    text(name, found);
    if (auto const value = value_of<Enum>(words, found)) into = *value;
  }

  /// visit(Fields) for the object behind the name, if there is one.
  template <class Visit>
  void object(char const* name, Visit const& visit) const {
    if (auto const* const value = find(name)) visit(Fields{*value, path(name), problem_});
  }
  /// visit(element, place) for each element.
  template <class Visit>
  void elements(char const* name, Visit const& visit) const {
    auto const* const value = find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return problem_.note(path(name), *value, "an array");
    for (std::size_t i = 0; i < value->size(); ++i) visit((*value)[i], path(name) + '[' + std::to_string(i) + ']');
  }
  /// visit(Fields) for each element, all of which are objects.
  template <class Visit>
  void objects(char const* name, Visit const& visit) const {
    elements(name, [&](nlohmann::json const& element, std::string const& place) { visit(Fields{element, place, problem_}); });
  }
  /// Numbers in the order of their buckets; what is left out at the end is zero.
  template <std::size_t N>
  void histogram(char const* name, std::array<std::uint64_t, N>& into) const {
    std::size_t bucket = 0;
    elements(name, [&](nlohmann::json const& element, std::string const& place) {
      auto const number = whole_number_of(element);
      if (!number || bucket >= N)
        return problem_.note(place, element, "a whole number, in at most " + std::to_string(N) + " buckets");
      into[bucket++] = *number;
    });
  }
  [[nodiscard]] Problem& problem() const noexcept { return problem_; }

private:
  [[nodiscard]] nlohmann::json const* find(char const* name) const {
    if (!object_.is_object()) return nullptr;
    auto const found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::optional<std::uint64_t> optional_number(char const* name) const {
    auto const* const value = find(name);
    if (value == nullptr) return std::nullopt;
    auto const number = whole_number_of(*value);
    if (!number) problem_.note(path(name), *value, "a whole number");
    return number;
  }
  [[nodiscard]] std::string path(char const* name) const { return place_.empty() ? name : place_ + '.' + name; }

  nlohmann::json const& object_;
  std::string place_;
  Problem& problem_;
};

}  // namespace headroom::dump
