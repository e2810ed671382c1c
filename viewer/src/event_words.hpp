// headroom: events in words, as the log shows them. No ImGui. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/follow.hpp>

namespace headroom::viewer {

inline constexpr std::string_view kUntagged = "untagged";

/// One or two words: "allocate", "refused", "hook ends". A kind of a later version is "unknown".
[[nodiscard]] std::string_view word_of(flight::EventKind kind) noexcept;

/// "0x7f12_3400_0000" would not be found by anybody: "0x7f1234000000".
[[nodiscard]] std::string address_in_words(std::uint64_t address);

/// What an event of the journal says: "none → high at 4.2 GiB claimed"; one line.
[[nodiscard]] std::string event_in_words(follow::Model const& model, flight::Event const& event);

/// A failure, pressure that rises, what was lost: what the eye should find.
enum class Weight : std::uint8_t { usual, notable, bad };
[[nodiscard]] Weight weight_of(flight::EventKind kind) noexcept;

}  // namespace headroom::viewer
