#include "trace/pickle/words.hpp"

namespace headroom::trace::pickle {

std::string_view name_of(Type type) noexcept {
  switch (type) {
    case Type::none: return "none";
    case Type::boolean: return "a boolean";
    case Type::integer: return "an integer";
    case Type::real: return "a real number";
    case Type::text: return "a text";
    case Type::bytes: return "bytes";
    case Type::list: return "a list";
    case Type::tuple: return "a tuple";
    case Type::dict: break;
  }
  return "a dict";
}

std::string describe(Obstacle obstacle, std::uint64_t retained_limit) {
  switch (obstacle) {
    case Obstacle::none:
    case Obstacle::key: return {};
    case Obstacle::too_much:
      return " when too many values are alive; expected at most " + std::to_string(retained_limit) + " bytes of them at one time";
    case Obstacle::too_deep: return " nests values too deep; expected at most " + std::to_string(kMaxDepth) + " levels";
    case Obstacle::sealed:
      return " changes what was put somewhere or fetched again before; expected values that do not contain themselves";
    case Obstacle::other_run: break;
  }
  return " that the first reading did not see; expected the same bytes again";
}

std::string describe_key(Value const& key) {
  auto const* const nested = key.is(Type::tuple) ? " of other things" : "";
  return " with " + std::string{name_of(key.type())} + nested + " as key; expected a text, an integer, or a tuple of them";
}

}  // namespace headroom::trace::pickle
