// The failure: what was asked for, who said no with which figures, what the hooks and the policy did about it.
#include "base/checked.hpp"
#include "dump/shortened.hpp"
#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/emit.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

using flight::EventKind;

namespace {

constexpr std::uint32_t kLayersInResult = 64;  // result field: 0 = good, else (kind + 1) · 64 + layer

std::string_view kind_word(std::uint32_t result) noexcept {
  return to_string(static_cast<ErrorKind>(result / kLayersInResult - 1));
}
/// None: the error does not say how much was asked for.
std::optional<RefusedRequest> request_of(KnownFailure const& failure) noexcept {
  if (!failure.error.requested) return std::nullopt;
  return RefusedRequest{.bytes = *failure.error.requested,
                        .site = failure.site,
                        .ledger = failure.ledger_cell & 0xFFFU,  // as much of it as a record has
                        .tag = failure.tag & 0xFFFFU,
                        .result = flight::pack_result(failure.error.kind, failure.error.layer)};
}
std::string_view layer_word(std::uint32_t result) noexcept { return to_string(static_cast<Layer>(result % kLayersInResult)); }

}  // namespace

void Writer::write_failure() noexcept {
  const bool known = request_.failure != nullptr;
  StoryWanted wanted{.thread = {}, .request = {}, .quiet = is_quiet()};
  if (known) {
    wanted.thread = request_.failure->thread;
    wanted.request = request_of(*request_.failure);
  }
  const auto story = find_story(mapped_, wanted);
  if (!known && !story) return;  // nothing failed, or it is so long ago that only first_failures knows of it
  json_.begin_object("failure");
  if (known) {
    write_known_failure(*request_.failure);
  } else {
    const std::uint32_t result = result_of(story->refusal);
    json_.member("requested_bytes", story->refusal[2]);
    json_.member_word("kind", result < kLayersInResult ? "unknown" : kind_word(result));
    json_.member_word("layer", result < kLayersInResult ? "unknown" : layer_word(result));
    json_.member("ledger", ledger_of(story->refusal));
    write_optional_id("tag", tag_of(story->refusal));
    write_label("tag_name", tag_of(story->refusal));
    const auto site = static_cast<std::uint32_t>(std::min<std::uint64_t>(story->refusal[6], 0xFFFF'FFFFU));
    write_optional_id("site", site);
    write_label("site_name", site);
    json_.member("thread", story->thread);
  }
  if (story) write_story(*story);
  json_.end_object();
}

void Writer::write_known_failure(KnownFailure const& failure) noexcept {
  json_.member_if("requested_bytes", failure.error.requested);
  json_.member_word("kind", to_string(failure.error.kind));
  json_.member_word("layer", to_string(failure.error.layer));
  json_.member("ledger", failure.ledger_cell);
  write_optional_id("tag", failure.tag);
  write_label("tag_name", failure.tag);
  write_optional_id("site", failure.site);
  write_label("site_name", failure.site);
  json_.member("thread", failure.thread);
  json_.member("message", shortened(failure.error.message));
  write_figures(failure.error);
}

void Writer::write_figures(Error const& error) noexcept {
  json_.begin_object("figures", Shape::flat);
  json_.member_if("claimed_bytes", error.current);
  json_.member_if("required_bytes", error.required);
  json_.member_if("limit_bytes", error.limit);
  json_.member_if("peak_bytes", error.peak);
  json_.member_if("device_free_bytes", error.device_free);
  json_.member_if("device_total_bytes", error.device_total);
  json_.member_if("device_outside_bytes", error.device_outside);
  if (error.device_code != 0) json_.member("device_code", error.device_code);
  json_.member("unspent_bytes", error.unspent_bytes);
  json_.member("unspent_reservations", error.unspent_reservations);
  json_.member("failed_free_bytes", error.failed_free_bytes);
  json_.member("failed_frees", error.failed_frees);
  json_.end_object();
  json_.begin_array("holders");
  for (Holder const& holder : error.holders) {
    if (holder.tag == nullptr || holder.bytes == 0) continue;
    json_.begin_object(Shape::flat);
    json_.member("name", shortened(holder.tag[0] == '\0' ? "untagged" : holder.tag));
    json_.member("bytes", holder.bytes);
    json_.end_object();
  }
  json_.end_array();
}

void Writer::write_story(Story const& story) noexcept {
  json_.member("ticks", story.refusal[1]);
  json_.member("realtime_ns", clock_.realtime_ns(story.refusal[1]));
  json_.member("lane", story.lane);
  json_.member("journal_number", story.first);
  json_.member("alignment", std::uint64_t{1} << ((story.refusal[3] >> 48) & 63U));
  json_.member("allocated_bytes", story.refusal[4] & flight::kBytesMask);
  if (story.tail && request_.failure == nullptr) write_recorded_figures(story);
  write_turns(story);
  const std::string_view outcome = write_policy_steps(story);
  json_.member_word("outcome", request_.failure != nullptr ? "failed" : outcome);
}

void Writer::write_recorded_figures(Story const& story) noexcept {
  using Tail = flight::RefusalTail;
  RecordWords const& tail = *story.tail;
  json_.begin_object("figures", Shape::flat);
  json_.member("claimed_bytes", tail[Tail::kClaimed]);
  if (auto const required = checked_add(tail[Tail::kClaimed], story.refusal[2])) json_.member("required_bytes", *required);
  if ((tail[Tail::kLimit] & flight::kLimitNone) == 0) json_.member("limit_bytes", tail[Tail::kLimit] & flight::kBytesMask);
  json_.member("peak_bytes", tail[Tail::kPeak] & flight::kBytesMask);
  if (tail[Tail::kDeviceFree] != 0) json_.member("device_free_bytes", tail[Tail::kDeviceFree] - 1);
  if (const auto code = static_cast<std::int32_t>(tail[Tail::kCode] >> 32); code != 0) json_.member("device_code", code);
  json_.member("unspent_bytes", tail[Tail::kUnspent]);
  json_.end_object();
}

// A begin is held back until it is known how the hook's turn ended.
void Writer::write_turns(Story const& story) noexcept {
  json_.begin_array("hooks");
  std::optional<RecordWords> begun;
  const auto end_turn = [&](RecordWords const* end) {
    if (begun || end != nullptr) write_turn(begun ? &*begun : nullptr, end);
    begun.reset();
  };
  for_each_of_story(mapped_, story, is_quiet(), [&](std::uint64_t /*number*/, RecordWords const& words, bool /*ended*/) {
    const EventKind kind = kind_of(words);
    if (kind == EventKind::hook_begin) {
      end_turn(nullptr);
      begun = words;
    } else if (kind == EventKind::hook_end && !continues(words)) {
      end_turn(&words);
    } else if (kind == EventKind::hook_skip) {
      end_turn(nullptr);
      write_skip(words);
    }
  });
  end_turn(nullptr);
  json_.end_array();
}

/// One of the two is there.
void Writer::write_turn(RecordWords const* begin, RecordWords const* end) noexcept {
  const std::uint32_t hook = hook_of(begin != nullptr ? *begin : *end);
  json_.begin_object(Shape::flat);
  json_.member("hook", hook);
  write_label("name", hook);
  if (begin != nullptr) {
    json_.member("shortfall_bytes", (*begin)[2]);
    json_.member("estimate_bytes", (*begin)[3]);
  }
  if (end != nullptr) {
    const std::uint64_t freed = (*end)[flight::HookEnd::kFreed];
    json_.member("reported_bytes", (*end)[flight::HookEnd::kReported]);
    json_.member("freed_bytes", freed);
    json_.member("duration_ns", (*end)[flight::HookEnd::kNs]);
    json_.member("overran", ((*end)[0] & flight::kFlagHookOverran) != 0);
    const bool threw = ((*end)[0] & flight::kFlagHookThrew) != 0;
    json_.member_word("result", threw ? "threw" : freed != 0 ? "freed" : "freed_nothing");
  } else {
    json_.member_word("result", "not_ended");
  }
  json_.end_object();
}

void Writer::write_skip(RecordWords const& words) noexcept {
  const auto why = static_cast<flight::HookSkip>(words[6]);
  json_.begin_object(Shape::flat);
  json_.member("hook", hook_of(words));
  write_label("name", hook_of(words));
  json_.member("shortfall_bytes", words[2]);
  json_.member("overhead_bytes", words[3]);
  json_.member("headroom_bytes", words[4]);
  if (why != flight::HookSkip::large) json_.member("duration_ns", words[7] >> 32);
  json_.member_word("result", why == flight::HookSkip::elsewhere ? "ran_elsewhere"
                              : why == flight::HookSkip::busy    ? "skipped_busy"
                                                                 : "skipped_large");
  json_.end_object();
}

void Writer::write_policy_step(RecordWords const& words) noexcept {
  const auto step = static_cast<flight::PolicyStep>(words[2] & 0xFFU);
  json_.begin_object(Shape::flat);
  json_.member_word("step", word_of(kPolicyStepWords, step));
  if (step == flight::PolicyStep::begun) json_.member_word("begins", word_of(kBegunWords, (words[2] >> 16) & 0xFFU));
  json_.member_word("policy", word_of(kPolicyWords, (words[2] >> 8) & 0xFFU));
  json_.member("duration_ns", words[3]);
  json_.member("bytes", words[4]);
  json_.member("granted", result_of(words) == 0);
  json_.end_object();
}

/// What became of the request, as far as the steps say. What was begun is a step of its own only when nothing tells of its end.
std::string_view Writer::write_policy_steps(Story const& story) noexcept {
  std::string_view outcome = "unknown";
  std::optional<RecordWords> begun;
  json_.begin_array("policy_steps");
  for_each_of_story(mapped_, story, is_quiet(), [&](std::uint64_t /*number*/, RecordWords const& words, bool /*ended*/) {
    const EventKind kind = kind_of(words);
    if (kind == EventKind::hook_begin || kind == EventKind::hook_skip || kind == EventKind::policy) begun.reset();
    if (kind != EventKind::policy) return;
    const auto step = static_cast<flight::PolicyStep>(words[2] & 0xFFU);
    if (step == flight::PolicyStep::begun) {
      begun = words;
      return;
    }
    write_policy_step(words);
    if (step == flight::PolicyStep::recovered) outcome = "granted_after_all";
    if (step == flight::PolicyStep::gave_up) outcome = "failed";
  });
  if (begun) write_policy_step(*begun);
  json_.end_array();
  return outcome;
}

void Writer::write_first_failures() noexcept {
  json_.begin_array("first_failures");
  for (std::uint32_t index = 0; index < mapped_.first_failures().size(); ++index) {
    auto const failure = flight::read_first_failure(mapped_, index);
    if (!failure) continue;
    json_.begin_object(Shape::flat);
    json_.member_word("kind", to_string(failure->kind));
    json_.member_word("layer", to_string(failure->layer));
    json_.member("count", failure->count);
    json_.member("ledger", failure->ledger);
    write_optional_id("tag", failure->tag);
    write_label("tag_name", failure->tag);
    write_optional_id("site", failure->site);
    json_.member("thread", failure->thread);
    json_.member("requested_bytes", failure->requested);
    json_.member("claimed_bytes", failure->claimed);
    json_.member_if("limit_bytes", failure->limit);
    json_.member("peak_bytes", failure->peak);
    json_.member_if("device_free_bytes", failure->device_free);
    json_.member("first_ticks", failure->first_ticks);
    json_.member("last_ticks", failure->last_ticks);
    json_.end_object();
  }
  json_.end_array();
}

}  // namespace headroom::dump
