// The folder of the post-mortems that programs write by themselves: where it is, and that it does not grow without bound.
//
// Nothing here allocates: names are built in memory that somebody else owns, and the folder is listed by the kernel's own call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headroom::dump {

inline constexpr std::string_view kSuffix = ".post-mortem.json";
inline constexpr std::string_view kTemporarySuffix = ".post-mortem.json.tmp";
inline constexpr std::size_t kPathBytes = 4096;

/// A path or name, zero terminated. One that does not fit is empty.
class FixedPath {
public:
  [[nodiscard]] bool add(std::string_view text) noexcept;
  [[nodiscard]] bool add_number(std::uint64_t number) noexcept;
  void clear() noexcept { size_ = 0, text_[0] = '\0'; }
  [[nodiscard]] char const* c_str() const noexcept { return text_.data(); }
  [[nodiscard]] char* data() noexcept { return text_.data(); }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }

private:
  std::array<char, kPathBytes> text_{};
  std::size_t size_ = 0;
};

/// HEADROOM_DUMP_DIR, else `headroom` under the XDG state folder, as an absolute path; false: none of the variables leads anywhere, or it
/// is too long.
[[nodiscard]] bool find_dump_folder(FixedPath& folder) noexcept;

/// Opens it, and makes it (0700) with all above it where it is missing. A descriptor, or −1 with errno.
[[nodiscard]] int open_dump_folder(FixedPath const& folder) noexcept;

struct FolderCaps {
  std::uint64_t files = 32;
  std::uint64_t bytes = std::uint64_t{512} << 20;
};

/// Removes this user's oldest dumps, whatever program's, until the folder keeps to the caps; never `newest`, and nothing that is not
/// named as programs name their own: what somebody else has put there stays, and counts for nothing. Temporary files that a
/// killed program left an hour ago go too. `scratch` is what the folder is listed into, 4 KiB at least.
void keep_to_caps(int folder, std::string_view newest, FolderCaps const& caps, std::span<char> scratch) noexcept;

}  // namespace headroom::dump
