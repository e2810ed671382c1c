// headroom: listeners, told when the pressure on a budget changes.
// Layer: guard
//
// The notified level goes up at once and comes down only when the hysteresis margin (1 % of the budget unless set; 0: none) is free
// as well, so that one byte around a boundary, given and taken 100,000 times, is at most one change each way.
//
// When      After every allocation, free, change of budget, margin or reservation that changed the level, through whichever door. Each
//           change is delivered once to every listener that was there when it happened, in the order of its sequence number, one
//           change at a time. Racing operations may merge into one change; what was delivered last is how it is.
// Thread    That of the operation that made the change, before its call returns; while another thread is delivering, that one
//           delivers this change too, and may be kept by others' changes as long as there are new ones and none of those threads
//           takes over. A program whose signal handlers allocate may find its listeners called inside them.
// May call  Everything: allocate, free, add and remove listeners, itself included. No lock of headroom is held and the operation that
//           made the change is over. A change made inside a listener is delivered after that listener returned.
// How long  A slow listener delays later notices, never books or other allocations. Up to 64 changes wait; of more the oldest are
//           dropped, the newest never: a gap in the sequence tells. One call delivers at most 256 changes that listeners made: one
//           that causes changes itself cannot keep its thread for ever. What is left then goes out with the thread's next operation,
//           or any thread's next change; no other listener leaves anything.
// Throws    The other listeners hear of the change all the same.
// Removal   Returns once no run of it is going on elsewhere, at most after 1 s; from inside any hook or listener it does not wait.
//           Afterwards it is not called again. A callback is destroyed under no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <headroom/pressure.hpp>

namespace headroom {

struct PressureChange {
  std::uint64_t sequence = 0;  ///< of this ledger's changes, from 1; a gap is what was dropped or came before the listener
  PressureLevel from{};
  PressureLevel to{};
  std::uint64_t used_bytes = 0;               ///< claimed, as the listener is called: others may have moved on since the change
  std::optional<std::uint64_t> budget_bytes;  ///< likewise; absent: unlimited
};

using PressureListener = std::function<void(PressureChange const&)>;

/// Names a listener of one guard or manager; never used twice.
enum class ListenerId : std::uint64_t {};

}  // namespace headroom
