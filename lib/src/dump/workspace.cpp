#include "dump/workspace.hpp"

#include <memory>

#include <sys/mman.h>

namespace headroom::dump {
namespace {

/// Lays pieces out one behind the other; without a base it only counts.
class Pieces {
public:
  explicit Pieces(std::byte* base) noexcept : base_{base} {}

  template <class T>
  [[nodiscard]] std::span<T> take(std::size_t count) noexcept {
    static_assert(alignof(T) <= 64);
    at_ = (at_ + 63) / 64 * 64;
    const std::size_t begin = at_;
    at_ += count * sizeof(T);
    if (base_ == nullptr) return {};
    T* const first = reinterpret_cast<T*>(base_ + begin);
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return at_; }

private:
  std::byte* base_;
  std::size_t at_ = 0;
};

}  // namespace

Workspace::Workspace(WorkspaceSizes const& sizes) noexcept {
  const auto lay_out = [&](Pieces pieces) {
    buffer = pieces.take<char>(kBufferBytes);
    places = pieces.take<Place>(sizes.places);
    sites = pieces.take<SiteSum>(sizes.places);
    live = pieces.take<LiveKey>(sizes.slots);
    tags = pieces.take<TagSum>(kMostTags);
    operations = pieces.take<flight::InFlightOperation>(sizes.lanes);
    rings = pieces.take<RingState>(std::size_t{2} * sizes.lanes);
    heap = pieces.take<RingKey>(std::size_t{2} * sizes.lanes);
    syncs = pieces.take<flight::ClockMap::Sync>(sizes.syncs);
    return pieces.bytes();
  };
  const std::size_t bytes = lay_out(Pieces{nullptr});
  // Populated, by the kernel and by construction: pages that were only promised might not be there when they are needed.
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return;
  base_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  static_cast<void>(lay_out(Pieces{base_}));
}

Workspace::~Workspace() {
  if (base_ == nullptr) return;
  std::ranges::destroy(operations);  // the only ones that may own something, and never do: their names stay empty
  munmap(base_, bytes_);
}

}  // namespace headroom::dump
