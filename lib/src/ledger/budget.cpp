#include <headroom/budget.hpp>
#include <headroom/byte_size.hpp>

namespace headroom {

std::string MemoryBudget::to_string() const {
  if (is_unlimited()) return "unlimited";
  return (enforces() ? "" : "observe ") + format_bytes(bytes_);
}

}  // namespace headroom
