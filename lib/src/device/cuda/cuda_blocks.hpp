// headroom: the live blocks of a CUDA resource, by address, in shards with a short lock each.
//
// A generation is a block's number in its shard and a checksum over number and address. A block that is not live but carries the
// right checksum was handed out here: so double frees are told from foreign pointers without remembering what was freed.
//
// A block leaves the table *before* CUDA is asked to free it: its address may be handed out again by the time the call returns. If
// CUDA refuses, it is put back.
//
// Thread safety: every member, from any thread. Cost: a short lock, one or two cache lines; 32 bytes a block, at most three quarters
// full.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <headroom/device.hpp>

#include "base/short_lock.hpp"
#include "device/host_blocks.hpp"

namespace headroom::device {

class CudaBlocks {
public:
  CudaBlocks() noexcept;

  /// What CUDA gave: `base` is what it wants back, `pointer` the first aligned byte.
  struct Memory {
    void* pointer = nullptr;
    void* base = nullptr;
    std::uint64_t bytes = 0;  ///< as requested
  };
  struct Live {
    Memory memory{};
    std::uint64_t generation = 0;
    StreamId stream{};  ///< of the allocation
  };
  struct Lookup {
    bool found = false;
    ErrorKind misuse = ErrorKind::unknown_pointer;  ///< of a block that was not found
    std::uint64_t recorded_bytes = 0;               ///< for wrong_size
    Live live{};
    bool taken = false;  ///< by take: it is out of the table
  };

  struct Added {
    std::uint64_t generation = 0;
    std::uint64_t replaced_bytes = 0;  ///< of a block at this address that was freed around us
  };
  /// Strong exception safety (bad_alloc).
  [[nodiscard]] Added add(Memory const& memory, StreamId stream);
  [[nodiscard]] Lookup find(Block const& block) noexcept;
  /// Takes the block out.
  [[nodiscard]] Lookup take(Block const& block) noexcept;
  /// Takes the block out if it was allocated on its stream as the caller has it; else tells only that it is there.
  [[nodiscard]] Lookup take_on_own_stream(Block const& block) noexcept;
  /// After a free that CUDA refused.
  void put_back(Live const& live);
  [[nodiscard]] bool is_live(void const* pointer, std::uint64_t generation) noexcept;
  /// Takes out everything.
  [[nodiscard]] std::vector<Live> take_all();

private:
  struct alignas(64) Shard {
    ShortLock lock;  // guards what follows
    HostBlocks blocks{64};
    std::uint64_t serial = 0;                        // of the last block
    std::unordered_map<std::uint64_t, void*> bases;  // by granule, of blocks whose base is elsewhere
  };
  static constexpr unsigned kGranuleShift = 8;  // CUDA aligns to 256 bytes at least
  static constexpr std::size_t kShards = 16;

  [[nodiscard]] static std::uint64_t granule_of(void const* pointer) noexcept {
    return std::bit_cast<std::uint64_t>(pointer) >> kGranuleShift;
  }
  [[nodiscard]] Shard& shard_of(std::uint64_t granule) noexcept {
    return shards_[(granule * 0xC2B2AE3D27D4EB4FU) >> 60U];  // not the factor of the table: all of a shard would meet there
  }
  [[nodiscard]] std::uint64_t sign(std::uint64_t serial, std::uint64_t granule) const noexcept;
  /// Under the shard's lock. Null: misuse, described in `found`.
  [[nodiscard]] HostBlocks::Entry const* look(Shard& shard, Block const& block, Lookup& found) const noexcept;
  template <class Condition>
  [[nodiscard]] Lookup take_if(Block const& block, Condition const& condition) noexcept;
  static void fill(Shard& shard, HostBlocks::Entry const& entry, Live& live) noexcept;

  std::uint64_t const salt_;  // differs from resource to resource, see sign
  std::array<Shard, kShards> shards_;
};

}  // namespace headroom::device
