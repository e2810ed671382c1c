// One ledger: a budget, what is claimed and allocated under it, and the steps that keep them right.
//
// A Ledger is the process's own handle on a cell of the flight file (or on private memory, when the file has no cell left). Its
// members are the steps of `Allocate` and `Free`, in the order in which the manager takes them:
//
//   allocate   InFlightScope · claim · (driver) · admit · book_allocation · scope ends
//              refused:                claim · (driver says no) · unclaim · book_refusal
//   free       InFlightScope · (slot freeing, driver) · retire · book_free · scope ends
//
// Ownership: ledgers live as long as the process and are reused, with a new generation, once closed and empty.
// Thread safety: every member, from any thread, without locks; open/close belong to the caller's registry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include <headroom/budget.hpp>
#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/pressure.hpp>

#include "base/atomics.hpp"
#include "base/test_point.hpp"
#include "flight/counters.hpp"
#include "flight/directory.hpp"
#include "flight/live_table.hpp"
#include "flight/thread_state.hpp"
#include "ledger/device_terms.hpp"
#include "ledger/observer.hpp"
#include "ledger/protocol.hpp"

namespace headroom::ledger {

/// What is booked about one admitted allocation or one accepted free.
struct Booking {
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint64_t address = 0;
  std::uint64_t stream = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t end_ticks = 0;
  std::uint64_t alloc_word = 0;      ///< as admit or retire returned it
  std::uint64_t claimed_before = 0;  ///< of the claim, for the use histogram
  std::uint64_t limit_word = 0;
  flight::TagPlace tag{};
  std::uint32_t site = 0;
  std::uint32_t slot = flight::kNoSlot;
  bool typed = true;
  bool counted = true;  ///< false: a later try of a request that was counted when it was refused
};

/// What is booked about a request that failed.
struct Refusal {
  ErrorKind kind{};
  Layer layer{};
  std::uint64_t requested = 0;
  std::uint64_t alignment = 0;
  std::uint64_t claimed = 0;
  std::uint64_t limit_word = 0;
  std::optional<std::uint64_t> device_free;
  std::int32_t device_code = 0;
  std::uint64_t start_ticks = 0;
  flight::TagPlace tag{};
  std::uint32_t site = 0;
  bool typed = true;
  bool counted = true;    ///< false: a reservation, which is no request for memory, or a request that was counted before
  bool observed = false;  ///< it passed; an enforcing budget would have refused it
};

class Ledger {
public:
  Ledger() = default;
  Ledger(Ledger const&) = delete;
  Ledger& operator=(Ledger const&) = delete;

  /// Takes cell `cell` (kNoCell: private memory) under a new generation. A ledger that was open before takes the cell that it had.
  void open(std::uint32_t cell, std::string_view name, std::uint32_t device_entry, MemoryBudget budget);
  /// No handle is left: readers show it only while bytes are live.
  void close() noexcept;
  /// Closed, and nothing claimed, live, unspent or in flight: open() may use it again.
  [[nodiscard]] bool is_quiet() const noexcept;
  /// The first half of that: nothing claimed, live or unspent, though an operation may still be in flight.
  [[nodiscard]] bool holds_nothing() const noexcept;
  /// No handle is left. seq_cst on both sides: a thread that gave its claim back and finds this open comes before whoever closed it,
  /// who then finds that claim gone.
  [[nodiscard]] bool is_closed() const noexcept {
    return cell_->state.load(std::memory_order_seq_cst) == static_cast<std::uint64_t>(flight::LedgerState::closed);
  }
  /// Some thread's in-flight word, or the shared one, names this ledger.
  [[nodiscard]] bool is_in_flight() const noexcept;
  /// What is claimed, allocated and unspent in a closed ledger can never come back, since its device is gone: it is dropped, and the
  /// ledger is quiet. Nobody else may use it any more.
  void abandon() noexcept;
  /// Frees the names of a quiet ledger.
  void retire_names() noexcept;

  // ── steps ──

