#include "device/request_checks.hpp"

#include <string>
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

}  // namespace headroom
