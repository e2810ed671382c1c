// Where the live blocks of one device lie, without any two of them overlapping.
//
// Records can have two live blocks at one address: a log writes a free after it happened, so that another thread's allocation of the
// same memory may stand before it, and two stand-ins for devices may hand out the same addresses. PyTorch's tools know a block by its
// address alone, and would take the one for the other. So a block that overlaps one that is live gets a place of its own instead, above
// all addresses of real memory and below 2^53, up to which readers in browsers count; so does memory of which no address is known.
//
// Memory: proportional to the live blocks. Cost: logarithmic in them, however many lie at one address.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace headroom::dump {

struct TorchPlaced {
  std::uint64_t address = 0;  ///< as recorded
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t ledger = 0;
  std::uint32_t tag = 0;
  std::uint32_t site = 0;
  std::uint64_t age = 0;  ///< add() numbers them
};

class TorchPlaces {
public:
  /// Where places of their own begin.
  static constexpr std::uint64_t kElsewhere = std::uint64_t{1} << 52U;
  static constexpr std::uint64_t kGranule = 512;  ///< such places begin at multiples of this

  /// Its place: its address, or one of its own. Absent: the address space is full, which only a forged file can bring about.
  [[nodiscard]] std::optional<std::uint64_t> add(TorchPlaced block);
  /// One of its own in any case.
  [[nodiscard]] std::optional<std::uint64_t> add_elsewhere(TorchPlaced block);
  struct Taken {
    std::uint64_t place = 0;
    TorchPlaced block{};
  };
  /// Takes out the oldest block of this ledger that was recorded at this address with these bytes.
  [[nodiscard]] std::optional<Taken> take(std::uint32_t ledger, std::uint64_t address, std::uint64_t bytes);
  [[nodiscard]] std::optional<TorchPlaced> take_from(std::uint64_t place);

  /// By place: what is live.
  [[nodiscard]] std::map<std::uint64_t, TorchPlaced> const& blocks() const noexcept { return blocks_; }
  /// How often a block was not placed where it was recorded.
  [[nodiscard]] std::uint64_t moved() const noexcept { return moved_count_; }

private:
  using Blocks = std::map<std::uint64_t, TorchPlaced>;

  /// Ledger, address and bytes as recorded, age, and where it lies: of those that are alike the oldest comes first.
  using Moved = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
  [[nodiscard]] static Moved moved(TorchPlaced const& block, std::uint64_t place) noexcept {
    return {block.ledger, block.address, block.bytes, block.age, place};
  }

  /// The end of a live block that [place, place + bytes), which does not wrap, overlaps; absent: of none.
  [[nodiscard]] std::optional<std::uint64_t> overlapped_end(std::uint64_t place, std::uint64_t bytes) const;
  [[nodiscard]] std::optional<std::uint64_t> free_place(std::uint64_t bytes, std::uint64_t from, std::uint64_t end) const;

  Blocks blocks_{};
  std::set<Moved> moved_{};
  std::uint64_t next_elsewhere_ = kElsewhere;
  std::uint64_t age_ = 0;
  std::uint64_t moved_count_ = 0;
};

}  // namespace headroom::dump
