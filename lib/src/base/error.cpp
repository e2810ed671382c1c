#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/error.hpp>

namespace headroom {

constinit Result<void> const success_value{};
namespace {

constexpr std::array<std::string_view, kErrorKindCount> kKindWords{"over_budget",   "device_out_of_memory",
                                                                   "overflow",      "invalid_argument",
                                                                   "no_runtime",    "driver",
                                                                   "stream_misuse", "use_after_free",
                                                                   "double_free",   "unknown_pointer",
                                                                   "wrong_size",    "wrong_owner",
                                                                   "unsupported",   "io",
                                                                   "parse"};
constexpr std::array<std::string_view, kLayerCount> kLayerWords{"request",  "manager", "device_account", "runtime",
                                                                "resource", "driver",  "guard"};

template <class Enum, std::size_t N>
std::string_view word_of(std::array<std::string_view, N> const& words, Enum value) noexcept {
  // Both enumerations are read from files too: a number from a newer version has no word here.
  auto const index = static_cast<std::size_t>(value);
  return index < N ? words[index] : "unknown";
}

template <class Enum, std::size_t N>
std::optional<Enum> value_of(std::array<std::string_view, N> const& words, std::string_view word) noexcept {
  auto const found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<Enum>(found - words.begin());
}

/// Within a parenthesis of its own: one exact form, without a second pair of brackets.
std::string holder_bytes(std::uint64_t bytes) {
  auto text = format_bytes(bytes);
  return format_bytes_exact(bytes) == text ? text : format_count(bytes) + " B";
}

std::string holders_text(std::array<Holder, 3> const& holders) {
  std::string text;
  for (auto const& holder : holders) {
    if (holder.tag == nullptr || holder.bytes == 0) continue;
    text += text.empty() ? " (" : ", ";
    text += std::string{holder.tag[0] == '\0' ? "untagged" : holder.tag} + ' ' + holder_bytes(holder.bytes);
  }
  return text.empty() ? text : text + ')';
}

/// "100 MiB in a failed free", "300 MiB in 2 unspent reservations".
std::string held_in(std::uint64_t bytes, std::uint32_t count, std::string_view what) {
  auto const text = format_bytes_exact(bytes) + " in ";
  if (count == 1) return text + (what.front() == 'u' ? "an " : "a ") + std::string{what};
  return text + format_count(count) + ' ' + std::string{what} + 's';
}

void add_clause(std::string& text, std::string const& clause) {
  if (!text.empty()) text += ", ";
  text += clause;
}

/// "4 GiB of 9 GiB free on the device, 1 GiB used outside the ledgers"; what is unknown is left out.
void add_device(std::string& text, Error const& error) {
  if (error.device_free) {
    const auto of_total = error.device_total ? " of " + format_bytes_exact(*error.device_total) : std::string{};
    add_clause(text, format_bytes_exact(*error.device_free) + of_total + " free on the device");
  } else if (error.device_total) {
    add_clause(text, "the device has " + format_bytes_exact(*error.device_total));
  }
  if (error.device_outside) add_clause(text, format_bytes_exact(*error.device_outside) + " used outside the ledgers");
}

std::string figures_text(Error const& error) {
  std::string text;
  if (error.current && error.limit) {
    text = format_bytes_exact(*error.current) + " of " + format_bytes_exact(*error.limit) + " claimed";
  } else if (error.current) {
    text = format_bytes_exact(*error.current) + " claimed";
  } else if (error.limit) {
    text = "the limit is " + format_bytes_exact(*error.limit);
  }
  if (auto const holders = holders_text(error.holders); !holders.empty()) text += (text.empty() ? "held" : "") + holders;
  if (error.unspent_reservations != 0)
    add_clause(text, held_in(error.unspent_bytes, error.unspent_reservations, "unspent reservation"));
  if (error.failed_frees != 0) add_clause(text, held_in(error.failed_free_bytes, error.failed_frees, "failed free"));
  if (error.peak) add_clause(text, "peak " + format_bytes_exact(*error.peak));
  add_device(text, error);
  if (error.required_is_clamped) add_clause(text, "the sum does not fit 64 bits");
  return text;
}

}  // namespace

std::string_view to_string(ErrorKind kind) noexcept { return word_of(kKindWords, kind); }
std::string_view to_string(Layer layer) noexcept { return word_of(kLayerWords, layer); }
std::optional<ErrorKind> error_kind_from(std::string_view word) noexcept { return value_of<ErrorKind>(kKindWords, word); }
std::optional<Layer> layer_from(std::string_view word) noexcept { return value_of<Layer>(kLayerWords, word); }

std::string Error::to_string() const {
  auto details = figures_text(*this);
  if (device_code != 0) add_clause(details, "driver code " + std::to_string(device_code));
  // A parse or io message is a sentence already; "refused by request (parse)" in front of it would tell nobody anything.
  if (!requested && details.empty() && !message.empty()) return message;
  auto text = requested ? format_bytes_exact(*requested) + " refused by " : std::string{"refused by "};
  text += headroom::to_string(layer);
  text += " (";
  text += headroom::to_string(kind);
  text += ')';
  if (!details.empty()) text += ": " + details;
  if (!message.empty()) text += (details.empty() ? ": " : "; ") + message;
  return text;
}

Error make_error(ErrorKind kind, Layer layer, std::string message) {
  Error error;
  error.kind = kind;
  error.layer = layer;
  error.message = std::move(message);
  return error;
}

tl::unexpected<Error> fail(ErrorKind kind, Layer layer, std::string message) {
  return tl::unexpected<Error>{make_error(kind, layer, std::move(message))};
}

}  // namespace headroom
