#include "event_words.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include <headroom/byte_size.hpp>
#include <headroom/follow_words.hpp>

namespace headroom::viewer {
namespace {

using flight::Event;
using flight::EventKind;

constexpr std::string_view kArrow = " \u2192 ";

std::string label(follow::Model const& model, std::uint32_t id) {
  auto const name = model.source().name(id);
  return name ? name->label : std::string{};
}

std::string quoted(std::string const& name) { return '\'' + name + '\''; }

std::string refusal(Event const& event) {
  auto text = format_bytes(event.bytes());
  if (auto const layer = event.error_layer()) text += " by " + std::string{to_string(*layer)};
  if (auto const kind = event.error_kind()) text += ": " + std::string{to_string(*kind)};
  return text;
}

std::string level(std::uint64_t number) {
  constexpr std::uint64_t kLevels = 5;
  return number < kLevels ? std::string{to_string(static_cast<PressureLevel>(number))} : "unknown";
}

/// A limit word of the flight file.
std::string limit(std::uint64_t word) {
  if ((word & flight::kLimitNone) != 0) return "unlimited";
  return format_bytes(word & flight::kBytesMask) + ((word & flight::kLimitEnforcing) == 0 ? " (observing)" : "");
}

std::string hook_end(std::string const& hook, Event const& event) {
  auto const reported = event.words[flight::HookEnd::kReported];
  auto const freed = event.words[flight::HookEnd::kFreed];
  auto text = hook + " freed " + format_bytes(freed);
  if (reported != freed) text += " (it said " + format_bytes(reported) + ')';
  text += " in " + follow::duration_in_words(event.words[flight::HookEnd::kNs]);
  if (event.hook_overran()) text += ", longer than its limit";
  if (event.hook_threw()) text += ", and ended with an exception";
  return text;
}

std::string hook_skip(std::string const& hook, Event const& event) {
  switch (static_cast<flight::HookSkip>(event.words[6])) {
    case flight::HookSkip::large: return hook + " passed over: it needs " + format_bytes(event.words[3]) + " to run";
    case flight::HookSkip::busy: return hook + " was busy on another thread for too long";
    case flight::HookSkip::elsewhere: return hook + " ran on another thread, and was waited for";
  }
  return hook + " passed over";
}

std::string policy(Event const& event) {
  auto const step = event.policy_step();
  auto const bytes = event.words[4];
  switch (step) {
    case flight::PolicyStep::recovered: return format_bytes(bytes) + " granted after all";
    case flight::PolicyStep::gave_up: return format_bytes(bytes) + " failed for good";
    case flight::PolicyStep::begun: return follow::shortage_in_words(event.policy_begins(), bytes);
    default: break;
  }
  return follow::step_in_words(
      {.step = step, .policy = event.policy_kind(), .ticks = event.ticks, .duration_ns = event.words[3], .bytes = bytes});
}

std::string thread_name(Event const& event) {
  std::array<char, 17> name{};
  std::memcpy(name.data(), &event.words[2], 16);
  return name.data();
}

/// The result of a free that was refused.
std::string error(Event const& event) {
  auto const kind = event.error_kind();
  return kind ? ": " + std::string{to_string(*kind)} : std::string{};
}

}  // namespace

std::string_view word_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::none: break;
    case EventKind::allocate: return "allocate";
    case EventKind::free: return "free";
    case EventKind::resource_allocate: return "layer allocates";
    case EventKind::resource_free: return "layer frees";
    case EventKind::refusal: return "refused";
    case EventKind::free_failed: return "free failed";
    case EventKind::peak: return "new peak";
    case EventKind::pressure: return "pressure";
    case EventKind::hook_begin: return "hook begins";
    case EventKind::hook_end: return "hook ends";
    case EventKind::hook_skip: return "hook skipped";
    case EventKind::budget: return "budget";
    case EventKind::reserve: return "reserve";
    case EventKind::reserve_drop: return "drop reservation";
    case EventKind::policy: return "policy";
    case EventKind::thread_attach: return "thread begins";
    case EventKind::thread_detach: return "thread ends";
    case EventKind::mark: return "mark";
    case EventKind::write_off: return "written off";
    case EventKind::observed: return "let pass";
    case EventKind::resource_refusal: return "layer refuses";
    case EventKind::resource_free_failed: return "layer keeps";
    case EventKind::trim: return "trim";
    case EventKind::hook_overrun: return "hook overran";
  }
  return "unknown";
}

std::string address_in_words(std::uint64_t address) {
  std::array<char, 24> text{};
  (void)std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(address));  // NOLINT
  return text.data();
}

Weight weight_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::refusal:
    case EventKind::free_failed:
    case EventKind::resource_refusal:
    case EventKind::resource_free_failed:
    case EventKind::hook_overrun: return Weight::bad;
    case EventKind::pressure:
    case EventKind::hook_begin:
    case EventKind::hook_end:
    case EventKind::hook_skip:
    case EventKind::policy:
    case EventKind::observed:
    case EventKind::write_off:
    case EventKind::mark:
    case EventKind::budget: return Weight::notable;
    default: return Weight::usual;
  }
}

std::string event_in_words(follow::Model const& model, Event const& event) {
  auto const hook = [&] { return quoted(label(model, event.hook())); };
  switch (event.kind) {
    case EventKind::refusal:
    case EventKind::observed: return refusal(event);
    case EventKind::free_failed:
    case EventKind::write_off: return format_bytes(event.bytes()) + " at " + address_in_words(event.words[2]) + error(event);
    case EventKind::peak: return format_bytes(event.allocated_after()) + " in use, more than ever";
    case EventKind::pressure:
      return level(event.words[2] & 0xFFU).append(kArrow) + level((event.words[2] >> 8U) & 0xFFU) + " at " +
             format_bytes(event.words[3]) + " claimed";
    case EventKind::hook_begin:
      return hook() + " asked for " + format_bytes(event.words[2]) + ", expects to free " + format_bytes(event.words[3]);
    case EventKind::hook_end: return hook_end(hook(), event);
    case EventKind::hook_skip: return hook_skip(hook(), event);
    case EventKind::hook_overrun:
      return hook() + " has run for " + follow::duration_in_words(event.words[3]) + ", its limit is " +
             follow::duration_in_words(event.words[2]);
    case EventKind::budget: return limit(event.words[2]).append(kArrow) + limit(event.words[3]);
    case EventKind::reserve: return format_bytes(event.words[3]) + " set aside";
    case EventKind::reserve_drop: return format_bytes(event.words[3]) + " given back unspent";
    case EventKind::policy: return policy(event);
    case EventKind::thread_attach: return thread_name(event);
    case EventKind::mark: return label(model, static_cast<std::uint32_t>(event.words[6])) + " = " + format_count(event.words[2]);
    case EventKind::trim:
      return "caches gave back " + format_bytes(event.words[2]) + " for a request of " + format_bytes(event.bytes());
    case EventKind::resource_refusal: return format_bytes(event.words[2]) + error(event);
    case EventKind::resource_free_failed: return format_bytes(event.bytes()) + error(event);
    default: return {};
  }
}

}  // namespace headroom::viewer
