#include <headroom/null_resource.hpp>

#include <atomic>
#include <bit>

#include "device/request_checks.hpp"

namespace headroom {
namespace {

// Addresses no Linux process on a 47-bit machine gets from mmap near its defaults, and apart from those of HostResource.
constexpr std::uint64_t kWindowStart = std::uint64_t{0x6000} << 32;
constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 44;
constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 30;
static_assert(kWindowStart % kChunkBytes == 0, "a chunk start serves every alignment up to a chunk");

// Written and read by any thread that needs a new chunk; relaxed, since only distinctness of the results matters.
std::atomic<std::uint64_t> next_chunk{0};

struct Chunk {
  std::uint64_t next = 0;
  std::uint64_t end = 0;
};
thread_local constinit Chunk chunk;

std::uint64_t take_address(std::uint64_t alignment) noexcept {
  auto address = (chunk.next + alignment - 1) & ~(alignment - 1);
  if (address >= chunk.end) [[unlikely]] {
    address = kWindowStart + next_chunk.fetch_add(1, std::memory_order_relaxed) * kChunkBytes % kWindowBytes;
    chunk.end = address + kChunkBytes;
  }
  chunk.next = address + kMinimumAlignment;
  return address;
}

}  // namespace

Result<Block> NullResource::allocate(AllocRequest const& request) {
  if (!acceptable(request)) [[unlikely]]
    return wrong_request(request);
  if (request.alignment > kChunkBytes) {
    return fail(ErrorKind::invalid_argument, Layer::resource,
                "alignment " + std::to_string(request.alignment) + " is above 1 GiB, the most a null resource gives");
  }
  auto const alignment = raised_alignment(request.alignment);
  auto const address = request.bytes == 0 ? 0 : take_address(alignment);
  return Block{.pointer = std::bit_cast<void*>(address),
               .bytes = request.bytes,
               .alignment = alignment,
               .stream = request.stream,
               .generation = address / kMinimumAlignment,
               .device = 0,
               .tag = request.tag};
}

Result<void> NullResource::deallocate(Block const& block) {
  if (block.returns_to != nullptr) block.returns_to->returned(block.bytes);
  return success();
}

Result<void> NullResource::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId) {
  if (!within(block, offset, bytes)) return wrong_range(block, offset, bytes);
  return success();
}

Result<void> NullResource::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source, StreamId) {
  if (!within(block, offset, source.size())) return wrong_range(block, offset, source.size());
  return success();
}

std::uint64_t NullResource::bytes_outstanding() const noexcept { return 0; }

bool NullResource::reports_returns() const noexcept { return true; }

std::string_view NullResource::name() const noexcept { return "null"; }

Result<Device> null_device() { return Device::custom("null", std::make_shared<NullResource>()); }

}  // namespace headroom
