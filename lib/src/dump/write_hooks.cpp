// Hooks with their totals, and what is going on right now.
#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

void Writer::write_hooks() noexcept {
  json_.begin_array("hooks");
  for (std::uint32_t index = 0; index < flight::hooks_used(mapped_); ++index) {
    flight::HookSnapshot hook;
    flight::RawName name;
    if (!flight::read_hook(mapped_, index, hook, name)) continue;
    json_.begin_object();
    json_.member("id", hook.directory_id);
    json_.member("cell", hook.cell);
    write_optional_id("ledger_id", hook.ledger_id);
    json_.member("name", text_of(name.label));
    json_.member("priority", hook.priority);
    json_.member("runs", hook.runs);
    json_.member("errors", hook.errors);
    json_.member("overruns", hook.overruns);
    json_.member("skips", hook.skips);
    json_.member("busy_skips", hook.busy_skips);
    json_.member("estimated_bytes", hook.estimated_bytes);
    json_.member("reported_bytes", hook.reported_bytes);
    json_.member("freed_bytes", hook.freed_bytes);
    json_.member("duration_ns", hook.duration_ns);
    json_.member("limit_ns", hook.limit_ns);
    json_.member_if("running_since_ticks", hook.running_since_ticks);
    if (hook.running_thread != 0) json_.member("running_thread", hook.running_thread);
    write_histogram("duration_histogram", hook.duration_histogram);
    json_.end_object();
  }
  json_.end_array();
}

void Writer::write_in_flight() noexcept {
  json_.begin_array("in_flight");
  for (flight::InFlightOperation const& operation : work_.operations) {
    if (operation.operation == flight::InFlight::none) break;
    json_.begin_object(Shape::flat);
    json_.member("lane", operation.lane);
    json_.member("thread", operation.thread);
    json_.member("thread_name", text_of(flight::read_thread_name(mapped_, operation.lane)));
    json_.member_word("operation", word_of(kInFlightWords, operation.operation));
    json_.member("ledger", operation.ledger);
    json_.member("bytes", operation.bytes);
    json_.member("since_ticks", operation.since_ticks);
    json_.end_object();
  }
  json_.end_array();
}

}  // namespace headroom::dump
