#include "negotiation.hpp"

#include <algorithm>
#include <optional>

namespace headroom::exporter {
namespace {

char lower(char letter) noexcept { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter; }

bool is_blank(char character) noexcept { return character == ' ' || character == '\t'; }

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string in_lower_case(std::string_view text) {
  std::string result{text};
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

/// What stands before the next `separator` that is in no quoted string; it and the separator are taken off `text`.
std::string_view take_until(char separator, std::string_view& text) noexcept {
  bool is_quoted = false;
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (is_quoted && text[end] == '\\') {
      ++end;
    } else if (text[end] == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && text[end] == separator) {
      break;
    }
  }
  end = std::min(end, text.size());
  const auto part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::string unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::string{text};
  std::string result;
  for (std::size_t at = 1; at + 1 < text.size(); ++at) {
    if (text[at] == '\\' && at + 2 < text.size()) ++at;
    result += text[at];
  }
  return result;
}

/// `0`, `0.25`, `1.000`: up to three digits after the point, and nothing above 1.
std::optional<int> parse_weight(std::string_view text) noexcept {
  constexpr std::size_t kDigits = 3;
  if (text.empty() || (text[0] != '0' && text[0] != '1')) return std::nullopt;
  int weight = (text[0] - '0') * kFullWeight;
  if (text.size() > 1 && (text[1] != '.' || text.size() > 2 + kDigits)) return std::nullopt;
  int step = kFullWeight / 10;
  for (std::size_t at = 2; at < text.size(); ++at, step /= 10) {
    if (text[at] < '0' || text[at] > '9') return std::nullopt;
    weight += (text[at] - '0') * step;
  }
  return weight <= kFullWeight ? std::optional{weight} : std::nullopt;
}

std::optional<Preference> parse_one(std::string_view text) {
  Preference preference{.name = in_lower_case(trimmed(take_until(';', text)))};
  if (preference.name.empty()) return std::nullopt;
  while (!text.empty()) {
    auto parameter = take_until(';', text);
    const auto name = in_lower_case(trimmed(take_until('=', parameter)));
    const auto value = unquoted(trimmed(parameter));
    if (name == "q") {
      const auto weight = parse_weight(value);
      if (!weight) return std::nullopt;
      preference.weight = *weight;
    } else if (!name.empty()) {
      preference.parameters.emplace_back(name, value);
    }
  }
  return preference;
}

bool agrees_on_version(Preference const& preference, Offer offer) {
  const auto found = std::ranges::find(preference.parameters, "version", [](auto const& one) { return one.first; });
  return found == preference.parameters.end() || found->second == offer.version;
}

/// The weight of the elements that name the type itself; nothing when none does. The highest counts, since elements of one type differ
/// in parameters of which we know nothing.
std::optional<int> weight_by_name(std::vector<Preference> const& preferences, Offer offer) {
  std::optional<int> weight;
  for (auto const& preference : preferences) {
    if (preference.name != offer.type || !agrees_on_version(preference, offer)) continue;
    weight = std::max(weight.value_or(0), preference.weight);
  }
  return weight;
}

/// The same, or else that of the wildcards; 0 when nothing matches.
int weight_of(std::vector<Preference> const& preferences, Offer offer) {
  if (const auto named = weight_by_name(preferences, offer)) return *named;
  const auto any_of_kind = std::string{offer.type.substr(0, offer.type.find('/'))} + "/*";
  for (auto const& wildcard : {any_of_kind, std::string{"*/*"}}) {
    const auto found = std::ranges::find(preferences, wildcard, &Preference::name);
    if (found != preferences.end()) return found->weight;
  }
  return 0;
}

}  // namespace

std::vector<Preference> parse_preferences(std::string_view header) {
  std::vector<Preference> preferences;
  while (!header.empty()) {
    if (auto preference = parse_one(take_until(',', header))) preferences.push_back(std::move(*preference));
  }
  return preferences;
}

bool prefers(std::string_view accept, Offer special, Offer usual) {
  const auto preferences = parse_preferences(accept);
  const auto weight = weight_by_name(preferences, special).value_or(0);
  return weight > 0 && weight >= weight_of(preferences, usual);
}

bool accepts_gzip(std::string_view accept_encoding) {
  const auto preferences = parse_preferences(accept_encoding);
  const auto weight_of_name = [&preferences](std::string_view name) -> std::optional<int> {
    const auto found = std::ranges::find(preferences, name, &Preference::name);
    return found == preferences.end() ? std::nullopt : std::optional{found->weight};
  };
  auto weight = weight_of_name("gzip");
  if (!weight) weight = weight_of_name("x-gzip");
  if (!weight) weight = weight_of_name("*");
  return weight.value_or(0) > 0 && *weight >= weight_of_name("identity").value_or(0);
}

}  // namespace headroom::exporter
