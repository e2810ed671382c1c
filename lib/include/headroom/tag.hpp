// headroom: allocation tags, the names under which memory is held.
// Layer: flight
//
// Prefer one long-lived AllocTag for each purpose (`static const AllocTag kKvCache{"kv-cache"};`): making one looks its name up in
// a table of the process (about 50 ns), using one costs nothing. A TagScope sets what untagged allocations of this thread are
// called. The ledgers of a process show up to 192 tags in all, one that two ledgers have counting twice; the
// rest are folded into their ledger's `other`, counted.
//
// Thread safety: AllocTag is a value; a TagScope belongs to the thread that made it.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

class AllocTag {
public:
  /// The thread's scoped tag at the time of the allocation; "untagged" without a scope.
  constexpr AllocTag() noexcept = default;
  /// Names longer than 95 bytes are cut at a character; invalid UTF-8 is replaced; an empty name is the default tag.
  explicit AllocTag(std::string_view name);

  [[nodiscard]] std::string_view name() const noexcept;
  [[nodiscard]] constexpr std::uint16_t id() const noexcept { return id_; }
  [[nodiscard]] constexpr bool is_default() const noexcept { return id_ == 0; }
  friend constexpr bool operator==(AllocTag, AllocTag) = default;

private:
  friend class TagScope;
  constexpr explicit AllocTag(std::uint16_t id) noexcept : id_(id) {}
  std::uint16_t id_ = 0;
};

/// Names the untagged allocations of this thread until it goes out of scope; scopes nest.
class [[nodiscard]] TagScope {
public:
  explicit TagScope(AllocTag tag) noexcept;
  ~TagScope();
  TagScope(TagScope const&) = delete;
  TagScope& operator=(TagScope const&) = delete;

private:
  std::uint16_t outer_;
};

}  // namespace headroom
