// headroom: errors as values.
// Layer: base
//
// Every call that can fail returns Result<T>. What failed is a kind (decide by it), who said no is a layer (report it), and the
// figures of the decision travel along, so that nobody ever parses a sentence. The words of both enumerations are the label
// values of the exporter and the values in every JSON output.
//
// Thread safety: plain values. Cost: nothing on success; an Error owns at most one string.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace headroom {

/// What went wrong. Stable: numbers are stored in flight files, words in metrics and JSON. Append only.
enum class ErrorKind : std::uint8_t {
  over_budget,           ///< the budget of a manager or account has no room for the request
  device_out_of_memory,  ///< the device said that it has no memory left
  overflow,              ///< count × size, or a size above 16 TiB − 1, cannot be represented
  invalid_argument,      ///< a value outside what the call documents
  no_runtime,            ///< the call needs an attached runtime, and there is none
  driver,                ///< any other failure of the device driver
  stream_misuse,         ///< unknown, foreign or exhausted streams
  use_after_free,        ///< a stale block: its generation is over
  double_free,           ///< the block was freed before
  unknown_pointer,       ///< the pointer never came from here
  wrong_size,            ///< freed with another size than it was allocated with
  wrong_owner,           ///< the block belongs to another manager, guard or resource
  unsupported,           ///< this object cannot do that, and says so loudly
  io,                    ///< the operating system refused a file, socket or mapping
  parse,                 ///< text or bytes that do not follow their format
};
inline constexpr std::size_t kErrorKindCount = 15;

/// Who refused. Same stability rules as ErrorKind.
enum class Layer : std::uint8_t { request, manager, device_account, runtime, resource, driver, guard };
inline constexpr std::size_t kLayerCount = 7;

[[nodiscard]] std::string_view to_string(ErrorKind kind) noexcept;
[[nodiscard]] std::string_view to_string(Layer layer) noexcept;
/// The inverse of to_string; nothing when the word is unknown.
[[nodiscard]] std::optional<ErrorKind> error_kind_from(std::string_view word) noexcept;
[[nodiscard]] std::optional<Layer> layer_from(std::string_view word) noexcept;

/// One of the largest holders of a ledger when it refused. `tag` lives as long as the process.
struct Holder {
  const char* tag = nullptr;
  std::uint64_t bytes = 0;
};

/// Why a call failed. All figures are bytes; an absent figure was not known or has no meaning for this kind.
struct Error {
  ErrorKind kind = ErrorKind::driver;
  Layer layer = Layer::request;
  std::int32_t device_code = 0;      ///< the driver's own code, 0 = none
  bool required_is_clamped = false;  ///< current + requested did not fit 64 bits

  std::optional<std::uint64_t> requested;
  std::optional<std::uint64_t> current;       ///< claimed when the decision fell
  std::optional<std::uint64_t> required;      ///< current + requested
  std::optional<std::uint64_t> limit;         ///< the budget in force
  std::optional<std::uint64_t> peak;          ///< high-water mark of allocated
  std::optional<std::uint64_t> device_free;   ///< what the device said it had
  std::optional<std::uint64_t> device_total;  ///< the device's memory
  /// Used on the device, but not by this process's ledgers: contexts, libraries, others.
  std::optional<std::uint64_t> device_outside;

  std::array<Holder, 3> holders{};         ///< largest tags at the refusal, largest first
  std::uint64_t unspent_bytes = 0;         ///< held by reservations that were not spent
  std::uint32_t unspent_reservations = 0;  ///< … in how many reservations
  std::uint64_t failed_free_bytes = 0;     ///< kept charged by frees that failed
  std::uint32_t failed_frees = 0;          ///< … in how many blocks

  std::string message;  ///< what no figure says: names the value and what was expected

  /// One sentence for people, such as "512 MiB refused by manager (over_budget): 7.8 GiB of 8 GiB claimed (kv-cache 5.1 GiB)".
  /// The text may change between versions; kind, layer and figures do not.
  [[nodiscard]] std::string to_string() const;
};

/// An Error with only a kind, a layer and a message; figures are added by whoever has them.
[[nodiscard]] Error make_error(ErrorKind kind, Layer layer, std::string message);

template <class T>
using Result = tl::expected<T, Error>;

/// `return success();` where every nanosecond counts: `return {};` first clears all bytes of the Error that is not there.
/// (A constant defined elsewhere, since a compiler that sees the value turns the copy into the same clearing.)
extern Result<void> const success_value;
[[nodiscard]] inline Result<void> success() noexcept { return success_value; }

/// `return fail(ErrorKind::parse, Layer::request, "…");` for every Result<T>.
[[nodiscard]] tl::unexpected<Error> fail(ErrorKind kind, Layer layer, std::string message);

}  // namespace headroom