  /// Tries again up to 3 times when claims in flight elsewhere may still come back.
  [[nodiscard]] ClaimResult claim(std::uint64_t bytes) noexcept;
  /// Whether claim() would grant the bytes now; takes nothing. Tries again as claim() does.
  [[nodiscard]] ClaimResult look(std::uint64_t bytes) const noexcept;
  void unclaim(std::uint64_t bytes, flight::LaneSection const& section) noexcept;
  [[nodiscard]] std::uint64_t admit(std::uint64_t bytes) noexcept { return Steps::admit(cell_->alloc, bytes); }
  [[nodiscard]] std::uint64_t retire(std::uint64_t bytes) noexcept { return Steps::retire(cell_->alloc, bytes); }

  /// Counters, tag cell, peak, live slot, record. Returns the slot's generation (0 without a slot).
  std::uint64_t book_allocation(flight::LaneSection const& section, Booking const& booking) noexcept;
  /// Counters, tag cell, claim given back, waiters woken, record.
  void book_free(flight::LaneSection const& section, Booking const& booking, flight::EventKind kind) noexcept;
  void book_refusal(flight::LaneSection const& section, Refusal const& refusal) noexcept;
  void book_free_failure(flight::LaneSection const& section, Booking const& booking, ErrorKind kind, Layer layer) noexcept;
  /// A free that the manager refused by itself: the device never heard of it.
  void book_misuse(flight::LaneSection const& section, Booking const& booking, ErrorKind kind,
                   Layer layer = Layer::manager) noexcept;
  /// … how often.
  [[nodiscard]] std::uint64_t misuses() const noexcept { return misuses_.load(std::memory_order_acquire); }
  /// A cache below gave bytes back because a request was short. Before the record of that request's outcome.
  void book_trim(flight::LaneSection const& section, std::uint64_t came_back, std::uint64_t requested, std::uint64_t alignment,
                 flight::TagPlace tag) noexcept;
  /// A request of zero bytes: counted, nothing charged.
  void book_empty(flight::LaneSection const& section, bool typed) noexcept;
  /// Likewise for a device account, whose managers keep slots and records of the same memory: counters, tag cell and peak only.
  void book_account_allocation(flight::LaneSection const& section, Booking const& booking) noexcept;
  /// An accepted free; its bytes stay claimed and allocated until they are returned.
  void book_account_free(flight::LaneSection const& section, flight::TagPlace tag, std::uint64_t bytes) noexcept;
  /// Whoever waits on the epoch looks again: after each decrease of claim, each change of limit and of policy.
  void wake_waiters() noexcept;
  /// Brings the pressure state in line with claim and limit; transitions become events, and notices for the observer.
  void judge_pressure(flight::LaneSection const& section) noexcept;

  // ── who hears of pressure ──

  /// Observers live as long as the process, and so does the bond: the first one stays. Returns the ledger's observer.
  PressureObserver& observe(PressureObserver& observer) noexcept;
  [[nodiscard]] PressureObserver* observer() const noexcept { return observer_.load(std::memory_order_acquire); }
  /// How notices are numbered: on and on over the lives of a reused ledger, where the pressure word's sequence begins anew.
  [[nodiscard]] std::uint64_t notice_number() const noexcept {
    return notice_base() + (cell_->pressure.load(std::memory_order_seq_cst) >> 8);
  }
  [[nodiscard]] std::uint64_t notice_base() const noexcept { return notice_base_.load(std::memory_order_relaxed); }
  /// Hysteresis of the notified state: bytes, 0 = none; absent = 1 % of the budget. Judges, and delivers what that changed.
  void set_pressure_margin(std::optional<std::uint64_t> bytes) noexcept;

  // ── reservations: bytes claimed ahead of their use ──

  /// Claims `bytes` and names them unspent. All or nothing; then book_reservation, or book_refusal.
  [[nodiscard]] ClaimResult reserve(std::uint64_t bytes) noexcept;
  void book_reservation(flight::LaneSection const& section, std::uint64_t bytes) noexcept;
  /// From a reservation to a request, whose claim these bytes now are; and back, when the request was refused later on.
  void spend(std::uint64_t bytes) noexcept;
  /// spend for callers that nobody vouches for: false, and nothing changed, when fewer bytes are unspent.
  [[nodiscard]] bool try_spend(std::uint64_t bytes) noexcept;
  void unspend(std::uint64_t bytes) noexcept;
  /// The end of a reservation: what is left of it comes back to the budget.
  void drop_reservation(flight::LaneSection const& section, std::uint64_t rest) noexcept;

