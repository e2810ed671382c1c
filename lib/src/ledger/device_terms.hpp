// What the stacks of one device account agreed upon about their device, and who is about to take memory under it.
//
// Keeping N bytes of the device free cannot be looked up and then acted upon: two threads would see the same free bytes. It is a claim
// instead. A request adds what it will take at most, then reads the device's free bytes F, and goes on only if F − (all that is being
// taken) ≥ N; it takes its part away again once the device has answered. Additions have an order, and each request sees in its sum all
// that came before it and is still on its way; what is no longer in the sum has left F already, since it is taken away after the
// device's answer (release) and added to before F is read (acquire). So after every grant F stays at N or above, whoever else is on the
// way, and only a request that has others beside it can be refused too early: it asks again.
//
// Thread safety: any thread. Cost: two fetch_adds a request, and only in accounts that keep memory free.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace headroom::ledger {

class DeviceTerms {
public:
  struct Agreed {
    std::uint64_t keep_free = 0;   ///< bytes, below 2^44
    bool include_context = false;  ///< the budget also counts what the device uses outside the ledger
    friend bool operator==(Agreed const&, Agreed const&) = default;
  };

  struct Agreement {
    Agreed terms;
    bool first = false;
  };
  /// The first one decides; returns what holds.
  [[nodiscard]] Agreement agree(Agreed wanted) noexcept {
    std::uint64_t seen = 0;
    if (agreed_.compare_exchange_strong(seen, pack(wanted), std::memory_order_relaxed)) return {.terms = wanted, .first = true};
    return {.terms = unpack(seen), .first = false};
  }
  /// The account closed: its next user decides anew.
  void forget() noexcept { agreed_.store(0, std::memory_order_relaxed); }

  /// A request is about to take so many bytes; returns the sum over all that are.
  std::uint64_t begin_taking(std::uint64_t bytes) noexcept { return taking_.fetch_add(bytes, std::memory_order_acq_rel) + bytes; }
  /// The device has answered it.
  void end_taking(std::uint64_t bytes) noexcept { taking_.fetch_sub(bytes, std::memory_order_acq_rel); }

private:
  static constexpr std::uint64_t kSet = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kIncludeContext = std::uint64_t{1} << 62;
  static constexpr std::uint64_t pack(Agreed const& agreed) noexcept {
    return kSet | (agreed.include_context ? kIncludeContext : 0) | agreed.keep_free;
  }
  static constexpr Agreed unpack(std::uint64_t word) noexcept {
    return {.keep_free = word & ~(kSet | kIncludeContext), .include_context = (word & kIncludeContext) != 0};
  }

  // Written by the first stack of an account, and by whoever closes it; read by the stacks that join. Relaxed: it stands for itself,
  // and seats are handed out and taken back under the registry's mutex.
  std::atomic<std::uint64_t> agreed_{0};
  // Any thread with a request under way. See above for the order.
  std::atomic<std::uint64_t> taking_{0};
};

}  // namespace headroom::ledger
