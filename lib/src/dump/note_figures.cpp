#include "dump/note_figures.hpp"

#include <optional>

#include "dump/words.hpp"

namespace headroom::dump {
namespace {

using flight::Event;
using flight::EventKind;
using flight::HookEnd;
using flight::HookEndTail;
using flight::HookSkip;
using flight::PolicyStep;
using flight::RefusalTail;
using Type = NoteFigure::Type;

class Figures {
public:
  explicit Figures(std::vector<NoteFigure>& into) : into_{into} { into_.clear(); }
  void number(std::string_view name, std::uint64_t value) { into_.push_back({.name = name, .value = value}); }
  void signed_number(std::string_view name, std::uint64_t value) {
    into_.push_back({.name = name, .type = Type::signed_number, .value = value});
  }
  void address(std::string_view name, std::uint64_t value) {
    into_.push_back({.name = name, .type = Type::address, .value = value});
  }
  void word(std::string_view name, std::string_view text) { into_.push_back({.name = name, .type = Type::word, .word = text}); }
  void flag(std::string_view name, bool value) { into_.push_back({.name = name, .type = Type::flag, .value = value ? 1U : 0U}); }
  void limit(std::string_view name, std::uint64_t limit_word) {
    if ((limit_word & flight::kLimitNone) != 0) {
      word(name, "unlimited");
    } else {
      number(name, limit_word & flight::kBytesMask);
    }
  }

private:
  std::vector<NoteFigure>& into_;
};

std::string_view kind_word(Event const& event) noexcept {
  auto const kind = event.error_kind();
  return kind ? to_string(*kind) : std::string_view{"unknown"};
}

std::string_view layer_word(Event const& event) noexcept {
  auto const layer = event.error_layer();
  return layer ? to_string(*layer) : std::string_view{"unknown"};
}

std::string_view pressure_word(std::uint64_t level) noexcept {
  return word_of(kPressureWords, static_cast<PressureLevel>(level & 0xFFU));
}

std::string_view skip_word(std::uint64_t reason) noexcept {
  switch (static_cast<HookSkip>(reason)) {
    case HookSkip::large: return "too_large";
    case HookSkip::busy: return "busy";
    case HookSkip::elsewhere: return "ran_elsewhere";
  }
  return "unknown";
}

void refusal(TimelineNote const& note, Figures& figures) {
  auto const& event = *note.event;
  figures.number("requested_bytes", event.words[2]);
  figures.word("kind", kind_word(event));
  figures.word("layer", layer_word(event));
  figures.number("allocated_bytes", event.allocated_after());
  if (note.tail == nullptr) return;
  auto const& tail = note.tail->words;
  figures.number("claimed_bytes", tail[RefusalTail::kClaimed] & flight::kBytesMask);
  figures.limit("limit_bytes", tail[RefusalTail::kLimit]);
  figures.number("peak_bytes", tail[RefusalTail::kPeak] & flight::kBytesMask);
  figures.number("unspent_bytes", tail[RefusalTail::kUnspent]);
  if (tail[RefusalTail::kDeviceFree] != 0) figures.number("device_free_bytes", tail[RefusalTail::kDeviceFree] - 1);
  auto const code = static_cast<std::int32_t>(tail[RefusalTail::kCode] >> 32U);
  if (code != 0) figures.signed_number("device_code", static_cast<std::uint64_t>(std::int64_t{code}));
}

void hook_end(TimelineNote const& note, Figures& figures) {
  auto const& event = *note.event;
  figures.number("reported_bytes", event.words[HookEnd::kReported]);
  figures.number("freed_bytes", event.words[HookEnd::kFreed]);
  figures.number("duration_ns", event.words[HookEnd::kNs]);
  if (event.hook_threw()) figures.flag("threw", true);
  if (event.hook_overran()) figures.flag("overran", true);
  if (note.tail == nullptr) return;
  auto const& tail = note.tail->words;
  figures.number("shortfall_bytes", tail[HookEndTail::kShortfall]);
  figures.number("estimate_bytes", tail[HookEndTail::kEstimate]);
  figures.number("requested_bytes", tail[HookEndTail::kRequested]);
  figures.signed_number("ledger_fell_bytes", tail[HookEndTail::kLedgerFell]);
  figures.number("limit_ns", tail[HookEndTail::kLimitNs]);
}

void policy(Event const& event, Figures& figures) {
  auto const step = event.policy_step();
  figures.word("step", word_of(kPolicyStepWords, step));
  if (step == PolicyStep::begun) figures.word("begins", word_of(kBegunWords, event.policy_begins()));
  figures.word("policy", word_of(kPolicyWords, event.policy_kind()));
  figures.number("bytes", event.words[4]);
  if (step != PolicyStep::begun) figures.number("duration_ns", event.words[3]);
  if (event.error_kind()) {
    figures.word("kind", kind_word(event));
    figures.word("layer", layer_word(event));
  }
}

}  // namespace

void figures_of(TimelineNote const& note, std::vector<NoteFigure>& into) {
  Figures figures{into};
  auto const& event = *note.event;
  auto const& words = event.words;
  switch (note.kind) {
    case EventKind::refusal:
    case EventKind::observed: return refusal(note, figures);
    case EventKind::free_failed:
      figures.address("address", words[2]);
      figures.number("bytes", event.bytes());
      figures.word("kind", kind_word(event));
      return figures.word("layer", layer_word(event));
    case EventKind::peak: return figures.number("peak_bytes", event.allocated_after());
    case EventKind::pressure:
      figures.word("from", pressure_word(words[2]));
      figures.word("to", pressure_word(words[2] >> 8U));
      figures.number("claimed_bytes", words[3] & flight::kBytesMask);
      return figures.limit("limit_bytes", words[4]);
    case EventKind::hook_begin:
      figures.number("shortfall_bytes", words[2]);
      figures.number("estimate_bytes", words[3]);
      figures.number("headroom_bytes", words[4]);
      return figures.number("requested_bytes", words[6]);
    case EventKind::hook_end: return hook_end(note, figures);
    case EventKind::hook_skip:
      figures.word("reason", skip_word(words[6]));
      figures.number("shortfall_bytes", words[2]);
      figures.number("overhead_bytes", words[3]);
      return figures.number("headroom_bytes", words[4]);
    case EventKind::hook_overrun:
      figures.number("limit_ns", words[2]);
      figures.number("duration_so_far_ns", words[3]);
      return figures.number("running_thread", words[6]);
    case EventKind::budget:
      figures.limit("limit_before_bytes", words[2]);
      figures.limit("limit_bytes", words[3]);
      if ((words[3] & flight::kLimitEnforcing) == 0 && (words[3] & flight::kLimitNone) == 0) figures.flag("only_observed", true);
      return figures.number("claimed_bytes", words[4] & flight::kBytesMask);
    case EventKind::reserve:
    case EventKind::reserve_drop: return figures.number("bytes", words[3]);
    case EventKind::policy: return policy(event, figures);
    case EventKind::mark: return figures.number("value", words[2]);
    case EventKind::trim: figures.number("freed_bytes", words[2]); return figures.number("requested_bytes", event.bytes());
    case EventKind::resource_refusal:
      figures.number("requested_bytes", words[2]);
      figures.word("kind", kind_word(event));
      return figures.word("layer", layer_word(event));
    case EventKind::resource_free_failed:
      figures.address("address", words[2]);
      figures.number("bytes", event.bytes());
      figures.word("kind", kind_word(event));
      return figures.word("layer", layer_word(event));
    default: return;
  }
}

std::string title_of(TimelineNote const& note) {
  auto const& event = *note.event;
  auto const word = [](std::string_view text) { return std::string{text}; };
  auto const named = [&](std::string_view what) {
    return word(what) + (note.name.empty() ? std::string{} : ' ' + std::string{note.name});
  };
  switch (note.kind) {
    case EventKind::refusal: return "refused: " + word(kind_word(event));
    case EventKind::observed: return "over an observed budget";
    case EventKind::free_failed: return "free failed: " + word(kind_word(event));
    case EventKind::pressure:
      return "pressure " + word(pressure_word(event.words[2])) + " to " + word(pressure_word(event.words[2] >> 8U));
    case EventKind::hook_begin:
    case EventKind::hook_end: return named("hook");
    case EventKind::hook_skip: return named("hook skipped:");
    case EventKind::hook_overrun: return named("hook over its time:");
    case EventKind::budget: return "budget changed";
    case EventKind::reserve: return "reserved";
    case EventKind::reserve_drop: return "reservation given back";
    case EventKind::policy: {
      auto const step = event.policy_step();
      return step == PolicyStep::begun ? word(word_of(kBegunWords, event.policy_begins()))
                                       : word(word_of(kPolicyStepWords, step));
    }
    case EventKind::mark: return note.name.empty() ? "mark" : std::string{note.name};
    case EventKind::trim: return "caches trimmed";
    case EventKind::resource_refusal: return "resource refused";
    case EventKind::resource_free_failed: return "resource could not free";
    default: return word(word_of(kEventKindWords, note.kind));
  }
}

void write_figures(JsonStream& json, std::vector<NoteFigure> const& figures) noexcept {
  for (auto const& figure : figures) {
    switch (figure.type) {
      case Type::number: json.member(figure.name, figure.value); break;
      case Type::signed_number: json.member(figure.name, static_cast<std::int64_t>(figure.value)); break;
      case Type::address: json.member(figure.name, Hex{figure.value}); break;
      case Type::word: json.member_word(figure.name, figure.word); break;
      case Type::flag: json.member(figure.name, figure.value != 0); break;
    }
  }
}

}  // namespace headroom::dump
