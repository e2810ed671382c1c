// What is said of values that do not fit. Of the second pass each sentence follows an opcode's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/pickle/assembler.hpp"

namespace headroom::trace::pickle {

/// "a list"
[[nodiscard]] std::string_view name_of(Type type) noexcept;
/// `retained_limit`: in bytes. Not of Obstacle::none and Obstacle::key.
[[nodiscard]] std::string describe(Obstacle obstacle, std::uint64_t retained_limit);
[[nodiscard]] std::string describe_key(Value const& key);

}  // namespace headroom::trace::pickle
