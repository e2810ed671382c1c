// A way from a manager's handles to memory: which core's books, which resource, and the runtime if there is one.
//
// A core has one route that it was opened with and one for each runtime laid over it. Buffers hold a plain pointer to their route, so
// routes live as long as the process, like cores; one that nobody needs any more (no handle, nothing live) takes the next runtime.
// What tells that nothing is live: for the first route the core's ledger, which is quiet then; for an overlay a count of its own,
// since the ledger is shared. The first route thus pays nothing for it.
//
// Thread safety: what identifies a route changes only while it has no handle and nothing live. Handles and counts: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <headroom/runtime.hpp>

#include "flight/thread_state.hpp"
#include "ledger/ledger.hpp"

namespace headroom::manager {

class Core;

class Route {
public:
  enum class Kind : std::uint8_t { first, overlay };
  Route(Core& core, ledger::Ledger& ledger, Kind kind) : core_{core}, ledger_{ledger} {
    if (kind == Kind::overlay) live_ = std::make_unique<LiveCounts>();
  }
  Route(Route const&) = delete;
  Route& operator=(Route const&) = delete;

  /// Only while nobody can use the route: by its core, under the core's locks.
  void open(DeviceResource& resource, std::int32_t ordinal, std::optional<DeviceRuntime> runtime,
            std::uint64_t parent_word) noexcept {
    resource_ = &resource;
    parent_word_ = parent_word;
    ordinal_ = ordinal;
    runtime_ = std::move(runtime);
  }
  /// Hands the runtime over, so that the caller lets go of it without a lock.
  [[nodiscard]] std::optional<DeviceRuntime> clear() noexcept {
    resource_ = nullptr;
    parent_word_ = 0;
    return std::exchange(runtime_, std::nullopt);
  }

  [[nodiscard]] Core& core() const noexcept { return core_; }
  [[nodiscard]] ledger::Ledger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] DeviceResource& resource() const noexcept { return *resource_; }
  [[nodiscard]] std::int32_t ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] DeviceRuntime const* runtime() const noexcept { return runtime_ ? &*runtime_ : nullptr; }
  /// 1 + the cell of the device account in its stack; 0: none. As LedgerCell::parent_cell.
  [[nodiscard]] std::uint64_t parent_word() const noexcept { return parent_word_; }
  [[nodiscard]] bool has_runtime() const noexcept { return runtime_.has_value(); }

  void add_handle() noexcept;
  /// The last one may let go of the runtime; the last one of all routes closes the core.
  void drop_handle() noexcept;
  [[nodiscard]] bool has_handles() const noexcept { return handles_.load(std::memory_order_seq_cst) != 0; }

  /// An allocation through this route became live; it is gone, and the route is not used for it any more.
  void note_live(flight::ThreadState const& thread) noexcept {
    if (live_ != nullptr) [[unlikely]]
      place(thread).fetch_add(1, std::memory_order_relaxed);
  }
  void note_gone(flight::ThreadState const& thread) noexcept {
    if (live_ != nullptr) [[unlikely]]
      place(thread).fetch_sub(1, std::memory_order_seq_cst);
  }
  /// Exact once there is no handle: from then on it only falls, and what was read is never less than what is. Overlays only.
  [[nodiscard]] bool has_live() const noexcept;
  /// An overlay that has neither handles nor live blocks. Certain under its core's lock; else somebody may take it up meanwhile.
  [[nodiscard]] bool is_unneeded_overlay() const noexcept { return live_ != nullptr && !has_handles() && !has_live(); }

private:
  static constexpr std::size_t kPlaces = 16;
  // Any thread: relaxed up (a handle, given back later, publishes it), seq_cst down and read: who finds nothing live comes after the last
  // use of the route's runtime, and of the last free and the last handle's end at least one sees the other.
  // In places of their own, so that threads do not meet here; only their sum means anything.
  struct alignas(64) Place {
    std::atomic<std::uint64_t> count{0};
  };
  using LiveCounts = std::array<Place, kPlaces>;
  [[nodiscard]] std::atomic<std::uint64_t>& place(flight::ThreadState const& thread) noexcept {
    return (*live_)[thread.thread_id % kPlaces].count;
  }

  Core& core_;
  ledger::Ledger& ledger_;
  DeviceResource* resource_ = nullptr;
  std::int32_t ordinal_ = 0;
  std::uint64_t parent_word_ = 0;
  std::unique_ptr<LiveCounts> live_;  // null: the first route
  std::optional<DeviceRuntime> runtime_;
  // Managers and reservations. acq_rel up, seq_cst down and read: the last one sees all that the others did, whoever makes the first one
  // anew sees what the last one left, and see Place.
  std::atomic<std::uint32_t> handles_{0};
};

}  // namespace headroom::manager
