#include "device/request_checks.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <utility>

namespace headroom {

tl::unexpected<Error> wrong_request(AllocRequest const& request) {
  auto error = request.bytes > kLargestRequest
                   ? make_error(ErrorKind::overflow, Layer::resource,
                                std::to_string(request.bytes) + " bytes are more than the largest request, 16 TiB - 1")
                   : make_error(ErrorKind::invalid_argument, Layer::resource,
                                "alignment " + std::to_string(request.alignment) + " is not a power of two");
  error.requested = request.bytes;
  return tl::make_unexpected(std::move(error));
}

tl::unexpected<Error> wrong_range(Block const& block, std::uint64_t offset, std::uint64_t bytes) {
  return fail(ErrorKind::invalid_argument, Layer::resource,
              std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " reach beyond the block's " +
                  std::to_string(block.bytes) + " bytes");
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 16> digits{};
  auto* const end = std::to_chars(digits.begin(), digits.end(), value, 16).ptr;
  return "0x" + std::string(digits.begin(), end);
}

Error misused_block(Block const& block, MisusedBlock const& found) {
  auto const at = hexadecimal(std::bit_cast<std::uint64_t>(block.pointer));
  auto const bytes = std::to_string(block.bytes);
  std::string message;
  switch (found.misuse) {
    case ErrorKind::double_free: message = "the block of " + bytes + " bytes at " + at + " was freed before"; break;
    case ErrorKind::use_after_free:
      message = "the block of " + bytes + " bytes at " + at + " is over; its address is another block now";
      break;
    case ErrorKind::wrong_size:
      message = "the block at " + at + " has " + std::to_string(found.recorded_bytes) + " bytes, not " + bytes;
      break;
    default: message = std::string{found.resource} + " never handed out " + at; break;
  }
  return make_error(found.misuse, Layer::resource, std::move(message));
}

}  // namespace headroom
