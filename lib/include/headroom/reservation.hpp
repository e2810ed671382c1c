// headroom: bytes claimed ahead of their use.
// Layer: manager
//
// Reserve when one piece of work needs several allocations and must not fail half way: reserve_bytes claims them all or none, and
// allocations from the reservation then meet no budget any more, only the device. Through a runtime the bytes are claimed of the
// device's budget as well. Prefer plain allocations where a refusal half way does no harm: a reservation keeps others out.
//
//   auto reservation = manager.reserve_bytes(3 << 20);             // refused here, or not at all by a budget
//   auto keys = reservation->alloc<float>(1 << 18, kTag);          // 1 MiB of it
//
// What was allocated from a reservation is an allocation like any other: when it is freed its bytes go to the common budget, not
// back to the reservation. An allocation that fails gives its bytes back to the reservation.
//
// Ownership: move-only; gives what is left back when it is destroyed or released. Reservation and allocations may end in any
// order. It keeps its manager open, as a handle does.
// Thread safety: any threads may allocate from one reservation at the same time, and release() it. Moving and destroying it belong
// to one thread, as with any object.
// Cost: an allocation costs what a plain one does; making and dropping one costs about as much as an allocation and its free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include <headroom/buffer.hpp>
#include <headroom/error.hpp>
#include <headroom/tag.hpp>

namespace headroom {

namespace manager {

/// What a reservation consists of. Its state is one word, so that the last of those who used it at its end knows that it is the
/// last: closed (bit 63) | allocations under way (19 bits) | rest in bytes (44 bits).
struct Token {
  Route* route = nullptr;  ///< counted as a handle; null: empty or moved from
  std::uint64_t total = 0;
  // Written by CAS and fetch_add of every thread that allocates, and by release(); acq_rel: whoever drops the rest comes after all
  // that the others did to the ledger. Read relaxed for figures.
  std::atomic<std::uint64_t> state{0};

  static constexpr std::uint64_t kRestMask = (std::uint64_t{1} << 44) - 1;
  static constexpr std::uint64_t kOneUnderWay = std::uint64_t{1} << 44;
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
};
void release_token(Token& token) noexcept;  ///< once or often; the last allocation under way gives the rest back
void end_token(Token& token) noexcept;      ///< release, and the handle goes
void move_token(Token& from, Token& to) noexcept;
struct TokenAccess;
}  // namespace manager

class GpuMemoryReservation {
public:
  GpuMemoryReservation() noexcept = default;  ///< empty: holds nothing, allocates nothing
  GpuMemoryReservation(GpuMemoryReservation&& other) noexcept { manager::move_token(other.token_, token_); }
  GpuMemoryReservation& operator=(GpuMemoryReservation&& other) noexcept {
    if (this != &other) {
      manager::end_token(token_);
      manager::move_token(other.token_, token_);
    }
    return *this;
  }
  GpuMemoryReservation(GpuMemoryReservation const&) = delete;
  GpuMemoryReservation& operator=(GpuMemoryReservation const&) = delete;
  ~GpuMemoryReservation() { manager::end_token(token_); }

  [[nodiscard]] std::uint64_t total_bytes() const noexcept { return token_.total; }  ///< as reserved
  /// Given to allocations, also to those that were freed since.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return token_.total - (state() & manager::Token::kRestMask); }
  /// What allocations may still take; 0 once released.
  [[nodiscard]] std::uint64_t remaining_bytes() const noexcept {
    const std::uint64_t now = state();
    return (now & manager::Token::kClosed) != 0 ? 0 : now & manager::Token::kRestMask;
  }

  /// As GpuMemoryManager::alloc, out of the reserved bytes. Errors: over_budget with layer request (more than remains: current and
  /// limit are the reservation's used and total bytes), device_out_of_memory, overflow, invalid_argument (also: empty, moved from
  /// or released), driver.
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocTag tag = {},
                                               std::source_location const& site = std::source_location::current()) {
    return alloc<T>(count, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocOptions const& options,
                                               std::source_location const& site = std::source_location::current()) {
    return manager::make_owner<TrackedBuffer<T>>(token_, manager::typed_arguments<T>(count, options), site);
  }
  /// As GpuMemoryManager::alloc_raw, out of the reserved bytes. Errors: those of both.
  [[nodiscard]] Result<RuntimeAllocBlock> alloc_raw(std::size_t bytes, AllocTag tag,
                                                    std::source_location const& site = std::source_location::current()) {
    return alloc_raw(bytes, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  [[nodiscard]] Result<RuntimeAllocBlock> alloc_raw(std::size_t bytes, AllocOptions const& options,
                                                    std::source_location const& site = std::source_location::current()) {
    return manager::make_owner<RuntimeAllocBlock>(token_, manager::raw_arguments(bytes, options), site);
  }

  /// Gives what is left back now; a second time does nothing. Allocations under way on other threads are let finish: the last of
  /// them gives the rest back.
  void release() noexcept { manager::release_token(token_); }

private:
  friend class GpuMemoryManager;
  friend struct manager::TokenAccess;
  [[nodiscard]] std::uint64_t state() const noexcept { return token_.state.load(std::memory_order_relaxed); }
  manager::Token token_;
};

}  // namespace headroom
