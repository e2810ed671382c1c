// The table of policies: policy × shortage (of the budget, of the device) × who helps → hooks run, retries, waits, callbacks, recoveries,
// error. Printed as it was measured, and compared with rows worked out by hand. Parametrised over a device: on the host and on a real
// GPU the same rows hold.
//
//   ask: one safe_alloc_with_hooks of `request_bytes`, after everything was taken
//     budget   the guard's limit is two requests, and two such buffers are held
//     device   the guard has no limit, and another manager of the device took blocks of that size until the device refused
//   nobody          no hooks
//   hooks in vain   two hooks, which free nothing
//   second hook     the first frees nothing, the second one buffer
//   a thread        no hooks; another thread frees one buffer once the request waits
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/guard.hpp>

#include "managers.hpp"

namespace headroom::test {

/// Where the table is tried. The device must have room for a few requests, and be nobody else's meanwhile.
struct TableDevice {
  Device device;
  std::uint64_t request_bytes = 0;
};

enum class Short : std::uint8_t { budget, device };
enum class Help : std::uint8_t { nobody, hooks_in_vain, second_hook, a_thread };

struct PolicyOutcome {
  std::uint64_t hooks_run = 0;
  std::uint64_t retries = 0;  ///< by the policy retry_after_free
  std::uint64_t waits = 0, callbacks = 0, recoveries = 0, failures_after_help = 0;
  std::optional<ErrorKind> error{};  ///< absent: granted
  friend bool operator==(PolicyOutcome const&, PolicyOutcome const&) = default;
};

inline std::string error_text(std::optional<ErrorKind> error) { return error ? std::string{to_string(*error)} : "granted"; }

inline std::ostream& operator<<(std::ostream& out, PolicyOutcome const& outcome) {
  return out << outcome.hooks_run << " hooks, " << outcome.retries << " retries, " << outcome.waits << " waits, "
             << outcome.callbacks << " callbacks, " << outcome.recoveries << " recoveries, " << outcome.failures_after_help
             << " failures after help, " << error_text(outcome.error);
}

struct PolicyRow {
  OomPolicy policy;
  Help help;
  PolicyOutcome expected;  ///< with over_budget for an error; a short device says device_out_of_memory instead
};

/// Worked out by hand from oom_policy.hpp and hook.hpp. A wait of 0 is one more try.
inline std::vector<PolicyRow> policy_rows() {
  const OomPolicy fail = OomPolicy::fail();
  const OomPolicy retry = OomPolicy::retry_after_free();
  const OomPolicy no_wait = OomPolicy::wait_and_retry(std::chrono::nanoseconds{0});
  const OomPolicy patient = OomPolicy::wait_and_retry(std::chrono::hours{1});
  const OomPolicy checkpoint = OomPolicy::checkpoint_and_fail();
  const auto error = ErrorKind::over_budget;
  return {
      //                         hooks retries waits callbacks recoveries failures after help
      {fail, Help::nobody, {0, 0, 0, 0, 0, 0, error}},         {fail, Help::hooks_in_vain, {2, 0, 0, 0, 0, 1, error}},
      {fail, Help::second_hook, {2, 0, 0, 0, 1, 0, {}}},       {retry, Help::nobody, {0, 1, 0, 0, 0, 1, error}},
      {retry, Help::hooks_in_vain, {2, 1, 0, 0, 0, 1, error}}, {retry, Help::second_hook, {2, 0, 0, 0, 1, 0, {}}},
      {no_wait, Help::nobody, {0, 0, 1, 0, 0, 1, error}},      {no_wait, Help::hooks_in_vain, {2, 0, 1, 0, 0, 1, error}},
      {no_wait, Help::second_hook, {2, 0, 0, 0, 1, 0, {}}},    {patient, Help::a_thread, {0, 0, 1, 0, 1, 0, {}}},
      {checkpoint, Help::nobody, {0, 0, 0, 1, 0, 1, error}},   {checkpoint, Help::hooks_in_vain, {2, 0, 0, 1, 0, 1, error}},
      {checkpoint, Help::second_hook, {2, 0, 0, 0, 1, 0, {}}},
  };
}

/// What one request met. `taken` is everything that stands in its way.
inline PolicyOutcome try_policy(TableDevice const& table, Short shortage, PolicyRow const& row) {
  const std::uint64_t bytes = table.request_bytes;
  const MemoryGuard guard = MemoryGuardBuilder(table.device)
                                .budget_bytes(shortage == Short::budget ? 2 * bytes : 0)
                                .oom_policy(row.policy)
                                .build()
                                .value();
  std::vector<TrackedBuffer<std::byte>> taken;
  if (shortage == Short::budget) {
    for (int i = 0; i < 2; ++i) taken.push_back(guard.safe_alloc<std::byte>(bytes).value());
  } else {
    auto other = GpuMemoryManager::create(table.device, MemoryBudget::unlimited(), "tenant").value();
    for (auto block = other.alloc<std::byte>(bytes); block; block = other.alloc<std::byte>(bytes))
      taken.push_back(*std::move(block));
  }
  EXPECT_GE(taken.size(), 2U) << "the device has no room for the table";
  std::atomic<std::uint64_t> callbacks{0};
  guard.on_oom([&] { ++callbacks; });
  if (row.help == Help::hooks_in_vain || row.help == Help::second_hook) {
    const bool helps = row.help == Help::second_hook;
    EXPECT_TRUE(guard.register_hook({.name = "first", .callback = [](HookContext const&) { return std::uint64_t{0}; }}));
    EXPECT_TRUE(guard.register_hook({.name = "second", .priority = 1, .callback = [&, helps](HookContext const&) {
                                       if (!helps || taken.empty()) return std::uint64_t{0};
                                       taken.pop_back();
                                       return bytes;
                                     }}));
  }
  EventWatch watch;
  std::optional<Result<TrackedBuffer<std::byte>>> got;
  std::thread asking{[&] { got.emplace(guard.safe_alloc_with_hooks<std::byte>(bytes)); }};
  if (row.help == Help::a_thread) {
    while (guard.stats().waits == 0) std::this_thread::yield();
    taken.pop_back();
  }
  asking.join();
  const GuardStats stats = guard.stats();
  EXPECT_EQ(stats.refusals, 1U) << "booked once, however often it was tried";
  EXPECT_EQ(stats.checkpoints, callbacks.load());
  PolicyOutcome outcome{.hooks_run = stats.hooks_run,
                        .waits = stats.waits,
                        .callbacks = callbacks.load(),
                        .recoveries = stats.recoveries,
                        .failures_after_help = stats.failures_after_help};
  for (auto const& event : watch.of(guard.manager(), flight::EventKind::policy)) {
    outcome.retries += event.policy_step() == flight::PolicyStep::retried ? 1U : 0U;
  }
  if (!*got) outcome.error = got->error().kind;
  got.reset();
  taken.clear();
  const auto audit = guard.manager().audit();
  EXPECT_TRUE(audit.clean()) << audit.to_string();
  EXPECT_EQ(audit.claimed, 0U);
  return outcome;
}

/// Tries, prints and checks every row on devices that `make()` gives.
template <class MakeDevice>
void print_and_check_policy_table(std::string const& where, MakeDevice&& make) {
  constexpr std::array kHelp{"nobody", "hooks in vain", "second hook", "a thread"};
  std::cout << "policy table, " << where << "\n  " << std::left << std::setw(10) << "short of" << std::setw(26) << "policy"
            << std::setw(15) << "help" << std::right << "hooks retries waits callbacks recoveries failures  result\n";
  for (const Short shortage : {Short::budget, Short::device}) {
    for (PolicyRow const& row : policy_rows()) {
      PolicyOutcome expected = row.expected;
      if (expected.error && shortage == Short::device) expected.error = ErrorKind::device_out_of_memory;
      const char* const help = kHelp[static_cast<std::size_t>(row.help)];
      const TableDevice table = make();
      const PolicyOutcome outcome = try_policy(table, shortage, row);
      std::cout << "  " << std::left << std::setw(10) << (shortage == Short::budget ? "budget" : "device") << std::setw(26)
                << row.policy.to_string() << std::setw(15) << help << std::right << std::setw(5) << outcome.hooks_run
                << std::setw(8) << outcome.retries << std::setw(6) << outcome.waits << std::setw(10) << outcome.callbacks
                << std::setw(11) << outcome.recoveries << std::setw(9) << outcome.failures_after_help << "  "
                << error_text(outcome.error) << '\n';
      EXPECT_EQ(outcome, expected) << (shortage == Short::budget ? "budget, " : "device, ") << row.policy.to_string() << ", "
                                   << help;
    }
  }
  std::cout << std::flush;
}

}  // namespace headroom::test