  // ── budget, peak, reading ──

  void set_budget(MemoryBudget budget) noexcept;
  [[nodiscard]] MemoryBudget budget() const noexcept;
  void reset_peak() noexcept;

  struct Words {
    std::uint64_t claimed, allocated, peak;
  };
  [[nodiscard]] Words words() const noexcept;
  [[nodiscard]] std::uint64_t limit_word() const noexcept { return cell_->limit.load(std::memory_order_seq_cst); }

  /// The tag's place in this ledger; names beyond the table are folded into `other`.
  [[nodiscard]] flight::TagPlace tag_place(std::uint16_t tag) noexcept {
    const std::uint32_t packed = tag_places_[tag].load(std::memory_order_acquire);
    return packed != 0 ? unpack(packed) : find_tag_place(tag);
  }
  /// Bytes that a tag place holds now, over all lanes.
  [[nodiscard]] std::uint64_t tag_bytes(flight::TagPlace place) const noexcept;
  /// Sum over all tags of this ledger.
  [[nodiscard]] std::uint64_t all_tag_bytes() const noexcept;
  /// Every byte has a tag cell. False for a ledger without cells, and for one that the directory had no room for.
  [[nodiscard]] bool counts_all_tags() const noexcept { return other_.cell != flight::kNoTagCell; }
  /// Sum of one counter over all lanes, less the base of an earlier life.
  [[nodiscard]] std::uint64_t sum(flight::Word flight::LedgerCounters::* counter) const noexcept;
  /// The largest holders, largest first.
  [[nodiscard]] std::array<Holder, 3> largest_holders() const noexcept;

