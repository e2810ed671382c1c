// The failure of a dump with its story, and the first failures of each kind.
#include "dump/load_parts.hpp"

namespace headroom::dump {

void take_failure(Fields const& fields, PostMortemFailure& failure) {
  fields.number("requested_bytes", failure.requested_bytes);
  std::string word;
  fields.text("kind", word);
  failure.kind = error_kind_from(word);
  fields.text("layer", word);
  failure.layer = layer_from(word);
  fields.number("ledger", failure.ledger);
  fields.text("tag_name", failure.tag);
  fields.text("site_name", failure.site);
  fields.number("thread", failure.thread);
  fields.text("message", failure.message);
  fields.number("ticks", failure.ticks);
  fields.text("outcome", failure.outcome);
  fields.object("figures", [&](Fields const& figures) {
    figures.number("claimed_bytes", failure.claimed_bytes);
    figures.number("required_bytes", failure.required_bytes);
    figures.number("limit_bytes", failure.limit_bytes);
    figures.number("peak_bytes", failure.peak_bytes);
    figures.number("device_free_bytes", failure.device_free_bytes);
    figures.number("device_total_bytes", failure.device_total_bytes);
    figures.number("device_outside_bytes", failure.device_outside_bytes);
    figures.number("unspent_bytes", failure.unspent_bytes);
    figures.number("failed_free_bytes", failure.failed_free_bytes);
    figures.number("device_code", failure.device_code);
  });
  fields.objects("holders", [&](Fields const& holder) {
    auto& into = failure.holders.emplace_back();
    holder.text("name", into.name);
    holder.number("bytes", into.bytes);
  });
  fields.objects("hooks", [&](Fields const& hook) {
    auto& turn = failure.hooks.emplace_back();
    hook.number("hook", turn.hook);
    hook.text("name", turn.name);
    hook.text("result", turn.result);
    hook.flag("overran", turn.overran);
    hook.number("shortfall_bytes", turn.shortfall_bytes);
    hook.number("estimate_bytes", turn.estimate_bytes);
    hook.number("reported_bytes", turn.reported_bytes);
    hook.number("freed_bytes", turn.freed_bytes);
    hook.number("duration_ns", turn.duration_ns);
    hook.number("overhead_bytes", turn.overhead_bytes);
  });
  fields.objects("policy_steps", [&](Fields const& step) {
    auto& into = failure.policy_steps.emplace_back();
    step.text("step", into.step);
    step.text("begins", into.begins);
    step.text("policy", into.policy);
    step.number("duration_ns", into.duration_ns);
    step.number("bytes", into.bytes);
    step.flag("granted", into.granted);
  });
}

void take_first_failures(Fields const& top, PostMortem& dump) {
  top.objects("first_failures", [&](Fields const& fields) {
    std::string kind_word;
    std::string layer_word;
    fields.text("kind", kind_word);
    fields.text("layer", layer_word);
    auto const kind = error_kind_from(kind_word);
    auto const layer = layer_from(layer_word);
    if (!kind || !layer) return;  // of a later version
    auto& failure = dump.first_failures.emplace_back();
    failure.kind = *kind;
    failure.layer = *layer;
    fields.number("count", failure.count);
    fields.number("ledger", failure.ledger);
    fields.number("tag", failure.tag);
    fields.number("site", failure.site);
    fields.number("thread", failure.thread);
    fields.number("requested_bytes", failure.requested);
    fields.number("claimed_bytes", failure.claimed);
    fields.number("limit_bytes", failure.limit);
    fields.number("peak_bytes", failure.peak);
    fields.number("device_free_bytes", failure.device_free);
    fields.number("first_ticks", failure.first_ticks);
    fields.number("last_ticks", failure.last_ticks);
  });
}

}  // namespace headroom::dump
