// The process's tag names: a number for each, found again by name, never freed. Numbers are what AllocTag holds.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::flight {

inline constexpr std::uint16_t kTagNames = 4096;
inline constexpr std::uint16_t kUntagged = 0;

/// The number of a name; a full table gives the number of "other".
[[nodiscard]] std::uint16_t intern_tag_name(std::string_view name);
/// Numbers in use lie below this; it only grows. (`other`, the last number, is not counted.)
[[nodiscard]] std::uint16_t tag_names_used() noexcept;
/// The name of a number, zero terminated, as long as the process lives.
[[nodiscard]] const char* tag_name(std::uint16_t tag) noexcept;

/// For the fork handlers: a child must not inherit the mutex locked by a thread that it does not have.
void lock_tag_names() noexcept;
void unlock_tag_names() noexcept;

}  // namespace headroom::flight