  /// Of a device account: what its stacks agreed upon about their device.
  [[nodiscard]] DeviceTerms& device_terms() noexcept { return device_terms_; }
  [[nodiscard]] flight::LedgerCell& cell() const noexcept { return *cell_; }
  [[nodiscard]] flight::LedgerTallies& tallies() const noexcept { return *tallies_; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  /// As stored in records and slots: the 12-bit cell, or 0xFFF without one.
  [[nodiscard]] std::uint32_t record_id() const noexcept { return index_ & 0xFFFU; }
  [[nodiscard]] std::uint32_t directory_id() const noexcept { return directory_id_; }

private:
  using Steps = Protocol<StdAtomics>;
  struct PrivateBooks;

  void settle_in(std::uint32_t cell);
  void put_tallies_aside() noexcept;
  [[nodiscard]] bool has_namesake(std::uint32_t device_entry) const noexcept;
  template <class Attempt>
  [[nodiscard]] ClaimResult beside_claims_in_flight(Attempt&& attempt) const noexcept;
  template <class Visit>
  void for_each_tag(Visit&& visit) const noexcept;
  [[nodiscard]] flight::TagPlace find_tag_place(std::uint16_t tag) noexcept;
  static constexpr std::uint32_t kLookedUp = std::uint32_t{1} << 31;
  static std::uint32_t pack(flight::TagPlace place) noexcept {
    return kLookedUp | (std::uint32_t{place.entry} << 16) | ((place.cell + 1U) & 0xFFFFU);
  }
  static flight::TagPlace unpack(std::uint32_t packed) noexcept {
    return {static_cast<std::uint16_t>((packed & ~kLookedUp) >> 16), static_cast<std::uint16_t>((packed & 0xFFFFU) - 1)};
  }
  void change_tag(flight::LaneSection const& section, flight::TagPlace place, std::uint64_t bytes,
                  std::uint64_t allocations) noexcept;
  void note_peak(flight::LaneSection const& section, Booking const& booking) noexcept;
  void set_scales(MemoryBudget budget) noexcept;
  // For the hook that this thread may be running.
  void note_taken(flight::ThreadState& thread, std::uint64_t bytes) const noexcept {
    if (thread.watched_ledger == cell_) [[unlikely]]
      thread.watched_taken_bytes += bytes;
  }
  void note_freed(flight::ThreadState& thread, std::uint64_t bytes) const noexcept {
    if (thread.watched_ledger == cell_) [[unlikely]]
      thread.watched_freed_bytes += bytes;
  }
  void book_budget_change(flight::LaneSection const& section, std::uint64_t before, std::uint64_t after) noexcept;
  [[nodiscard]] flight::CountersRef<flight::LedgerCounters> counters(flight::LaneSection const& section) const noexcept;
  [[nodiscard]] PressureLevel pressure_state() const noexcept {
    return static_cast<PressureLevel>(cell_->pressure.load(std::memory_order_relaxed) & 0xFF);
  }

  // These four and index_ are written once, by the first open().
  flight::LedgerCell* cell_ = nullptr;
  flight::LedgerTallies* tallies_ = nullptr;
  flight::LedgerCounters* shared_counters_ = nullptr;  // of threads without a lane; of every thread from the ninth ledger on
  flight::LedgerCounters* base_ = nullptr;
  std::uint32_t index_ = flight::kNoCell;
  std::uint32_t directory_id_ = 0;
  flight::TagPlace other_{};
  DeviceTerms device_terms_;
  // Derived from the limit for figures that need no exactness: read and written relaxed.
  std::atomic<double> use_scale_{0.0};             // buckets for each byte claimed
  std::atomic<std::uint64_t> peak_step_{1 << 20};  // how far a peak moves before the journal hears of it
  // Set once, by observe(); read by whoever made a transition. seq_cst: a transition after observe() returned has it.
  std::atomic<PressureObserver*> observer_{nullptr};
  // Written by open(), while nobody else has the ledger; read by operations, which come after. Relaxed.
  std::atomic<std::uint64_t> notice_base_{0};
  // Frees that this ledger's manager refused by itself: written by whoever refuses one, after the failure was counted (release), read
  // before those counts (acquire), so that it never exceeds them.
  std::atomic<std::uint64_t> misuses_{0};
  // kLookedUp | (entry << 16) | (cell + 1, 0 = none); 0 = not looked up yet. Written release by whoever looked it up,
  // under the directory's mutex order.
  std::array<std::atomic<std::uint32_t>, 4096> tag_places_{};
};

/// Names the operation in progress in the lane's in-flight word; nested or lane-less operations use the ledger's shared word.
class InFlightScope {
public:
  InFlightScope(flight::ThreadState& thread, Ledger& ledger, flight::InFlight operation, std::uint64_t bytes,
                std::uint64_t ticks) noexcept
      : thread_(thread), ledger_(ledger), bytes_(bytes), own_(thread.in_flight_depth++ == 0 && thread.lane != nullptr) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (own_) {
      auto& header = thread.lane->header;
      // A test's handler stores the points it passes there: they must be this operation's.
      if constexpr (kTestPoints) header.in_flight_step.store(0, std::memory_order_relaxed);
      header.in_flight_ticks.store(ticks, std::memory_order_release);
      header.in_flight.store(flight::pack_in_flight(operation, ledger.record_id(), bytes), std::memory_order_release);
    } else {
      ledger.cell().in_flight_shared.fetch_add(bytes, std::memory_order_acq_rel);
      ledger.cell().in_flight_shared_count.fetch_add(1, std::memory_order_relaxed);
    }
  }
  ~InFlightScope() { end(); }
  InFlightScope(InFlightScope const&) = delete;
  InFlightScope& operator=(InFlightScope const&) = delete;

  void end() noexcept {
    if (ended_) return;
    ended_ = true;
    test_point(TestPoint::operation_before_end);
    if (own_) {
      // The lane may have been given back meanwhile (a buffer freed by a late thread-exit destructor): its word was cleared then.
      if (thread_.lane != nullptr) thread_.lane->header.in_flight.store(0, std::memory_order_release);
    } else {
      ledger_.cell().in_flight_shared.fetch_sub(bytes_, std::memory_order_acq_rel);
      // Release: whoever finds the ledger quiet comes after all that was written here.
      ledger_.cell().in_flight_shared_count.fetch_sub(1, std::memory_order_release);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    --thread_.in_flight_depth;
    deliver_notices_if_due(thread_);
  }

private:
  flight::ThreadState& thread_;
  Ledger& ledger_;
  std::uint64_t bytes_;
  bool own_;
  bool ended_ = false;
};

}  // namespace headroom::ledger
