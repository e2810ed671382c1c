#include "dump/load_parts.hpp"

#include <utility>

#include "dump/words.hpp"

namespace headroom::dump {
namespace {

using flight::LedgerSnapshot;

void take_books(Fields const& fields, LedgerSnapshot& ledger) {
  fields.object("budget", [&](Fields const& budget) {
    std::string mode;
    budget.text("mode", mode);
    budget.number("limit_bytes", ledger.limit);
    ledger.enforcing = mode != "observe";
  });
  fields.number("allocated_bytes", ledger.allocated);
  fields.number("claimed_bytes", ledger.claimed);
  fields.number("peak_bytes", ledger.peak);
  fields.number("live_allocations", ledger.live_allocations);
  fields.number("in_flight_bytes", ledger.in_flight_bytes);
  fields.number("unspent_bytes", ledger.unspent);
  fields.number("unspent_reservations", ledger.unspent_reservations);
  fields.number("pending_free_bytes", ledger.pending_free_bytes);
  fields.number("untracked_allocations", ledger.live_untracked);
  fields.number("untracked_bytes", ledger.live_untracked_bytes);
  fields.number("failed_frees", ledger.failed_frees);
  fields.number("failed_free_bytes", ledger.failed_free_bytes);
  fields.number("sentinel_bytes", ledger.sentinel_bytes);
  fields.number("waiters", ledger.waiters);
  fields.number("device_total_bytes", ledger.device_total);
  fields.number("device_free_bytes", ledger.device_free);
  fields.number("device_outside_bytes", ledger.device_outside);
}

void take_tallies(Fields const& fields, LedgerSnapshot& ledger) {
  fields.object("pressure", [&](Fields const& pressure) {
    pressure.word("level", kPressureWords, ledger.pressure);
    pressure.number("sequence", ledger.pressure_sequence);
    pressure.objects("transitions", [&](Fields const& transition) {
      PressureLevel from{};
      PressureLevel to{};
      transition.word("from", kPressureWords, from);
      transition.word("to", kPressureWords, to);
      transition.number("count", ledger.transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]);
    });
  });
  std::string word;
  fields.objects("refusals", [&](Fields const& refusal) {
    refusal.text("kind", word);
    auto const kind = error_kind_from(word);
    refusal.text("layer", word);
    auto const layer = layer_from(word);
    if (kind && layer)
      refusal.number("count", ledger.refusals[static_cast<std::size_t>(*kind)][static_cast<std::size_t>(*layer)]);
  });
  fields.objects("free_failures", [&](Fields const& failure) {
    failure.text("kind", word);
    if (auto const kind = error_kind_from(word)) failure.number("count", ledger.free_failures[static_cast<std::size_t>(*kind)]);
  });
  fields.number("observed", ledger.observed);
  fields.number("write_offs", ledger.write_offs);
  fields.number("retries", ledger.retries);
  fields.object("guard", [&](Fields const& guard) {
    for (auto const& [name, counts] :
         {std::pair{"policy_runs", &ledger.guard.policy_runs}, std::pair{"recoveries", &ledger.guard.recoveries}}) {
      guard.object(name, [&, into = counts](Fields const& of_policy) {
        for (std::size_t policy = 0; policy < kPolicyWords.size(); ++policy) {
          of_policy.number(kPolicyWords[policy].data(), (*into)[policy]);
        }
      });
    }
    guard.number("gave_up", ledger.guard.gave_up);
    guard.number("hook_runs", ledger.guard.hook_runs);
    guard.number("hook_freed_bytes", ledger.guard.hook_freed_bytes);
    guard.number("policy_waits", ledger.guard.policy_waits);
    guard.number("policy_wait_ns", ledger.guard.policy_wait_ns);
    guard.number("checkpoints", ledger.guard.checkpoints);
  });
}

void take_counters(Fields const& fields, flight::CounterSums& counters) {
  fields.number("allocations", counters.allocations);
  fields.number("frees", counters.frees);
  fields.number("allocation_bytes", counters.allocation_bytes);
  fields.number("deallocation_bytes", counters.deallocation_bytes);
  fields.number("typed_requests", counters.typed_requests);
  fields.number("raw_requests", counters.raw_requests);
  fields.number("zero_byte_requests", counters.zero_byte_requests);
  fields.number("allocation_ns", counters.allocation_ns);
  fields.number("free_ns", counters.free_ns);
  fields.histogram("size_histogram", counters.size_histogram);
  fields.histogram("duration_histogram", counters.duration_histogram);
  fields.histogram("use_histogram", counters.use_histogram);
}

void take_device(std::uint32_t id, PostMortem const& dump, LedgerSnapshot& ledger) {
  for (auto const& device : dump.devices) {
    if (device.id != id) continue;
    ledger.device_name = device.name;
    ledger.device_uuid = device.uuid;
    ledger.device_pci_address = device.pci_address;
    ledger.device_ordinal = device.ordinal;
  }
}

}  // namespace

void take_ledgers(Fields const& top, PostMortem& dump) {
  top.objects("ledgers", [&](Fields const& fields) {
    auto& ledger = dump.ledgers.emplace_back();
    fields.number("cell", ledger.cell);
    fields.number("id", ledger.directory_id);
    fields.number("generation", ledger.generation);
    fields.number("created_ticks", ledger.created_ticks);
    fields.text("name", ledger.name);
    dump.names[ledger.directory_id] = ledger.name;
    std::string kind;
    fields.text("kind", kind);
    ledger.is_device_account = kind == "device_account";
    fields.word("state", kLedgerStateWords, ledger.state);
    std::optional<std::uint64_t> parent;
    fields.number("parent_cell", parent);
    if (parent && *parent < flight::kLedgerCount) ledger.parent_cell = static_cast<std::uint32_t>(*parent);
    std::uint32_t device = 0;
    fields.number("device", device);
    take_device(device, dump, ledger);
    take_books(fields, ledger);
    take_tallies(fields, ledger);
    fields.object("counters", [&](Fields const& counters) { take_counters(counters, ledger.counters); });
    fields.objects("tags", [&](Fields const& tag) {
      auto& into = ledger.tags.emplace_back();
      tag.number("id", into.id);
      tag.text("name", into.name);
      tag.number("live_bytes", into.bytes);
      tag.number("at_peak_bytes", into.at_peak_bytes);
      tag.number("allocations", into.allocations);
      dump.names[into.id] = into.name;
    });
  });
}

void take_hooks(Fields const& top, PostMortem& dump) {
  top.objects("hooks", [&](Fields const& fields) {
    auto& hook = dump.hooks.emplace_back();
    fields.number("id", hook.directory_id);
    fields.number("cell", hook.cell);
    fields.number("ledger_id", hook.ledger_id);
    fields.text("name", hook.name);
    dump.names[hook.directory_id] = hook.name;
    fields.number("priority", hook.priority);
    fields.number("runs", hook.runs);
    fields.number("errors", hook.errors);
    fields.number("overruns", hook.overruns);
    fields.number("skips", hook.skips);
    fields.number("busy_skips", hook.busy_skips);
    fields.number("estimated_bytes", hook.estimated_bytes);
    fields.number("reported_bytes", hook.reported_bytes);
    fields.number("freed_bytes", hook.freed_bytes);
    fields.number("duration_ns", hook.duration_ns);
    fields.number("limit_ns", hook.limit_ns);
    fields.number("running_since_ticks", hook.running_since_ticks);
    fields.number("running_thread", hook.running_thread);
    fields.histogram("duration_histogram", hook.duration_histogram);
  });
}

}  // namespace headroom::dump
