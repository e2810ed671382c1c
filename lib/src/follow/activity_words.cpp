// What threads are doing, in words.
#include <headroom/byte_size.hpp>
#include <headroom/follow_words.hpp>

namespace headroom::follow {

std::string operation_in_words(flight::InFlight operation, std::uint64_t bytes, std::string_view device, bool is_slow) {
  auto const size = format_bytes(bytes);
  auto const whom = device.empty() ? std::string{"the device"} : std::string{device};
  auto asking = is_slow ? "asking " + whom + " for " + size : "allocating " + size;
  switch (operation) {
    case flight::InFlight::allocating: return asking;
    case flight::InFlight::spending: return asking + " out of a reservation";
    case flight::InFlight::freeing: return is_slow ? "giving " + size + " back to " + whom : "freeing " + size;
    case flight::InFlight::reserving: return "reserving " + size;
    case flight::InFlight::dropping: return "dropping a reservation of " + size;
    case flight::InFlight::none: break;
  }
  return "idle";
}

std::string shortage_in_words(flight::PolicyStep doing, std::uint64_t bytes) {
  auto const size = format_bytes(bytes);
  switch (doing) {
    case flight::PolicyStep::waited: return "waiting for room for " + size;
    case flight::PolicyStep::checkpoint: return "in the checkpoint callback, short of " + size;
    default: return "waiting for a hook on another thread, short of " + size;
  }
}

}  // namespace headroom::follow
