// What the second pass says of values that do not fit; each follows an opcode's name.
#pragma once

#include <cstdint>
#include <string>

#include "trace/pickle/assembler.hpp"

namespace headroom::trace::pickle {

/// "a list"
[[nodiscard]] std::string name_of(Type type);
/// `retained_limit`: in bytes. Not of Obstacle::none and Obstacle::key.
[[nodiscard]] std::string describe(Obstacle obstacle, std::uint64_t retained_limit);
[[nodiscard]] std::string describe_key(Value const& key);

}  // namespace headroom::trace::pickle
