// headroom: hooks, the program's own code that frees memory before a request fails.
// Layer: guard
//
// Register an OomHook for whatever your program can give up: a cache, a pool's idle blocks, data that can be spilled to the host.
// When a request does not fit, hooks are called one at a time, in order of priority, until the request itself fits. The contract:
//
// When      In the call that asked for memory and found none, before the out-of-memory policy has its turn: over the budget, or with
//           the device out of memory though the budget has room. Never for a request that fits. A hook has at most one turn in a
//           round, and is passed over when its overhead is greater than the headroom of that moment.
// Thread    The thread that asked. Every hook runs on at most one thread at a time. A thread that needs a hook while it runs
//           elsewhere waits for that run, at most the hook's time limit, and counts it as the hook's turn (recorded as `elsewhere`); a
//           run that does not end in time is skipped (`busy`), and the request is tried all the same. Do not assume anything about the
//           caller's own locks: it may hold some.
// May call  Everything: allocate, free, query, register hooks, remove any hook, itself included, add and remove listeners, change the
//           budget or the policy. No lock of headroom is held, and no memory is claimed for the request meanwhile. What is requested
//           inside a hook gets no hooks of its own and fails at once when it does not fit (depth 1). A hook registered inside a round
//           has its turn from the next round on; one that is removed inside a round and has not begun never runs again.
// How long  There is no way to stop a hook. A run longer than its time limit (1 s unless set) is recorded as an event, once, by the
//           first thread that notices: one that waited for it in vain, or the hook's own when it returns. While it lasts every reader
//           of the flight file sees which hook runs, on which thread, since when, and what its limit is.
// Returns   How many bytes it believes it freed. Telemetry and nothing else: it never creates budget and never ends a round; more
//           than 2^44 − 1, the most that a budget can be, is recorded as that. What counts is whether the request fits now.
//           Reported, estimated and really freed bytes are recorded side by side; "really freed" is what was freed to this ledger on
//           the hook's thread during its run, and beside it stands by how much the ledger's claimed bytes fell, whoever did it.
// Throws    Counted and recorded, as a run that reported 0; what it had freed stays freed, and the next hook has its turn.
// Nothing   A round in which no hook freed more than it took itself ends the matter, unless others freed meanwhile: there is no
//           second round, and the policy decides.
// Removal   remove_hook(name) removes every hook of that name. It returns once no run of it is going on elsewhere, or after the time
//           limit, of several the longest; from inside any hook or listener it does not wait. A callback is destroyed on the thread
//           that drops its last reference, under no lock.
// Captures  A callback that captures a MemoryGuard by value keeps that guard, and with it itself, alive until it is removed: capture a
//           reference.
// Last      When the last handle of a guard goes inside a hook, the round goes on: later hooks still have their turns.
//
// Cost: nothing for a request that fits, however many hooks there are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

/// What a hook is told. All figures are bytes.
struct HookContext {
  std::int32_t device_ordinal = 0;
  std::string_view device_name{};     ///< valid during the call
  std::uint64_t requested_bytes = 0;  ///< of the request that does not fit
  /// What is missing as this hook begins: used + requested − budget; for a device without memory, requested − what it has free.
  std::uint64_t shortfall_bytes = 0;
  std::uint32_t attempt = 1;              ///< number of the round for this request, from 1
  std::optional<std::uint64_t> budget{};  ///< the limit in force; absent: unlimited
  /// When the request gives up, if it does: a hook that cannot be done by then may return at once.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

/// Bytes that the hook believes it freed.
using HookCallback = std::function<std::uint64_t(HookContext const&)>;

struct OomHook {
  std::string name{};         ///< its label in every output, and what remove_hook asks for; several may share one
  std::int32_t priority = 0;  ///< low first; then the larger estimate, then who was registered first
  std::uint64_t estimated_free_bytes = 0;
  /// What it needs for itself while it runs. Greater than the headroom at its turn: passed over; equal: it runs.
  std::uint64_t execution_overhead_bytes = 0;
  HookCallback callback{};
  std::chrono::nanoseconds time_limit = std::chrono::seconds{1};  ///< a longer run is an event; nobody waits longer for one
};

}  // namespace headroom
